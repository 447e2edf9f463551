"use strict";
// Puts new items into the river as they arrive, and leads from item to item by keys.  The broker
// makes the HTML of an item, as it does for the page itself.
(() => {
  const MOST = 300; // items on the page, and items that wait until somebody wants to see them
  const AT_TOP = 200; // pixels: who has scrolled further reads, and nothing may jump
  const HIDDEN_FOR = 60000; // milliseconds after which a page that nobody sees needs no stream
  const river = document.getElementById("river");
  if (!river) return;
  const state = document.getElementById("river-state");
  const news = document.getElementById("river-news");
  const show = document.getElementById("river-show");
  const said = document.getElementById("river-said");
  const left = document.getElementById("river-left");
  const again = document.getElementById("river-again");
  const keys = document.getElementById("river-keys");
  const title = document.title;
  let waiting = []; // sections, oldest first
  let dropped = 0; // how many waiting items gave way to newer ones
  let unseen = Infinity; // the first item that arrived and is on the page neither now nor later
  let newest = Number(river.dataset.newest);
  let marked = newest; // the item up to which the broker has been notified that all were seen
  let isBehind = false; // whether the broker has left items out
  let source = null;
  let timer = 0;

  function say(text, isToLoad = false) {
    if (state.textContent !== text) state.textContent = text;
    again.hidden = !isToLoad;
  }

  function counted(number) {
    return number === 1 ? "1 new item" : `${number} new items`;
  }

  // --- items

  function made(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  function put(section) {
    document.getElementById("river-nothing")?.remove();
    const first = river.firstElementChild;
    const isSame = first?.dataset.feed === section.dataset.feed
      && first.querySelector(".river-item.new");
    if (isSame) first.querySelector("h2").after(...section.querySelectorAll(".river-item"));
    else river.prepend(section);
    const items = river.querySelectorAll(".river-item");
    for (let index = items.length - 1; index >= MOST; index -= 1) {
      const feed = items[index].closest(".river-feed");
      items[index].remove();
      const last = [...feed.querySelectorAll(".river-item")].pop();
      if (last) feed.querySelector("button.stop").value = idOf(last) - 1;
      else feed.remove();
    }
    if (items.length > MOST) leadOn(idOf(items[MOST - 1])); // so that none is left out
  }

  function idOf(item) {
    return Number(item.id.replace("item-", ""));
  }

  // Have the link to older items begin before an item.
  function leadOn(id) {
    let pages = document.querySelector(".pages");
    if (!pages) {
      pages = document.createElement("nav");
      pages.className = "pages";
      pages.setAttribute("aria-label", "Older and newer items");
      left.after(pages);
    }
    let older = pages.querySelector("a[rel=next]");
    if (!older) {
      older = document.createElement("a");
      older.rel = "next";
      older.textContent = "Older items";
      pages.append(older);
    }
    older.href = `/river?before=${id}`;
  }

  function count() {
    const number = waiting.length + dropped;
    show.textContent = counted(number);
    document.title = number ? `(${number}) ${title}` : title;
    news.hidden = number === 0;
    if (number) said.textContent = counted(number);
  }

  function showWaiting(jump) {
    if (dropped) tellLeft(dropped, idOf(waiting[0].querySelector(".river-item")));
    waiting.forEach(put);
    waiting = [];
    dropped = 0;
    count();
    seen();
    if (!jump) return;
    window.scrollTo({ top: 0 });
    river.querySelector(".river-item")?.focus({ preventScroll: true });
  }

  // Say that items before another one are not here.
  function tellLeft(number, before) {
    const link = left.querySelector("a");
    left.querySelector("span").textContent = number === 1
      ? "1 new item does not fit on this page."
      : `${number} new items do not fit on this page.`;
    link.href = `/river?before=${before}`;
    left.hidden = false;
    said.textContent = left.textContent;
  }

  function isReading() {
    return document.hidden || window.scrollY > AT_TOP || river.contains(document.activeElement);
  }

  function take(event) {
    const item = JSON.parse(event.data);
    const is = (section) => section.querySelector(`#item-${item.id}`);
    if (document.getElementById(`item-${item.id}`) || waiting.some(is)) return;
    newest = Math.max(newest, item.id);
    waiting.push(made(item.html));
    if (waiting.length > MOST) {
      unseen = Math.min(unseen, idOf(waiting.shift().querySelector(".river-item")));
      dropped += 1;
    }
    if (isReading()) {
      count();
    } else {
      said.textContent = "1 new item";
      showWaiting(false);
    }
  }

  // Tell the broker which items were on the page, up to the first that was not.
  function seen() {
    if (document.hidden) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const first = river.querySelector(".river-item");
      const id = Math.min(first ? idOf(first) : 0, unseen - 1);
      if (id <= marked) return;
      marked = id;
      const form = new URLSearchParams({ csrf: river.dataset.csrf, id });
      fetch("/river/seen", { method: "POST", body: form, keepalive: true }).catch(() => {});
    }, 1000);
  }

  // --- the stream

  function sayBehind() {
    say("There are more new items than fit here.", true);
  }

  function connect() {
    if (source) return;
    source = new EventSource(`/river/events?after=${newest}`);
    source.onopen = () => (isBehind ? sayBehind() : say("New items appear as they arrive"));
    source.onmessage = take;
    source.addEventListener("gap", () => {
      unseen = Math.min(unseen, newest + 1);
      isBehind = true;
      sayBehind();
    });
    source.onerror = () => {
      const over = source.readyState === EventSource.CLOSED;
      say(over ? "New items do not appear any more." : "Connecting again…", over);
    };
  }

  if (river.dataset.stream && window.EventSource) {
    let hiding = 0;
    document.getElementById("river-live").hidden = false;
    connect();
    show.addEventListener("click", () => showWaiting(true));
    window.addEventListener("scroll", () => {
      if (waiting.length && window.scrollY < 10 && !isReading()) showWaiting(false);
    }, { passive: true });
    // A browser has few connections to a host: pages that nobody sees must not take them all.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(hiding);
      if (document.hidden) {
        hiding = setTimeout(() => {
          source?.close();
          source = null;
        }, HIDDEN_FOR);
      } else {
        connect();
        if (waiting.length && !isReading()) showWaiting(false);
      }
    });
  }

  // --- keys

  function stored(value) {
    try {
      if (value !== undefined) localStorage.setItem("river-keys", value);
      return localStorage.getItem("river-keys");
    } catch {
      return null; // the browser stores nothing for this site
    }
  }

  function go(step) {
    const items = [...river.querySelectorAll(".river-item")];
    const at = items.indexOf(document.activeElement?.closest(".river-item"));
    const next = items[Math.min(Math.max(at + step, 0), items.length - 1)];
    next?.focus({ preventScroll: true });
    next?.scrollIntoView({ block: "nearest" });
  }

  const actions = {
    j: () => go(1),
    k: () => go(-1),
    n: () => waiting.length && showWaiting(true),
    Enter: (event) => {
      const item = event.target.closest?.(".river-item");
      if (event.target !== item) return; // a link or a button does what it does
      item.querySelector("h3 a, .where a, .text a")?.click();
    },
  };

  keys.checked = stored() !== "off";
  keys.addEventListener("change", () => stored(keys.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (!keys.checked || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    actions[event.key]?.(event);
  });
})();
