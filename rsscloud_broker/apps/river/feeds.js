"use strict";
// Shows how far the broker is with the feeds of an import, without loading the page again.
(() => {
  const PAUSE = 2000; // milliseconds
  const find = (page, id) => page.getElementById(id);
  async function look() {
    const answer = await fetch("/river/feeds");
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["feeds", "progress"]) {
      const [old, made] = [find(document, id), find(page, id)];
      if (made) old.replaceWith(made);
      else old.remove();
    }
    wait();
  }
  // Nothing is replaced while somebody is about to press a button in it.
  const isUsed = (id) => find(document, id).contains(document.activeElement);
  const wait = () => {
    if (find(document, "progress"))
      setTimeout(() => (["feeds", "progress"].some(isUsed) ? wait() : look().catch(wait)), PAUSE);
  };
  wait();
})();
