"use strict";
// Shows times in the reader's zone, adds a button to what people copy, sends a form once at a double
// click, and forgets at signing out what the tab keeps.  No page needs it.
(() => {
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const ABSOLUTE = /^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?$/;
  const english = new Intl.RelativeTimeFormat("en");

  function relative(at) {
    const seconds = (at - Date.now()) / 1000;
    const unit = UNITS.find(([, length]) => Math.abs(seconds) >= length);
    if (!unit) return seconds > 0 ? "any moment" : "just now";
    return english.format(Math.trunc(seconds / unit[1]), unit[0]);
  }

  function showTime(time) {
    const at = new Date(time.dateTime);
    if (!time.dateTime.includes("T") || isNaN(at)) return;
    const local = at.toLocaleString("sv"); // as the pages write times: 2026-11-21 02:30:00
    // The server says how long ago some times were, with the time itself in the title.
    time.dataset.says ??= time.title ? "relative" : ABSOLUTE.test(time.textContent) ? "absolute" : "";
    // What the server says is over is over, also if the reader's clock is behind.
    time.dataset.over ??= time.dataset.says !== "relative" || /^(in |any)/.test(time.textContent) ? "" : "over";
    const words = relative(time.dataset.over ? Math.min(at, Date.now()) : at);
    if (time.dataset.says === "relative") time.textContent = words;
    if (time.dataset.says === "absolute") time.textContent = local.slice(0, time.textContent.length);
    const utc = at.toISOString().slice(0, 19).replace("T", " ");
    time.title = `${local} (${utc} UTC), ${words}`;
  }

  function offerCopy(wanted) {
    const text = wanted.textContent;
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copier", textContent: "Copy" });
    button.addEventListener("click", async () => {
      if (navigator.clipboard) await navigator.clipboard.writeText(text);
      else { // by http, which has no clipboard
        getSelection().selectAllChildren(wanted);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    if (wanted.localName === "pre") {
      const box = Object.assign(document.createElement("div"), { className: "copies" });
      wanted.replaceWith(box);
      box.append(button, wanted);
    }
    else (wanted.closest("a") ?? wanted).after(" ", button);
  }

  function show(root) {
    if (root.localName === "time") showTime(root);
    root.querySelectorAll("time").forEach(showTime);
  }

  document.querySelectorAll(".copy").forEach(offerCopy);
  // The answer to a second click would replace that to the first, which may show a secret just once.
  const sent = new WeakMap(); // when each form was sent last, in milliseconds
  document.addEventListener("submit", (event) => {
    if (event.timeStamp - sent.get(event.target) < 1000) event.preventDefault();
    else sent.set(event.target, event.timeStamp);
  });
  // What the tab keeps belongs to a session: where people sign in, there is none any more.
  const leaving = '.viewer form, form:has([value="remove-account"])';
  document.querySelectorAll(leaving).forEach((form) => form.addEventListener("submit", () => sessionStorage.clear()));
  if (document.querySelector('form[action="/signin"]')) sessionStorage.clear();
  show(document);
  setInterval(() => show(document), 60000);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.querySelectorAll(".zone").forEach((said) => { said.textContent = `Times are in ${zone}.`; });
  // Scripts add lines to lists that are open.
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const node of addedNodes) if (node.nodeType === Node.ELEMENT_NODE) show(node);
  }).observe(document.body, { childList: true, subtree: true });
})();
