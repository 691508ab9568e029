// Keeps an open page up to date: one stream of events, each with a new part of the page.
(() => {
  "use strict";

  const main = document.querySelector("main[data-stream]");
  const link = document.getElementById("link");
  // A browser grants few connections to one server, so a tab that nobody sees gives its own back after a while.
  const HIDDEN_MS = 10000;

  let source = null;
  let seen = null;
  let away = null;

  function say(state, words) {
    if (!link || link.textContent === words) return;
    link.className = `link quiet small ${state}`;
    link.textContent = words;
  }

  // What a reader did to a part must outlive its renewal: what is unfolded, marked, focused and scrolled.
  function remember(part) {
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    return {
      folds: new Map([...part.querySelectorAll("details[id]")].map((one) => [one.id, one.open])),
      marks: [...part.querySelectorAll("input[type=checkbox]:checked")].map((one) => one.id),
      focus: focused && focused.id,
      scrolls: [...part.querySelectorAll("pre, .scroll")].map((one) => [
        one.scrollLeft,
        one.scrollTop,
        one.scrollTop + one.clientHeight >= one.scrollHeight - 4,
      ]),
    };
  }

  function restore(part, kept) {
    for (const [id, open] of kept.folds) {
      const fold = document.getElementById(id);
      if (fold) fold.open = open;
    }
    for (const id of kept.marks) {
      const mark = document.getElementById(id);
      if (mark) mark.checked = true;
    }
    [...part.querySelectorAll("pre, .scroll")].forEach((one, at) => {
      const [left, top, atEnd] = kept.scrolls[at] || [0, 0, true];
      one.scrollLeft = left;
      // A log is followed as long as its reader stays at its end.
      one.scrollTop = one.matches(".log") && atEnd ? one.scrollHeight : top;
    });
    const focus = kept.focus && document.getElementById(kept.focus);
    if (focus) focus.focus({ preventScroll: true });
  }

  function renew(part, html) {
    // A filter in use is the reader's own table: ask for that one, and never under the fingers of somebody who types.
    if (part.id === "table" && (part.hasAttribute("data-filtered") || beingUsed(part))) {
      refetch(part);
      return;
    }
    const kept = remember(part);
    htmx.swap(part, html, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 0 });
    restore(part, kept);
    tick();
  }

  function beingUsed(part) {
    return part.contains(document.activeElement) && document.activeElement.matches("input[type=search], select");
  }

  let asked = null;
  function refetch(part) {
    clearTimeout(asked);
    if (beingUsed(part)) {
      asked = setTimeout(() => refetch(part), 2000);
      return;
    }
    const form = part.querySelector("form.filters");
    const page = part.dataset.page ? `&page=${part.dataset.page}` : "";
    const query = form ? new URLSearchParams(new FormData(form)).toString() : "";
    const kept = remember(part);
    htmx.ajax("GET", `${part.dataset.url}?${query}${page}`, { target: part, swap: "innerHTML" }).then(() => restore(part, kept));
  }

  function listen() {
    const address = new URL(main.dataset.stream, location.href);
    if (seen !== null) address.searchParams.set("seen", seen);
    source = new EventSource(address);
    source.onopen = () => say("on", "live");
    source.onerror = () => say("off", "no connection; trying again");
    for (const part of document.querySelectorAll("[data-part]")) {
      source.addEventListener(part.dataset.part, (event) => {
        seen = event.lastEventId;
        renew(part, event.data);
      });
    }
    if (main.dataset.reloadOn) source.addEventListener(main.dataset.reloadOn, () => location.reload());
  }

  function rest() {
    if (source) source.close();
    source = null;
    say("off", "resting");
  }

  function tick() {
    for (const clock of document.querySelectorAll("[data-since]")) {
      const seconds = Math.max(0, Math.floor(Date.now() / 1000 - Number(clock.dataset.since)));
      const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
      const words = h ? `${h}:${String(m).padStart(2, "0")}:${String(s).padStart(2, "0")}` : `${m}:${String(s).padStart(2, "0")}`;
      if (clock.textContent !== words) clock.textContent = words;
    }
  }

  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.target.closest && event.target.closest("form[data-clear]");
    if (form && event.detail.successful) form.reset();
  });

  document.addEventListener("htmx:configRequest", (event) => {
    const part = document.getElementById("table");
    const address = new URL(event.detail.path, location.href);
    if (!part || address.pathname !== part.dataset.url) return;
    // Remember what is looked at, so that news of the table is news of this one.
    const wanted = new URLSearchParams(address.search);
    for (const [name, text] of Object.entries(event.detail.parameters || {})) wanted.set(name, text);
    const page = wanted.get("page") || "";
    const plain = ["outcome", "category", "lane", "text"].every((name) => !wanted.get(name));
    const first = page === "" || page === "1";
    part.dataset.page = first ? "" : page;
    part.toggleAttribute("data-filtered", !(plain && first && (wanted.get("order") || "newest") === "newest"));
  });

  document.addEventListener("visibilitychange", () => {
    clearTimeout(away);
    if (document.hidden) away = setTimeout(rest, HIDDEN_MS);
    else if (main && !source) listen();
  });

  if (main) {
    listen();
    tick();
    setInterval(tick, 1000);
    for (const log of document.querySelectorAll("pre.log")) log.scrollTop = log.scrollHeight;
  }
})();
