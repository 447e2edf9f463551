"use strict";
// Adds new lines to the page of the event log as they come.  Every text becomes a text node.
(() => {
  const MOST = 500; // lines on the page, and lines that wait while it is paused
  const list = document.getElementById("entries");
  const state = document.getElementById("live-state");
  const button = document.getElementById("live-pause");
  if (!list || !list.dataset.stream || !window.EventSource) return;

  let paused = false;
  let waiting = [];

  function say(text) {
    if (state.textContent !== text) state.textContent = text;
  }

  function sayWhatIsUp() {
    if (paused) say(`Paused; ${waiting.length} new`);
    else say("New lines appear as they come");
    button.textContent = paused ? "Go on" : "Pause";
  }

  function element(name, text, attributes) {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    return made;
  }

  function item(line) {
    const made = element("li", "", { class: `outcome-${line.outcome.replaceAll(" ", "-")}` });
    const time = line.at.replace("T", " ").replace("Z", "");
    const text = element("span", line.before);
    if (line.link) {
      const link = element("a", "", { href: line.link });
      link.append(element("bdi", line.topic));
      text.append(link);
    } else {
      text.append(line.topic);
    }
    text.append(line.after);
    made.append(element("time", time, { datetime: line.at }), text);
    return made;
  }

  function show(made) {
    document.getElementById("nothing")?.remove();
    list.prepend(made);
    while (list.childElementCount > MOST) list.lastElementChild.remove();
  }

  function take(made) {
    if (!paused) {
      show(made);
      return;
    }
    waiting.push(made);
    if (waiting.length > MOST) waiting.shift();
    sayWhatIsUp();
  }

  function note(text) {
    take(element("li", text, { class: "note" }));
  }

  const source = new EventSource(list.dataset.stream);
  source.onopen = sayWhatIsUp;
  source.onmessage = (event) => take(item(JSON.parse(event.data)));
  source.addEventListener("skipped", (event) => note(`${event.data} lines came too fast to be shown`));
  source.addEventListener("gap", () => note("Some lines are missing here; reload the page to see them"));
  source.onerror = () => {
    const over = source.readyState === EventSource.CLOSED;
    say(over ? "No new lines: too many people watch. Reload the page later" : "Connecting again…");
  };
  button.addEventListener("click", () => {
    paused = !paused;
    if (!paused) {
      waiting.forEach(show);
      waiting = [];
    }
    sayWhatIsUp();
  });
  document.getElementById("live").hidden = false;
})();
