#!/usr/bin/perl
# Calls a broker with Perl's XMLRPC::Lite.
#
#     perl xmlrpc_lite.pl BROKER-URL FEED-URL PORT
#
# Prints a line of JSON for each call: [name of the call, answer or null, fault or null].
# PORT is where a subscriber of http-post listens on this machine.
use strict;
use warnings;
use JSON::PP;
use XMLRPC::Lite;

my ($broker, $feed, $port) = @ARGV;
my $home = 'http://perl.example/';
my $json = JSON::PP->new->ascii->allow_nonref;
my $client = XMLRPC::Lite->proxy("$broker/RPC2");

sub said {
    my ($name, $procedure, @parameters) = @_;
    my $som = $client->call($procedure, @parameters);
    my $fault = $som->fault ? $som->faultcode . ': ' . $som->faultstring : undef;
    print $json->encode([$name, scalar $som->result, $fault]), "\n";
}

# XMLRPC::Lite sends what is not ASCII as base64 of the bytes that it is given, here UTF-8 or
# Latin-1; and what looks like a number as one.
said('weblog', 'weblogUpdates.ping', "Perl \xe2\x98\x95 XML-RPC", $home);
said('weblog latin-1', 'weblogUpdates.ping', "Caf\xe9 XML-RPC", $home);
said('weblog number', 'weblogUpdates.ping', 1999, $home);
said('weblog extended', 'weblogUpdates.extendedPing', 'XML-RPC with a feed', $home, "${home}new", $feed, 'one|two');
said('weblog refused', 'weblogUpdates.ping', '', $home);
said('register', 'rssCloud.pleaseNotify', '', $port, '/notify', 'http-post', [$feed]);
said('ping', 'rssCloud.ping', $feed);
said('fault', 'rssCloud.pleaseNotify', '', $port, '/notify', 'smoke', [$feed]);
