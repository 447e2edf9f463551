<?php
// Calls a broker with PHP's SoapClient, by its WSDLs and without them.
//
//     php soap_client.php BROKER-URL FEED-URL PORT
//
// Prints a line of JSON for each call: [name of the call, answer or null, fault or null].
// PORT is where a subscriber of http-post listens on this machine.

[, $broker, $feed, $port] = $argv;
$home = 'http://php.example/';

function said(string $name, callable $call): void
{
    try {
        $line = [$name, $call(), null];
    } catch (SoapFault $fault) {
        $line = [$name, null, "$fault->faultcode: $fault->faultstring"];
    }
    echo json_encode($line, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE), "\n";
}

function described(string $address): SoapClient
{
    return new SoapClient("$address?wsdl", ['cache_wsdl' => WSDL_CACHE_NONE]);
}

function undescribed(string $address, string $namespace): SoapClient
{
    return new SoapClient(null, ['location' => $address, 'uri' => $namespace]);
}

// By a WSDL in the document/literal style, parameters are named.
$updates = described("$broker/weblogUpdates");
$weblog = fn(string $name) => ['weblogname' => $name, 'weblogurl' => $home];
$more = ['changesurl' => "{$home}new", 'rssurl' => $feed, 'tags' => 'one|two'];
said('wsdl weblog', fn() => $updates->ping($weblog('PHP Café ☕'))->Result);
said('wsdl weblog extended', fn() => $updates->extendedPing($weblog('PHP mit Feed') + $more)->Result);
said('wsdl weblog refused', fn() => $updates->ping($weblog(''))->Result);

$cloud = described("$broker/soap");
$subscriber = ['notifyProcedure' => '', 'port' => $port, 'path' => '/notify', 'urlList' => ["$feed?wsdl"]];
said('wsdl register', fn() => $cloud->pleaseNotify($subscriber + ['protocol' => 'http-post'])->Result);
said('wsdl ping', fn() => $cloud->ping(['url' => "$feed?wsdl"])->Result);
said('wsdl fault', fn() => $cloud->pleaseNotify($subscriber + ['protocol' => 'smoke']));

// Without one, they are told by their order.
foreach (['nameless' => '', 'named' => 'http://php.example/namespace'] as $kind => $namespace) {
    $updates = undescribed("$broker/weblogUpdates", $namespace);
    said("$kind weblog", fn() => $updates->ping("PHP ☕ $kind", $home));
    $cloud = undescribed("$broker/soap", $namespace);
    $registration = ['', (int) $port, '/notify', 'http-post', ["$feed?$kind"]];
    said("$kind register", fn() => $cloud->__soapCall('rssCloud.pleaseNotify', $registration));
    said("$kind ping", fn() => $cloud->__soapCall('rssCloud.ping', ["$feed?$kind"]));
    said("$kind fault", fn() => $cloud->nonsense());
}
