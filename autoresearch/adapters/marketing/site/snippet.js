// For pages of another server. <script src="https://SITE/snippet.js" data-surface="page"></script> fills elements with
// data-slot="NAME"; a click on, or submit of, one with data-goal="NAME" is sent as a conversion.
// data-traits="utm_source" passes on parameters of the page's address, for audiences.
(function (d, w) {
  "use strict";
  var me = d.currentScript, site = new URL(me.src).origin, data = me.dataset;
  var ask = new URLSearchParams({ expose: 1, surface: data.surface || "page" });
  new URLSearchParams(location.search).forEach(function (v, n) {
    if ((data.traits || "").split(",").includes(n)) ask.set(n, v);
  });
  var hide = d.createElement("style");
  // Hidden until the arm is known, at most a second.
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
  fetch(site + "/assign?" + ask, { credentials: "include" })
    .then(function (r) { return r.ok ? r.json() : null; })
    .then(function (a) {
      ready(function () {
        // Late or not: what was counted must be shown.
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
