// Calls a broker with the package "soap" of Node.js, by its WSDLs.
//
//     node soap_client.js BROKER-URL FEED-URL PORT
//
// Prints a line of JSON for each call: [name of the call, answer or null, fault or null].
// PORT is where a subscriber of http-post listens on this machine.
"use strict";
const soap = require("soap");

const [broker, feed, port] = process.argv.slice(2);
const home = "http://node.example/";

async function said(name, call) {
  let line;
  try {
    line = [name, (await call)[0].Result, null];
  } catch (error) {
    const fault = error.root?.Envelope.Body.Fault;
    line = [name, null, fault ? `${fault.faultcode}: ${fault.faultstring}` : `${error}`];
  }
  console.log(JSON.stringify(line));
}

function registration(protocol) {
  return {
    notifyProcedure: "",
    port: Number(port),
    path: "/notify",
    protocol,
    urlList: [feed],
  };
}

async function main() {
  const updates = await soap.createClientAsync(`${broker}/weblogUpdates?wsdl`);
  const ping = (name) => updates.pingAsync({ weblogname: name, weblogurl: home });
  await said("weblog", ping("Node Café ☕"));
  await said(
    "weblog extended",
    updates.extendedPingAsync({
      weblogname: "Node with a feed",
      weblogurl: home,
      changesurl: `${home}new`,
      rssurl: feed,
      tags: "one|two",
    }),
  );
  await said("weblog refused", ping(""));

  const cloud = await soap.createClientAsync(`${broker}/soap?wsdl`);
  await said("register", cloud.pleaseNotifyAsync(registration("http-post")));
  await said("ping", cloud.pingAsync({ url: feed }));
  await said("fault", cloud.pleaseNotifyAsync(registration("smoke")));
}

main();
