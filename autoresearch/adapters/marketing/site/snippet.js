// For pages that another server renders; served as /snippet.js.
// <script src="https://SITE/snippet.js" data-surface="page"></script> fills every element with data-slot="NAME" with
// the arm's text; a click on, or a submit of, an element with data-goal="NAME" is sent as a conversion.
(function (d, w) {
  "use strict";
  var me = d.currentScript, site = new URL(me.src).origin, surface = me.dataset.surface || "page";
  var hide = d.createElement("style");
  // Texts are hidden until the arm is known, and never longer than a second: a slow answer shows what is there.
  hide.textContent = "[data-slot]{visibility:hidden}";
  d.head.appendChild(hide);
  var shown = false;
  function show() { shown = true; hide.remove(); }
  setTimeout(show, 1000);
  function ready(then) {
    if (d.readyState === "loading") d.addEventListener("DOMContentLoaded", then); else then();
  }
  function track(goal, value) {
    var body = JSON.stringify({ event: goal, properties: { value: value || 0 } });
    fetch(site + "/events", { method: "POST", body: body, credentials: "include", keepalive: true });
  }
  fetch(site + "/assign?expose=1&surface=" + encodeURIComponent(surface), { credentials: "include" })
    .then(function (r) { return r.ok ? r.json() : null; })
    .then(function (a) {
      ready(function () {
        // Assigned units see their arm, late or not: what was counted must have been shown.
        if (a) d.querySelectorAll("[data-slot]").forEach(function (e) {
          var t = a.slots[e.dataset.slot];
          if (t !== undefined) e.textContent = t;
        });
        if (!shown) show();
      });
    }, show);
  ["click", "submit"].forEach(function (kind) {
    d.addEventListener(kind, function (e) {
      var t = e.target.closest && e.target.closest("[data-goal]");
      if (t && (t.tagName === "FORM") === (kind === "submit")) track(t.dataset.goal);
    }, true);
  });
  w.autoresearch = { track: track };
})(document, window);
