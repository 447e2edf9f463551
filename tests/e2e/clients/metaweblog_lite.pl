#!/usr/bin/perl
# Writes messages with Perl's XMLRPC::Lite.
#
#     perl metaweblog_lite.pl BROKER-URL NAME PASSWORD
#
# Prints a line of JSON for each call: [name of the call, answer or null, fault or null].
use strict;
use warnings;
use JSON::PP;
use XMLRPC::Lite;

my ($broker, $name, $password) = @ARGV;
my $json = JSON::PP->new->ascii->allow_nonref;
my $client = XMLRPC::Lite->proxy("$broker/RPC2");

sub said {
    my ($call, $procedure, @parameters) = @_;
    my $som = $client->call($procedure, @parameters);
    my $fault = $som->fault ? $som->faultcode . ': ' . $som->faultstring : undef;
    print $json->encode([$call, scalar $som->result, $fault]), "\n";
    return scalar $som->result;
}

my $yes = XMLRPC::Data->type('boolean', 1);
said('blogs', 'blogger.getUsersBlogs', 'key', $name, $password);
my $id = said('new', 'metaWeblog.newPost', '1', $name, $password,
    { title => 'Perl', description => "<p>Gr\xc3\xbc\xc3\x9fe &amp; more</p>", categories => ['one', 'two'] }, $yes);
said('get', 'metaWeblog.getPost', $id, $name, $password);
said('edit', 'blogger.editPost', 'key', $id, $name, $password, 'Changed', $yes);
said('recent', 'metaWeblog.getRecentPosts', '1', $name, $password, 5);
said('wrong', 'metaWeblog.getRecentPosts', '1', $name, 'nonsense', 5);
said('none', 'metaWeblog.getPost', 999, $name, $password);
