"use strict";
// Presses the button of a sign-in link, when a person looks at the page.
(() => {
  const form = document.getElementById("link");
  if (!form) return;
  if (document.prerendering) {
    document.addEventListener("prerenderingchange", () => form.requestSubmit(), { once: true });
  } else {
    form.requestSubmit();
  }
})();
