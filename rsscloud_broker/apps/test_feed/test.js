"use strict";
// Counts the seconds to the next item on the page of the test feed, and then shows the item.
(() => {
  const PAUSE = 1000; // milliseconds until the page is asked for once more
  let end = 0;

  function start() {
    const left = Number(document.getElementById("countdown")?.dataset.left);
    end = performance.now() + left * 1000;
  }

  function inWords(seconds) {
    const minutes = Math.floor(seconds / 60);
    const rest = String(seconds % 60).padStart(2, "0");
    return minutes ? `(in ${minutes}:${rest} minutes)` : `(in ${seconds} s)`;
  }

  async function renew() {
    try {
      const answer = await fetch(location.pathname, { cache: "no-cache" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const news = answer.ok && page.getElementById("news");
      if (news) {
        document.getElementById("news").replaceChildren(...news.childNodes);
        start();
      }
    } catch {
      // The broker cannot be reached now; it is asked again.
    }
    tick();
  }

  function tick() {
    const countdown = document.getElementById("countdown");
    if (!countdown) return;
    const left = end - performance.now();
    countdown.textContent = left > 0 ? inWords(Math.ceil(left / 1000)) : "(now)";
    if (left > 0) setTimeout(tick, left % 1000 || 1000);
    else setTimeout(renew, PAUSE);
  }

  start();
  tick();
})();
