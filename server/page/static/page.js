// Tells the page of changes: sections with hx-trigger="foretool:changed from:body" then read themselves again.
"use strict";
(() => {
  let source = null;
  const isLive = Boolean(document.querySelector('[hx-trigger*="foretool:changed"]'));
  const listen = () => {
    if (!isLive || source || document.hidden) return;
    source = new EventSource(document.body.dataset.events);
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
