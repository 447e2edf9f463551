#!/usr/bin/perl
# Calls a broker with Perl's SOAP::Lite, by its WSDLs and without them.
#
#     perl soap_lite.pl BROKER-URL FEED-URL PORT
#
# Prints a line of JSON for each call: [name of the call, answer or null, fault or null].
# PORT is where a subscriber of http-post listens on this machine.
use strict;
use warnings;
use JSON::PP;
use SOAP::Lite;

my ($broker, $feed, $port) = @ARGV;
my $home = 'http://perl.example/';
my $json = JSON::PP->new->ascii->allow_nonref;

sub said {
    my ($name, $som) = @_;
    my $fault = $som->fault ? $som->faultcode . ': ' . $som->faultstring : undef;
    print $json->encode([$name, scalar $som->result, $fault]), "\n";
}

# The operations that a WSDL describes are methods, which return the whole message if asked to.
sub described {
    my $client = SOAP::Lite->service("$broker$_[0]?wsdl");
    $client->want_som(1);
    return $client;
}

sub undescribed {
    my ($path, $namespace) = @_;
    return SOAP::Lite->proxy("$broker$path")->uri($namespace);
}

my @site = ($home, "${home}new", $feed, 'one|two');
my @subscriber = ('', $port, '/notify');

my $updates = described('/weblogUpdates');
said('wsdl weblog', $updates->ping("Perl Caf\x{e9} \x{2615}", $home));
said('wsdl weblog extended', $updates->extendedPing('Perl with a feed', @site));
said('wsdl weblog refused', $updates->ping('', $home));

my $cloud = described('/soap');
said('wsdl register', $cloud->pleaseNotify(@subscriber, 'http-post', "$feed?wsdl"));
said('wsdl ping', $cloud->ping("$feed?wsdl"));
said('wsdl fault', $cloud->pleaseNotify(@subscriber, 'smoke', $feed));

# Without a WSDL, SOAP::Lite sends what is not ASCII as base64 of the bytes that it is given, here
# UTF-8 or Latin-1; and what looks like a number as one.
my %namespaces = (nameless => '', named => 'http://perl.example/namespace');
my %years = (nameless => 2001, named => 1984);
for my $kind (sort keys %namespaces) {
    $updates = undescribed('/weblogUpdates', $namespaces{$kind});
    said("$kind weblog", $updates->ping("Perl \xe2\x98\x95 $kind", $home));
    said("$kind weblog latin-1", $updates->ping("Caf\xe9 $kind", $home));
    said("$kind weblog number", $updates->ping($years{$kind}, $home));
    $cloud = undescribed('/soap', $namespaces{$kind});
    said("$kind register", $cloud->call('rssCloud.pleaseNotify', @subscriber, 'http-post', ["$feed?$kind"]));
    said("$kind ping", $cloud->call('rssCloud.ping', "$feed?$kind"));
    said("$kind fault", $cloud->nonsense());
}
