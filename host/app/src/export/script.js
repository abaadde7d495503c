// Comfort only: without this script the page shows all branches, one after the other.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");

  const THEMES = ["auto", "light", "dark"];
  const KEY = "wharf-export-theme";
  let theme = "auto";
  try {
    const stored = localStorage.getItem(KEY);
    if (THEMES.includes(stored)) theme = stored;
  } catch {
    // Some browsers give local files no storage.
  }
  const applyTheme = () => {
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
  };
  applyTheme();

  document.addEventListener("DOMContentLoaded", () => {
    const byId = (id) => document.getElementById(id);

    // Branches.
    const segments = new Map();
    for (const segment of document.querySelectorAll(".seg")) {
      segments.set(segment.dataset.seg, segment);
    }
    const current = [...segments.values()].filter((segment) => segment.classList.contains("on"));
    const outline = new Map();
    for (const list of document.querySelectorAll("#outline ol[data-seg]")) {
      outline.set(list.dataset.seg, list);
    }
    let shown = new Set();

    const show = (path) => {
      const next = new Set(path);
      for (const segment of shown) {
        if (!next.has(segment)) segment.classList.remove("on");
      }
      for (const segment of next) segment.classList.add("on");
      shown = next;
      for (const [number, list] of outline) {
        list.classList.toggle("on", next.has(segments.get(number)));
      }
      for (const way of document.querySelectorAll(".forks li")) {
        const here = next.has(segments.get(way.dataset.to));
        if (here) way.setAttribute("aria-current", "true");
        else way.removeAttribute("aria-current");
      }
      const last = current[current.length - 1];
      byId("elsewhere").hidden = next.size === current.length && (!last || next.has(last));
    };

    // The whole branch that goes through a segment.
    const branchThrough = (segment) => {
      const path = [];
      for (let at = segment; at; at = segments.get(at.dataset.prev)) path.push(at);
      path.reverse();
      const onCurrent = current.includes(segment);
      for (let at = segments.get(segment.dataset.next); at; at = segments.get(at.dataset.next)) {
        if (onCurrent && !current.includes(at)) break;
        path.push(at);
      }
      return path;
    };

    const openAround = (element) => {
      for (let at = element.closest("details"); at; at = at.parentElement.closest("details")) {
        at.open = true;
      }
    };

    const scrollTo = (element, block) => {
      element.scrollIntoView({ block });
      // What is not laid out yet has an estimated height.
      requestAnimationFrame(() => element.scrollIntoView({ block }));
    };

    const reveal = () => {
      const id = location.hash.slice(1);
      if (id === "") {
        show(current);
        return;
      }
      const element = byId(id);
      const segment = element && element.closest(".seg");
      if (!segment) return;
      endSearch();
      if (!shown.has(segment)) show(branchThrough(segment));
      openAround(element);
      scrollTo(element, "start");
    };

    // Search.
    const search = byId("search");
    const found = byId("found");
    const nextHit = byId("search-next");
    const highlights = window.Highlight && window.CSS && CSS.highlights;
    const MAX_MARKED = 2000;
    let hits = [];
    let at = -1;
    let timer = 0;

    const matches = (element, text, limit) => {
      const ranges = [];
      const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node && ranges.length < limit; node = walker.nextNode()) {
        const lower = node.data.toLowerCase();
        // Rarely lower case has another length; then there is nothing to mark.
        if (lower.length !== node.data.length) continue;
        let from = lower.indexOf(text);
        while (from >= 0 && ranges.length < limit) {
          const range = document.createRange();
          range.setStart(node, from);
          range.setEnd(node, from + text.length);
          ranges.push(range);
          from = lower.indexOf(text, from + text.length);
        }
      }
      return ranges;
    };

    const runSearch = () => {
      const text = search.value.trim().toLowerCase();
      if (highlights) highlights.delete("hit");
      hits = [];
      at = -1;
      root.classList.toggle("searching", text !== "");
      nextHit.hidden = text === "";
      found.textContent = "";
      if (text === "") return;
      for (const [, segment] of segments) {
        let any = false;
        for (const entry of segment.querySelectorAll(":scope > .e")) {
          const hit = entry.textContent.toLowerCase().includes(text);
          entry.classList.toggle("hit", hit);
          if (hit) {
            hits.push(entry);
            any = true;
          }
        }
        segment.classList.toggle("has-hit", any);
      }
      found.textContent = hits.length === 1 ? "1 entry" : `${hits.length} entries`;
      if (highlights) {
        const ranges = [];
        for (const entry of hits) {
          if (ranges.length >= MAX_MARKED) break;
          ranges.push(...matches(entry, text, MAX_MARKED - ranges.length));
        }
        highlights.set("hit", new Highlight(...ranges));
      }
    };

    const endSearch = () => {
      clearTimeout(timer);
      if (search.value === "" && !root.classList.contains("searching")) return;
      search.value = "";
      runSearch();
    };

    const goToHit = (step) => {
      if (hits.length === 0) return;
      at = (at + step + hits.length) % hits.length;
      const entry = hits[at];
      const [range] = matches(entry, search.value.trim().toLowerCase(), 1);
      const element = range ? range.startContainer.parentElement : entry;
      openAround(element);
      scrollTo(element, "center");
      found.textContent = `${at + 1} of ${hits.length}`;
    };

    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(runSearch, 150);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        clearTimeout(timer);
        if (hits.length === 0) runSearch();
        goToHit(event.shiftKey ? -1 : 1);
        event.preventDefault();
      } else if (event.key === "Escape") {
        endSearch();
        search.blur();
      }
    });
    nextHit.addEventListener("click", () => goToHit(1));

    // Folding.
    const expander = (button, selector, name) => {
      button.addEventListener("click", () => {
        const open = button.getAttribute("aria-pressed") !== "true";
        for (const details of document.querySelectorAll(selector)) details.open = open;
        button.setAttribute("aria-pressed", String(open));
        button.textContent = `${open ? "Fold" : "Expand"} ${name}`;
      });
    };
    expander(byId("expand-tools"), "details.tool", "tools");
    expander(byId("expand-thinking"), "details.thinking", "thinking");
    if (!document.querySelector("details.thinking")) byId("expand-thinking").hidden = true;
    if (!document.querySelector("details.tool")) byId("expand-tools").hidden = true;

    // Theme.
    const themeButton = byId("theme");
    const nameTheme = () => {
      themeButton.textContent = `Theme: ${theme}`;
    };
    nameTheme();
    themeButton.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      applyTheme();
      nameTheme();
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // It holds until the page is closed.
      }
    });

    // The outline covers a narrow screen, so it is closed there until asked for.
    const narrow = window.matchMedia("(max-width: 60rem)");
    const outlinePane = byId("outline");
    const fitOutline = () => {
      outlinePane.hidden = narrow.matches;
    };
    fitOutline();
    narrow.addEventListener("change", fitOutline);
    byId("show-outline").addEventListener("click", () => {
      outlinePane.hidden = !outlinePane.hidden;
      if (!outlinePane.hidden) outlinePane.scrollIntoView({ block: "start" });
    });

    // Links.
    const toast = byId("toast");
    let toastTimer = 0;
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element && event.target.closest("a[href^='#']");
      if (!link) return;
      if (narrow.matches && link.closest("#outline")) outlinePane.hidden = true;
      // The same link again, or back to the current branch: no hash changes.
      if (link.hash === location.hash) setTimeout(reveal, 0);
      if (!link.classList.contains("anchor") || !navigator.clipboard) return;
      const url = new URL(link.getAttribute("href"), location.href).href;
      navigator.clipboard.writeText(url).then(
        () => {
          toast.textContent = "Link copied";
          toast.hidden = false;
          clearTimeout(toastTimer);
          toastTimer = setTimeout(() => {
            toast.hidden = true;
          }, 1500);
        },
        () => {},
      );
    });

    // Keys.
    const step = (by) => {
      const entries = [...document.querySelectorAll(".seg.on > .e:not(.note)")].filter(
        (entry) => entry.offsetParent !== null,
      );
      const TOP = 72; // px, the height of the toolbar and a little more
      let low = 0;
      let high = entries.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (entries[middle].getBoundingClientRect().top > TOP) high = middle;
        else low = middle + 1;
      }
      // `low` is the first entry below the toolbar.
      const to = entries[by > 0 ? low : low - 2];
      if (to) scrollTo(to, "start");
      else if (by < 0) window.scrollTo(0, 0);
    };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target;
      if (target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (event.key === "j") step(1);
      else if (event.key === "k") step(-1);
      else if (event.key === "Escape") endSearch();
      else if (event.key === "/") {
        event.preventDefault();
        search.focus();
      }
    });

    show(current);
    window.addEventListener("hashchange", reveal);
    if (location.hash !== "") reveal();
    root.dataset.ready = "true";
  });
})();
