// Tells the page of changes: sections with hx-trigger="foretool:changed from:body" then read themselves again.
"use strict";
(() => {
  let source = null;
  const listen = () => {
    // A section that follows what happens names the events after the state that it shows.
    const live = document.querySelector("[data-events]");
    if (!live || source || document.hidden) return;
    source = new EventSource(live.dataset.events);
    source.addEventListener("changed", () => document.body.dispatchEvent(new CustomEvent("foretool:changed")));
  };
  const rest = () => {
    if (source) source.close();
    source = null;
  };
  // A page that nobody looks at asks for nothing.
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
  addEventListener("pagehide", rest);
  addEventListener("pageshow", listen);
})();
