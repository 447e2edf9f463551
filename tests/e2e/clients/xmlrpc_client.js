// Calls a broker with the package "xmlrpc" of Node.js.
//
//     node xmlrpc_client.js BROKER-URL FEED-URL PORT
//
// Prints a line of JSON for each call: [name of the call, answer or null, fault or null].
// PORT is where a subscriber of http-post listens on this machine.
"use strict";
const xmlrpc = require("xmlrpc");

const [broker, feed, port] = process.argv.slice(2);
const home = "http://node.example/";
const client = xmlrpc.createClient(`${broker}/RPC2`);

function said(name, procedure, parameters) {
  return new Promise((resolve) => {
    client.methodCall(procedure, parameters, (error, answer) => {
      const fault = error && `${error.faultCode}: ${error.faultString}`;
      console.log(JSON.stringify([name, error ? null : answer, fault]));
      resolve();
    });
  });
}

async function main() {
  const registration = ["", Number(port), "/notify"];
  await said("weblog", "weblogUpdates.ping", ["Node XML-RPC Café ☕", home]);
  await said("weblog extended", "weblogUpdates.extendedPing", [
    "Node XML-RPC with a feed", home, `${home}new`, feed, "one|two",
  ]);
  await said("weblog refused", "weblogUpdates.ping", ["", home]);
  await said("register", "rssCloud.pleaseNotify", [...registration, "http-post", [feed]]);
  await said("ping", "rssCloud.ping", [feed]);
  await said("fault", "rssCloud.pleaseNotify", [...registration, "smoke", [feed]]);
}

main();
