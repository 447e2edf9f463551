"use strict";
// Makes the form for a message comfortable: a live count, a key to send it, an outline that is
// edited by Tab, and keeping at the server what is being typed.  Without it everything works too.
(() => {
  const form = document.getElementById("message");
  if (!form) return;
  const text = document.getElementById("text");
  const outline = document.getElementById("outline");

  // --- the count
  const most = Number(text.dataset.most);
  const left = document.getElementById("left");
  const warning = document.getElementById("warning");
  const segmenter = window.Intl && Intl.Segmenter
    ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null;

  function length(given) {
    const tidied = given.trim();
    if (!segmenter) return Array.from(tidied).length; // code points: near enough
    let number = 0;
    for (const each of segmenter.segment(tidied)) number += each ? 1 : 0;
    return number;
  }

  function count() {
    const rest = most - length(text.value);
    const over = rest < 0;
    const number = Math.abs(rest);
    const noun = number === 1 ? "character" : "characters";
    left.textContent = over ? `${number} ${noun} too many` : `${number} ${noun} left`;
    left.classList.toggle("over", over);
    // Screen readers hear of it when it matters, and not at every key.
    const said = over ? `The message is too long by ${number} ${noun}`
      : rest <= 10 ? `${number} ${noun} left` : "";
    if (warning.textContent !== said) warning.textContent = said;
  }
  text.addEventListener("input", count);
  count();

  // --- sending by the keyboard
  const post = form.querySelector('button[value="post"]');
  document.getElementById("send-key").hidden = false;
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit(post);
  });

  // --- categories: completes the last of several
  const categories = form.elements.namedItem("categories");
  const list = document.getElementById("categories");
  const known = Array.from(list.options, (each) => each.value);
  categories.addEventListener("input", () => {
    const comma = categories.value.lastIndexOf(",");
    const before = categories.value.slice(0, comma + 1);
    const used = new Set(before.split(",").map((each) => each.trim()));
    list.replaceChildren(...known.filter((each) => !used.has(each)).map((each) => {
      const option = document.createElement("option");
      option.value = before ? `${before} ${each}` : each;
      return option;
    }));
  });

  // --- the outline
  const LEVEL = "  ";
  // Tab indents only once somebody works in the field.  Who only passes by it, or has pressed Escape,
  // leaves it by Tab.
  let working = false;
  document.getElementById("outline-buttons").hidden = false;
  document.getElementById("outline-keys").hidden = false;

  // The lines that are selected: where the first begins, and where the last ends.
  function selectedLines() {
    const value = outline.value;
    const start = value.lastIndexOf("\n", outline.selectionStart - 1) + 1;
    let end = value.indexOf("\n", Math.max(outline.selectionEnd - (
      outline.selectionEnd > outline.selectionStart ? 1 : 0), start));
    if (end < 0) end = value.length;
    return [start, end];
  }

  // Puts lines in place of others, and keeps them selected as far as they were.
  function replace(start, end, made, caret) {
    outline.setRangeText(made, start, end, "end");
    outline.setSelectionRange(caret[0], caret[1]);
    outline.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function shift(change) {
    const [start, end] = selectedLines();
    const lines = outline.value.slice(start, end).split("\n");
    const made = lines.map(change);
    const first = made[0].length - lines[0].length;
    const all = made.join("\n").length - lines.join("\n").length;
    const from = Math.max(start, outline.selectionStart + first);
    replace(start, end, made.join("\n"), [from, Math.max(from, outline.selectionEnd + all)]);
  }
  const indent = () => shift((line) => LEVEL + line);
  const outdent = () => shift((line) => line.replace(/^(\t| {1,2})/, ""));

  function move(by) {
    const [start, end] = selectedLines();
    const value = outline.value;
    if (by < 0 ? start === 0 : end === value.length) return;
    const from = by < 0 ? value.lastIndexOf("\n", start - 2) + 1 : start;
    let to = by < 0 ? end : value.indexOf("\n", end + 1);
    if (to < 0) to = value.length;
    const block = value.slice(start, end);
    const other = by < 0 ? value.slice(from, start - 1) : value.slice(end + 1, to);
    const moved = by < 0 ? -(other.length + 1) : other.length + 1;
    const caret = [outline.selectionStart + moved, outline.selectionEnd + moved];
    replace(from, to, by < 0 ? `${block}\n${other}` : `${other}\n${block}`, caret);
  }

  outline.addEventListener("keydown", (event) => {
    const plain = !event.ctrlKey && !event.metaKey;
    if (event.key === "Escape") working = false;
    else if (event.key === "Tab" && plain && !event.altKey && working) {
      event.preventDefault();
      if (event.shiftKey) outdent();
      else indent();
    } else if (event.altKey && plain && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      move(event.key === "ArrowUp" ? -1 : 1);
    } else if (event.key === "Enter" && plain && !event.shiftKey && !event.isComposing) {
      const before = outline.value.slice(0, outline.selectionStart);
      const blanks = /^[ \t]*/.exec(before.slice(before.lastIndexOf("\n") + 1))[0];
      event.preventDefault();
      outline.setRangeText(`\n${blanks}`, outline.selectionStart, outline.selectionEnd, "end");
      outline.dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (!["Escape", "Tab", "Shift"].includes(event.key)) working = true;
  });
  outline.addEventListener("pointerdown", () => { working = true; });
  outline.addEventListener("blur", () => { working = false; });
  for (const [name, act] of [["indent", indent], ["outdent", outdent],
    ["up", () => move(-1)], ["down", () => move(1)]]) {
    document.getElementById(name).addEventListener("click", () => {
      act();
      outline.focus();
    });
  }

  // --- keeping what is typed
  const PAUSE = 1000; // milliseconds without a key
  const FIELDS = ["text", "title", "link", "enclosure", "enclosure_text", "categories", "outline"];
  const state = document.getElementById("kept");
  let timer = 0;
  let asking = null; // what stops the request that is under way

  function body() {
    const made = new URLSearchParams();
    for (const name of ["csrf", "id", ...FIELDS]) made.set(name, form.elements.namedItem(name).value);
    return made;
  }

  // The tab keeps it until the server has it.  The form's key ends with the session: nobody else is
  // shown what is kept by it.
  const KEY = ["csrf", "id"].map((name) => form.elements.namedItem(name).value).join(" ");

  async function keep() {
    if (asking) asking.abort();
    asking = new AbortController();
    const sent = body();
    try {
      const answer = await fetch("/write/unsent", {
        method: "POST", body: sent, signal: asking.signal,
      });
      const said = await answer.json();
      if (said.kept && sessionStorage.getItem(KEY) === String(sent)) sessionStorage.removeItem(KEY);
      state.textContent = said.kept ? "Kept" : `Not kept: ${said.problem}`;
    } catch (error) {
      if (error.name !== "AbortError") state.textContent = "Kept in this tab only: the broker does not answer.";
    }
  }

  form.addEventListener("input", (event) => {
    if (!FIELDS.includes(event.target.name)) return;
    if (state.textContent === "Kept") state.textContent = "";
    sessionStorage.setItem(KEY, body());
    clearTimeout(timer);
    timer = setTimeout(keep, PAUSE);
  });
  // What is sent, or discarded, is not to be kept after that.
  function stopKeeping() {
    clearTimeout(timer);
    timer = 0;
    if (asking) asking.abort();
  }
  form.addEventListener("submit", () => {
    sessionStorage.setItem("sent", KEY);
    stopKeeping();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "hidden" || !timer) return;
    clearTimeout(timer);
    timer = 0;
    navigator.sendBeacon("/write/unsent", body());
  });

  // A page that says what was done says also that the server has what was sent; one that refuses or
  // shows it has it in the form.
  const sent = sessionStorage.getItem("sent");
  const query = new URLSearchParams(location.search);
  if (sent && (query.has("done")
    || (sent === KEY && document.querySelector(".preview, .notice.error")))) {
    sessionStorage.removeItem(sent);
    sessionStorage.removeItem("sent");
  }
  // It says so once: what is sent from it may not arrive.
  for (const name of ["done", "about"]) query.delete(name);
  history.replaceState(null, "", `${location.pathname}?${query}`.replace(/\?$/, "") + location.hash);
  document.querySelector("form.restored")?.addEventListener("submit", () => {
    sessionStorage.removeItem(KEY);
    stopKeeping();
  });
  for (const [name, value] of new URLSearchParams(sessionStorage.getItem(KEY) ?? "")) {
    const field = form.elements.namedItem(name);
    if (!FIELDS.includes(name) || !value || field.value === value) continue;
    field.value = value;
    field.closest("details")?.setAttribute("open", "");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
})();
