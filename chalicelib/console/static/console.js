// What the pages do better with script; each of them works without.
(() => {
  "use strict";
  const root = document.documentElement;
  const kept = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } },
                 set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* then it holds for this page */ } },
                 here: (k) => { try { return sessionStorage.getItem(k) === "true"; } catch { return false; } },
                 setHere: (k, v) => { try { sessionStorage.setItem(k, v); } catch { /* then step by step */ } } };
  root.classList.add("js");
  if (kept.get("theme")) root.dataset.theme = kept.get("theme");
  let zone = kept.get("zone") || "utc";
  let polls = 0, sent = null;

  // A form whose answer is awaited is not sent again by another click.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target === sent) event.preventDefault();
    if (event.target.hasAttribute("data-begins")) kept.setHere(`go:${location.pathname}`, true);
    sent = event.target; setTimeout(() => { sent = null; }, 10000);
  });
  window.addEventListener("pageshow", () => { sent = null; }); // somebody came back to the page

  // Times: the page says them in UTC; here they may be local.
  const local = (text) => {
    const at = new Date(text), two = (n, w = 2) => String(n).padStart(w, "0"), off = -at.getTimezoneOffset();
    return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}:`
      + `${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}${off < 0 ? "-" : "+"}${two(Math.floor(Math.abs(off) / 60))}:${two(Math.abs(off) % 60)}`;
  };
  const here = (text) => zone === "local" ? local(text) : text;
  const ISO = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g;
  const times = (within) => {
    const today = here(new Date().toISOString()).slice(0, 10);
    within.querySelectorAll("time[datetime], text[data-at]").forEach((each) => {
      const shown = here(each.getAttribute("datetime") || each.dataset.at), is = (name) => each.classList.contains(name);
      const clock = is("clock") && (each.dataset.at || shown.startsWith(today));
      const text = is("exact") ? shown : is("day") ? shown.slice(5, 10) : clock ? shown.slice(11, 16) : is("clock") ? shown.slice(5, 16).replace("T", " ") : "";
      if (text) each.textContent = text;
      if (!is("exact") && each.title !== undefined) each.title = shown;
    });
    within.querySelectorAll("svg title").forEach((each) => {
      each.dataset.utc = each.dataset.utc || each.textContent;
      each.textContent = each.dataset.utc.replace(ISO, here);
    });
    // Fields for times are in the same zone; what is sent is UTC.
    within.querySelectorAll("input[type=datetime-local]").forEach((each) => {
      const was = each.dataset.zone || "utc", label = each.closest("label");
      if (was !== zone && each.value) each.value = zone === "local" ? local(`${each.value}Z`).slice(0, each.value.length) : utc(each.value);
      each.dataset.zone = zone;
      label.dataset.text = label.dataset.text || label.firstChild.textContent;
      label.firstChild.textContent = zone === "local" ? label.dataset.text.replace("UTC", root.dataset.local) : label.dataset.text;
    });
  };
  const utc = (text) => new Date(text).toISOString().slice(0, text.length);
  document.addEventListener("formdata", (event) => event.target.querySelectorAll("input[type=datetime-local]").forEach((each) => {
    if (each.value && each.dataset.zone === "local") event.formData.set(each.name, utc(each.value));
  }));

  // Charts: the value under the pointer, or step by step by the arrow keys.
  const point = (plot, n) => {
    const values = plot.dataset.values.split(" "), from = Number(plot.dataset.from), step = Number(plot.dataset.step), line = plot.querySelector(".c-at");
    const at = Math.max(0, Math.min(values.length - 1, n)), value = values[at], x = Math.min(100, 100 * (at + 0.5) * step / (Number(plot.dataset.to) - from));
    plot.dataset.n = at;
    line.setAttribute("x1", `${x}%`); line.setAttribute("x2", `${x}%`); line.style.visibility = "visible";
    const text = value === "-" || !value ? "\u2013" : Number(value).toLocaleString("en") + plot.dataset.unit;
    plot.closest("figure").querySelector("output").textContent = `${here(new Date(from + at * step).toISOString()).slice(5, 16).replace("T", " ")}: ${text}`;
  };
  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest && event.target.closest(".plot"), box = plot && plot.getBoundingClientRect();
    if (plot) point(plot, Math.floor((event.clientX - box.left) / box.width * (plot.dataset.to - plot.dataset.from) / plot.dataset.step));
  });
  document.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && event.target.matches(".plot")) point(event.target, Number(event.target.dataset.n || event.target.dataset.values.split(" ").length) + by);
  });

  const forms = (within) => {
    within.querySelectorAll("form[data-typed]").forEach((form) => {
      const field = form.querySelector("input[name=confirm]"), button = form.querySelector("button");
      if (button.disabled) return;
      const look = () => { button.disabled = field.value !== form.dataset.typed; };
      field.addEventListener("input", look); look();
    });
    within.querySelectorAll("input[data-shows]").forEach((field) => {
      const shown = field.form.querySelector("output"), show = () => { shown.textContent = field.value; };
      field.addEventListener("input", show); show();
    });
    within.querySelectorAll("pre > code").forEach((code) => {
      if (!navigator.clipboard || code.parentElement.querySelector(".copy")) return;
      const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: root.dataset.copy });
      button.addEventListener("click", () => navigator.clipboard.writeText(code.textContent).then(() => {
        button.textContent = root.dataset.copied; setTimeout(() => { button.textContent = root.dataset.copy; }, 1200); }));
      code.parentElement.append(button);
    });
  };

  // The moving part comes anew every few seconds: not in a hidden tab, and not under somebody's hands.
  const busy = (live) => {
    const at = document.activeElement;
    return document.hidden || (live.contains(at) && at.matches("input, select, textarea")) || live.querySelector("details[open], input:checked");
  };
  const poll = (live) => { if (window.htmx && !sent && !busy(live)) { polls += 1; window.htmx.trigger(live, "poll"); } };

  // Whoever works by keyboard stays on the line and on the link or button, when the moving part comes anew.
  const whom = ["call", "topic", "group", "consumer", "id", "ids"];
  const nameOf = (each) => each.getAttribute("href") || [each.textContent, ...[...(each.form ? each.form.elements : [])]
    .filter((part) => whom.includes(part.name)).map((part) => part.value)].join("|");
  const reachable = (live, name) => [...live.querySelectorAll("a[href], button, summary")].filter((each) => nameOf(each) === name);
  const lineName = (line) => { const link = line && line.querySelector("a[href]"); return link ? link.getAttribute("href") : ""; };
  let stay = null;
  const leave = (live) => {
    const at = document.activeElement, name = live.contains(at) && at.matches("a[href], button, summary") ? nameOf(at) : "";
    stay = { name, number: name ? reachable(live, name).indexOf(at) : 0, line: lineName(live.querySelector("[data-line].at")) };
  };
  const comeBack = (live) => {
    if (!stay) return;
    if (stay.line) [...live.querySelectorAll("[data-line]")].filter((each) => lineName(each) === stay.line).slice(0, 1).forEach((each) => each.classList.add("at"));
    const same = stay.name ? reachable(live, stay.name) : [];
    if (same.length) same[Math.min(stay.number, same.length - 1)].focus({ preventScroll: true });
    stay = null;
  };

  // A step that may be taken by itself, where somebody wanted that in this tab.
  const goKey = `go:${location.pathname}`;
  let goes = kept.here(goKey) && new URLSearchParams(location.search).has("did"), going = 0;
  const go = () => {
    const form = document.querySelector("form[data-go]"), button = document.querySelector("[data-go-button]");
    if (!button) { kept.setHere(goKey, false); return; }
    button.dataset.start = button.dataset.start || button.textContent;
    button.textContent = goes ? button.dataset.stop : button.dataset.start;
    kept.setHere(goKey, goes);
    clearTimeout(going);
    if (goes && form && !form.querySelector("button").disabled) going = setTimeout(() => form.requestSubmit(), Number(form.dataset.go) * 1000);
  };

  // A message beside its list, where there is room.
  let opener = null;
  const side = (link) => {
    opener = link;
    const panel = document.getElementById("side");
    panel.querySelector("[data-side-link]").href = link.href;
    document.getElementById("side-body").replaceChildren(); // the message before is not this one, should none come
    window.htmx.ajax("GET", link.href, { target: "#side-body", swap: "innerHTML" }).then(() => { panel.hidden = false; times(panel); panel.focus(); });
  };
  const closeSide = () => {
    const panel = document.getElementById("side");
    if (!panel || panel.hidden) return;
    panel.hidden = true;
    const again = opener && [...document.querySelectorAll("a[data-side]")].find((each) => each.href === opener.href);
    if (again) again.focus();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-side]");
    if (link && window.htmx && innerWidth > 1000 && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); side(link); }
    else if (event.target.closest("[data-side-close]")) closeSide();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeSide(); });

  // Keys.
  let first = "";
  const keyed = (keys) => [...document.querySelectorAll("[data-key]")].find((each) => each.dataset.key === keys);
  const step = (by) => {
    const lines = [...document.querySelectorAll("[data-line]")];
    const now = lines.findIndex((each) => each.classList.contains("at"));
    lines.forEach((each) => each.classList.remove("at"));
    const next = lines[Math.max(0, Math.min(lines.length - 1, now + by))];
    if (next) { next.classList.add("at"); next.scrollIntoView({ block: "nearest" }); const link = next.querySelector("a"); if (link) link.focus(); }
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    const keys = first ? `${first} ${event.key}` : event.key;
    first = event.key === "g" && !first ? "g" : "";
    if (event.key === "?") { const help = document.getElementById("keys"); if (help && help.showModal) help.showModal(); }
    else if (!keys.startsWith("g ") && event.key === "j") step(1);
    else if (!keys.startsWith("g ") && event.key === "k") step(-1);
    else {
      const field = keys === "/" && document.querySelector("[role=search] input"), link = keyed(keys);
      if (field || link) event.preventDefault();
      if (field) field.focus(); else if (link) link.click();
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    const live = document.getElementById("live"), zones = document.querySelector("[data-zone-button]");
    const tell = () => { if (zones) zones.textContent = zone === "local" ? zones.dataset.local : "UTC"; times(document); };
    if (zones) zones.addEventListener("click", () => { zone = zone === "local" ? "utc" : "local"; kept.set("zone", zone); tell(); });
    document.querySelectorAll("[data-theme-button]").forEach((each) => each.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark"; kept.set("theme", root.dataset.theme);
    }));
    tell(); forms(document); go();
    document.querySelectorAll("nav [aria-current]").forEach((each) => each.parentElement.scrollTo({ left: each.offsetLeft - each.parentElement.offsetLeft - 40 }));
    document.querySelectorAll("[data-go-button]").forEach((each) => each.addEventListener("click", () => { goes = !goes; go(); }));
    const seconds = live && live.hasAttribute("hx-get") ? Number(live.dataset.poll) : 0;
    if (seconds) {
      setInterval(() => poll(live), seconds * 1000);
      document.addEventListener("visibilitychange", () => poll(live));
    }
    document.body.addEventListener("htmx:afterSwap", (event) => { times(live); forms(live); go(); if (event.detail.target === live) comeBack(live); });
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      if (event.detail.target === live) leave(live);
      if (event.detail.target.id === "side-body") event.detail.shouldSwap = true; // also why there is none
      if (event.detail.xhr.status === 401) { event.detail.shouldSwap = false; location.reload(); } // a session that ended: ask to sign in
    });
    window.headracePolls = () => polls;
  });
})();
