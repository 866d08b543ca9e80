"use strict";
// The explorer's behaviour next to htmx: the question in the URL, the drawing of charts, cells,
// downloads, filters and keys of lists, and the last questions of this browser. Numbers and texts
// are the server's.
(() => {
  const light = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a5195", "#8c564b", "#2f4b7c", "#a05195", "#a3a81e", "#444444"];
  const dark = ["#4aa8e0", "#ff8a3d", "#2fc99a", "#e6a3c9", "#8fd3ff", "#ffc04d", "#b48ccc", "#c99186", "#8ca6dd", "#d58cc8", "#d6d94a", "#bbbbbb"];
  // A colour is the line's in all charts; beyond the last one they come again with another dash.
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const colourOf = ({ colour }) => (isDark.matches ? dark : light)[colour % light.length];
  const dashOf = ({ colour }) => dashes[Math.floor(colour / light.length) % dashes.length];
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.body.dataset.root;
  const recentKey = "asyncfin-questions" + root;
  const form = document.getElementById("question");
  const answer = document.getElementById("answer");
  const tools = document.getElementById("tools");
  const problem = document.getElementById("problem");

  // hx-on attributes are code in HTML: the page has none, so none is ever right.
  document.addEventListener("htmx:before:on:init", (event) => event.preventDefault());

  // The y axis is all that the script words itself. Its texts are exact: what is far below a step is noise.
  function tickTexts(splits, percent, isDivided) {
    const numbers = splits.map((number) => number * (percent || 1));
    const step = Math.min(...numbers.slice(1).map((number, at) => Math.abs(number - numbers[at])));
    return numbers.map((number) => {
      const size = percent || isDivided ? 1 : 10 ** Math.min(12, Math.max(0, 3 * Math.floor(Math.log10(Math.abs(number) || 1) / 3)));
      const digits = Math.ceil(Math.log10(size / (step < Infinity ? step : Math.abs(number) || 1))) + 3;
      const maximumFractionDigits = Math.min(20, Math.max(0, digits));
      const format = new Intl.NumberFormat("en", { notation: percent || isDivided ? "standard" : "compact", maximumFractionDigits });
      return format.format(number) + (percent ? "%" : "");
    });
  }

  function draw(place) {
    const chart = JSON.parse(place.dataset.chart);
    const figure = place.closest("figure");
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--muted").trim();
    const rule = style.getPropertyValue("--line").trim();
    const labels = new Map(chart.ends.map((end, at) => [end, chart.labels[at]]));
    // "" is a fiscal end that a line has no period for: undefined, over which a line goes on. null is a gap.
    const lines = chart.lines.map((line) => line.numbers.map((number) => (number === "" ? undefined : number)));
    const values = [...figure.querySelectorAll(".legend .value")];
    for (const [at, swatch] of figure.querySelectorAll(".legend .swatch").entries()) {
      const [on, off] = dashOf(chart.lines[at]);
      const colour = colourOf(chart.lines[at]);
      swatch.style.background = on ? `repeating-linear-gradient(90deg, ${colour} 0 ${on / 2}px, transparent 0 ${(on + off) / 2}px)` : colour;
    }
    // As wide as its longest text: the page must not move while a cursor reads.
    values.forEach((value, at) => {
      const { readings, latest: last } = chart.lines[at];
      value.style.minWidth = `${Math.min(32, Math.max(last.length, ...readings.map((each) => each.length)))}ch`;
    });
    const latest = () => values.forEach((value, at) => { value.textContent = chart.lines[at].latest; });
    const options = {
      width: place.clientWidth,
      height: 300,
      padding: [12, 32, null, null],
      legend: { show: false },
      cursor: { y: false },
      scales: { x: { time: false } },
      axes: [
        {
          stroke: ink,
          grid: { stroke: rule, width: 1 },
          ticks: { stroke: rule },
          splits: (plot) => {
            const step = Math.max(1, Math.ceil(chart.ends.length / Math.max(1, Math.floor(plot.width / 80))));
            return chart.ends.filter((_, at) => (chart.ends.length - 1 - at) % step === 0);
          },
          values: (_, splits) => splits.map((end) => labels.get(end)),
        },
        {
          stroke: ink,
          grid: { stroke: rule, width: 1 },
          ticks: { stroke: rule },
          // As wide as its longest text, which is never cut.
          size: (_, texts) => 24 + 7.5 * Math.max(5, ...(texts ?? []).map((text) => text.length)),
          values: (_, splits) => {
            const texts = tickTexts(splits.filter((number) => number != null), chart.percent, chart.divided);
            return splits.map((number) => (number == null ? "" : texts.shift()));
          },
        },
      ],
      series: [
        {},
        ...chart.lines.map((line) => ({
          stroke: colourOf(line),
          dash: dashOf(line),
          width: 2,
          points: { show: true, size: 6, fill: colourOf(line) },
        })),
      ],
      hooks: {
        drawAxes: [
          (plot) => {
            // The line between gains and losses, where there are both.
            const { min, max } = plot.scales.y;
            if (!(min < 0 && max > 0)) return;
            const y = Math.round(plot.valToPos(0, "y", true));
            plot.ctx.save();
            plot.ctx.strokeStyle = ink;
            plot.ctx.lineWidth = devicePixelRatio;
            plot.ctx.beginPath();
            plot.ctx.moveTo(plot.bbox.left, y);
            plot.ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
            plot.ctx.stroke();
            plot.ctx.restore();
          },
        ],
        setCursor: [
          (plot) => {
            const index = plot.cursor.idx;
            if (index == null) return latest();
            values.forEach((value, at) => { value.textContent = chart.lines[at].readings[index]; });
          },
        ],
      },
    };
    place.replaceChildren();
    place.plot = new uPlot(options, [chart.ends, ...lines], place);
    latest();
    place.resizes?.disconnect();
    place.resizes = new ResizeObserver(() => place.plot.setSize({ width: place.clientWidth, height: 300 }));
    place.resizes.observe(place);
  }

  function show() {
    for (const place of document.querySelectorAll(".chart")) draw(place);
    for (const table of document.querySelectorAll(".scroll table")) {
      // The latest periods are on the right.
      const box = table.parentElement;
      box.onscroll = () => box.classList.toggle("scrolled", box.scrollLeft > 8);
      if (!table.dataset.seen) box.scrollLeft = table.offsetWidth;
      table.dataset.seen = "yes";
      // One tab stop for all cells: arrow keys move in them.
      if (!table.querySelector('td[tabindex="0"]')) table.querySelector("td")?.setAttribute("tabindex", "0");
    }
  }

  function save(name, blob) {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  // Only the page's own form may request anything: the server refuses all else.
  const send = (path, more = []) => fetch(path, {
    method: "POST",
    headers: { "HX-Request": "true" },
    body: new URLSearchParams([...new FormData(form), ...more]),
  });
  const sentence = (html) => new DOMParser().parseFromString(html, "text/html").body.textContent.trim();

  async function saveCsv() {
    problem.replaceChildren();
    const response = await send(tools.dataset.csv);
    if (!response.ok) return problem.replaceChildren(sentence(await response.text()));
    save("values.csv", await response.blob());
  }

  // An answer without a value has no table.
  const isAnswered = () => answer.querySelector("[name=publication]") !== null;

  let asked = 0;
  async function showView() {
    const mine = (asked += 1);
    problem.replaceChildren();
    const response = await send(tools.dataset.view);
    if (mine !== asked) return;
    const html = await response.text();
    if (mine !== asked) return;
    if (!response.ok) return problem.replaceChildren(sentence(html));
    answer.innerHTML = html;
    show();
    remember();
  }

  const dialog = document.getElementById("cell");
  async function openCell(cell) {
    problem.replaceChildren();
    const row = cell.closest("tr");
    const head = cell.closest("table").tHead.rows[0].cells[cell.cellIndex];
    const which = [["cell_company", row.dataset.company], ["cell_series", row.dataset.series], ["cell_period", head.dataset.period]];
    const response = await send(cell.closest("table").dataset.cell, which);
    const html = await response.text();
    if (!response.ok) return problem.replaceChildren(sentence(html));
    dialog.firstElementChild.innerHTML = html;
    dialog.addEventListener("close", () => cell.focus(), { once: true });
    dialog.showModal();
  }
  document.addEventListener("click", (event) => {
    const cell = event.target.closest?.(".scroll td");
    if (!cell) return;
    stopAt(cell);
    openCell(cell);
  });
  function stopAt(cell) {
    for (const each of cell.closest("table").querySelectorAll('td[tabindex="0"]')) each.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
  }
  document.addEventListener("keydown", (event) => {
    const cell = event.target.closest?.(".scroll td");
    if (!cell) return;
    if (event.key === "Enter") return openCell(cell);
    const rows = [...cell.closest("table").querySelectorAll("tr[data-series]")];
    const at = rows.indexOf(cell.closest("tr"));
    const next = {
      ArrowLeft: cell.previousElementSibling,
      ArrowRight: cell.nextElementSibling,
      ArrowUp: rows[at - 1]?.cells[cell.cellIndex],
      ArrowDown: rows[at + 1]?.cells[cell.cellIndex],
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (next?.tagName === "TD") stopAt(next);
  });

  function url() {
    const fields = [...new FormData(form)].filter(
      ([name, value]) => name !== "search" && name !== "publication" && value !== "",
    );
    return "?" + new URLSearchParams(fields.filter(([, value]) => value !== "original"));
  }

  function recent() {
    try {
      const entries = JSON.parse(localStorage.getItem(recentKey) ?? "[]");
      return entries.filter((each) => typeof each.title === "string" && String(each.path).startsWith(`${root}/company/`));
    } catch {
      return [];
    }
  }
  const rowNames = () => [...document.querySelectorAll(".scroll th[data-row]")].map((head) => JSON.parse(head.dataset.row));
  const companiesShown = () => [...new Set(rowNames().map(([company]) => company))];
  function remember() {
    const path = location.pathname + location.search;
    const names = rowNames();
    if (names.length === 0) return;
    const companies = companiesShown().slice(0, 4).join(", ");
    const labels = [...new Set(names.map(([, label]) => label))].slice(0, 3).join(", ");
    // One entry for a question, however it is viewed.
    const asked = (each) => each.replace(/[?&]unit=[^&]*/g, "");
    const entries = [{ path, title: `${companies}: ${labels}` }, ...recent().filter((each) => asked(each.path) !== asked(path))];
    try { localStorage.setItem(recentKey, JSON.stringify(entries.slice(0, 8))); } catch { /* no storage here */ }
  }

  // One tab stop for each list: arrow keys move in it.
  const stops = (list) => [...list.querySelectorAll("summary, input")].filter((each) => each.offsetParent !== null);
  function rove(list) {
    const all = [...list.querySelectorAll("summary, input")];
    const first = all.find((each) => each === document.activeElement) ?? stops(list).find((each) => each.type === "checkbox") ?? stops(list)[0];
    for (const each of all) each.tabIndex = each === first ? 0 : -1;
  }
  document.addEventListener("keydown", (event) => {
    const list = event.target.closest?.("[data-roving]");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!list || !step) return;
    const reachable = stops(list);
    const next = reachable[reachable.indexOf(event.target) + step];
    event.preventDefault();
    if (!next) return;
    next.focus();
    rove(list);
  });

  function filter(input) {
    const words = input.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    for (const item of document.getElementById(input.dataset.filter).children) {
      const link = item.querySelector("a, input");
      const text = `${item.textContent} ${link?.value ?? link?.href ?? ""}`.toLocaleLowerCase();
      item.hidden = !words.every((word) => text.includes(word)) && !item.querySelector(":checked");
    }
  }
  document.addEventListener("input", (event) => {
    if (event.target.dataset.filter) filter(event.target);
  });

  const last = document.getElementById("recent");
  if (last) {
    const links = recent().map(({ path, title }) => {
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("a"), { href: path, textContent: title }));
      return item;
    });
    last.querySelector("ul").append(...links);
    last.hidden = links.length === 0;
  }
  if (!form) return;

  function showFields() {
    for (const label of form.querySelectorAll("[data-rules]")) {
      label.hidden = !label.dataset.rules.split(" ").includes(form.elements.rule.value);
    }
  }

  const ask = document.getElementById("ask");
  const busy = document.getElementById("busy");
  let waiting = null;
  let hadFocus = false;
  function startProgress() {
    const since = Date.now();
    setBusy(true);
    busy.textContent = "Reading ...";
    waiting = setInterval(() => {
      // Not in the status: a screen reader would read out each second.
      document.getElementById("waited").textContent = `${Math.round((Date.now() - since) / 1000)} s`;
    }, 1000);
  }
  function endProgress(status) {
    clearInterval(waiting);
    waiting = null;
    document.getElementById("waited").textContent = "";
    setBusy(false);
    const cancelled = status.startsWith("error: AbortError");
    busy.textContent = cancelled ? "Cancelled." : status.startsWith("error") ? "The page got no response: is the explorer still running?" : "";
    if (cancelled) ask.focus();
  }
  // The button is not disabled while it reads: it would lose the focus.
  function setBusy(is) {
    ask.setAttribute("aria-disabled", is);
    answer.setAttribute("aria-busy", is);
    document.getElementById("cancel").hidden = document.getElementById("bar").hidden = !is;
  }

  function afterSwap(event) {
    const source = event.detail?.ctx?.sourceElement;
    const name = document.querySelector("#series [data-name]");
    if (name) {
      document.getElementById("name").textContent = name.dataset.name;
      document.title = name.dataset.name + " - asyncfin";
    }
    document.querySelectorAll("[data-roving]").forEach(rove);
    // The button that had the focus is gone.
    if (hadFocus && document.activeElement === document.body) document.getElementById("series").focus();
    hadFocus = false;
    if (source !== form) return;
    tools.hidden = !isAnswered();
    show();
    if (isAnswered()) {
      remember();
      // What it would have cost.
      document.getElementById("cost").replaceChildren();
      const [first, ...others] = companiesShown();
      const compared = others.slice(0, 3).map((each) => [", ", Object.assign(document.createElement("bdi"), { textContent: each })]);
      const more = others.length > 3 ? [` and ${others.length - 3} more`] : [];
      if (first !== undefined) {
        document.getElementById("name").textContent = first;
        document.getElementById("compared-with").replaceChildren(...compared.flat(), ...more);
      }
    }
    answer.focus({ preventScroll: true });
    answer.scrollIntoView({ block: "start" });
  }

  form.addEventListener("change", showFields);
  form.addEventListener("submit", (event) => {
    if (waiting === null) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  document.getElementById("cancel").addEventListener("click", () => form.dispatchEvent(new Event("htmx:abort")));
  document.addEventListener("change", (event) => {
    if (event.target.form !== form || event.target.dataset.filter) return;
    history.replaceState(null, "", url());
    if (!tools.contains(event.target)) return;
    showFields();
    if (isAnswered()) showView();
  });
  document.addEventListener("htmx:before:request", (event) => {
    const source = event.detail.ctx.sourceElement;
    if (source.id === "read") {
      hadFocus = true;
      source.textContent = "Reading the catalogue ...";
    }
    if (source !== form) return;
    history.pushState(null, "", url());
    startProgress();
  });
  document.addEventListener("htmx:finally:request", (event) => {
    const { sourceElement, status } = event.detail.ctx;
    if (sourceElement === form) endProgress(status);
    if (sourceElement.id === "read") sourceElement.textContent = "Read the catalogue";
  });
  document.addEventListener("htmx:after:swap", afterSwap);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
  document.addEventListener("toggle", () => document.querySelectorAll("[data-roving]").forEach(rove), true);
  window.addEventListener("popstate", () => location.reload());
  isDark.addEventListener("change", show);
  document.getElementById("csv").addEventListener("click", () => saveCsv());
  document.querySelectorAll("[data-roving]").forEach(rove);
  showFields();
  show();
  if (isAnswered()) remember();
})();
