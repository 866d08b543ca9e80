"use strict";
// The explorer's behaviour next to htmx: the question in the URL, charts, what is computed from the values
// (growth, index, CSV, PNG), progress, filters and keys of lists, and the last questions of this browser.
(() => {
  const light = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a5195", "#8c564b", "#2f4b7c", "#a05195", "#a3a81e", "#444444"];
  const dark = ["#4aa8e0", "#ff8a3d", "#2fc99a", "#e6a3c9", "#8fd3ff", "#ffc04d", "#b48ccc", "#c99186", "#8ca6dd", "#d58cc8", "#d6d94a", "#bbbbbb"];
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.body.dataset.root;
  const recentKey = "asyncfin-questions" + root;
  const form = document.getElementById("question");
  const answer = document.getElementById("answer");

  // hx-on attributes are code in HTML: the page has none, so none is ever right.
  document.addEventListener("htmx:before:on:init", (event) => event.preventDefault());

  const compact = (number) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format(number);
  const formats = {
    values: compact,
    growth: (number) => `${number > 0 ? "+" : ""}${number.toFixed(1)}%`,
    index: (number) => (number >= 1000 ? compact(number) : number.toFixed(1)),
  };
  const titles = { values: "", growth: "growth over a year, in percent", index: "index, the first value is 100" };

  // What a view shows of numbers of one duration, given by fiscal end: of null or undefined, the same.
  const views = {
    values: (ends, numbers) => numbers,
    growth: (ends, numbers) => {
      const at = new Map(ends.map((end, index) => [end, numbers[index]]));
      return numbers.map((number, index) => {
        if (number == null) return number;
        const before = at.get(ends[index] - 12);
        return before > 0 ? (number / before - 1) * 100 : null;
      });
    },
    index: (ends, numbers) => {
      const first = numbers.find((number) => number > 0);
      return numbers.map((number) => (number == null ? number : first === undefined ? null : (number / first) * 100));
    },
  };
  const view = () => (form ? form.elements.view.value : "values");
  const isLog = () => form && form.elements.scale.value === "log" && view() !== "growth";

  function linesOf(chart) {
    return chart.lines.map((line) => {
      // "" is a fiscal end that a line has no period for: undefined, over which a line goes on. null is a gap.
      const numbers = line.numbers.map((number) => (number === "" ? undefined : number));
      const seen = views[view()](chart.ends, numbers);
      return isLog() ? seen.map((number) => (number <= 0 ? null : number)) : seen;
    });
  }

  function draw(place) {
    const chart = JSON.parse(place.dataset.chart);
    const figure = place.closest("figure");
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--muted").trim();
    const rule = style.getPropertyValue("--line").trim();
    const colours = isDark.matches ? dark : light;
    const labels = new Map(chart.ends.map((end, at) => [end, chart.labels[at]]));
    const lines = linesOf(chart);
    const shown = formats[view()];
    const legend = figure.querySelector(".legend");
    const values = chart.lines.map((line, at) => {
      const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
      swatch.style.background = colours[at % colours.length];
      const value = Object.assign(document.createElement("span"), { className: "value" });
      const item = document.createElement("li");
      item.append(swatch, Object.assign(document.createElement("bdi"), { textContent: line.label }), value);
      return [item, value];
    });
    legend.replaceChildren(...values.map(([item]) => item));
    figure.querySelector(".viewed").textContent = [titles[view()], isLog() ? "logarithmic scale" : ""].filter(Boolean).join(", ");
    const latest = () => {
      for (const [at, [, value]] of values.entries()) {
        const index = lines[at].findLastIndex((number) => number != null);
        value.textContent = index < 0 ? "no value" : `${labels.get(chart.ends[index])}: ${shown(lines[at][index])}`;
      }
    };
    const options = {
      width: place.clientWidth,
      height: 300,
      padding: [12, 32, null, null],
      legend: { show: false },
      cursor: { y: false },
      scales: { x: { time: false }, y: isLog() ? { distr: 3 } : {} },
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
          size: 70,
          values: (_, splits) => splits.map((number) => (number == null ? "" : shown(number))),
        },
      ],
      series: [
        {},
        ...chart.lines.map((line, at) => ({
          stroke: colours[at % colours.length],
          width: 2,
          points: { show: true, size: 6, fill: colours[at % colours.length] },
        })),
      ],
      hooks: {
        drawAxes: [
          (plot) => {
            // The line between gains and losses, where there are both.
            const { min, max } = plot.scales.y;
            if (isLog() || !(min < 0 && max > 0)) return;
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
            for (const [at, [, value]] of values.entries()) {
              const number = lines[at][index];
              value.textContent = `${labels.get(chart.ends[index])}: ${number == null ? "no value" : shown(number)}`;
            }
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

  // The table's numbers in the current view: a list for each row.
  function tableNumbers(table) {
    const columns = JSON.parse(table.dataset.columns);
    const durations = [...new Set(columns.map(([, months]) => months))];
    return [...table.tBodies[0].rows].map((row) => {
      const cells = [...row.querySelectorAll("td")];
      const result = cells.map(() => null);
      for (const months of durations) {
        const of = columns.flatMap(([, each], at) => (each === months ? [at] : []));
        const numbers = of.map((at) => ("number" in cells[at].dataset ? Number(cells[at].dataset.number) : null));
        views[view()](of.map((at) => columns[at][0]), numbers).forEach((number, at) => { result[of[at]] = number; });
      }
      return result;
    });
  }

  function fillTable(table) {
    const numbers = tableNumbers(table);
    // What a value was before is an amount, not a growth.
    table.classList.toggle("computed", view() !== "values");
    for (const [at, row] of [...table.tBodies[0].rows].entries()) {
      for (const [column, cell] of row.querySelectorAll("td").entries()) {
        if (!("number" in cell.dataset)) continue;
        const text = cell.querySelector("bdi") ?? cell.appendChild(document.createElement("bdi"));
        cell.dataset.text ??= text.textContent;
        const number = numbers[at][column];
        const shown = view() === "values" ? cell.dataset.text : number == null ? "" : formats[view()](number);
        text.textContent = shown;
        cell.classList.toggle("negative", view() === "values" ? Number(cell.dataset.number) < 0 : number < 0);
      }
    }
  }

  function show() {
    for (const place of document.querySelectorAll(".chart")) draw(place);
    for (const table of document.querySelectorAll(".scroll table")) {
      if (view() !== "values" || table.dataset.viewed) fillTable(table);
      // The latest periods are on the right.
      const box = table.parentElement;
      box.onscroll = () => box.classList.toggle("scrolled", box.scrollLeft > 8);
      if (!table.dataset.viewed) box.scrollLeft = table.offsetWidth;
      table.dataset.viewed = "yes";
    }
  }

  // A spreadsheet would take such a text for a formula. A number is none: -1e-7.
  const safe = (text) => (/^\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^[+-]?\d+(\.\d+)?$/.test(text) ? `'${text}` : text);
  const quoted = (cell) => (typeof cell === "number" ? String(cell) : `"${safe(cell).replaceAll('"', '""')}"`);

  function save(name, blob) {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  const fileName = (ending) => `${document.getElementById("name").textContent.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60)}.${ending}`;

  function saveCsv() {
    const table = document.querySelector(".scroll table");
    if (!table) return;
    const numbers = tableNumbers(table);
    const head = ["company", "series", "scopes", "version", "description", ...JSON.parse(table.dataset.columns).map(([, , label]) => label)];
    const lines = [...table.tBodies[0].rows].map((row, at) => [
      ...JSON.parse(row.querySelector("th").dataset.row),
      ...numbers[at].map((number) => number ?? ""),
    ]);
    save(fileName("csv"), new Blob([[head, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }));
  }

  // The chart's canvas with its title and legend, which are not on it.
  function savePng() {
    for (const place of document.querySelectorAll(".chart")) {
      const chart = JSON.parse(place.dataset.chart);
      const drawn = place.querySelector("canvas");
      const scale = drawn.width / place.clientWidth;
      const style = getComputedStyle(document.documentElement);
      const colours = isDark.matches ? dark : light;
      const picture = document.createElement("canvas");
      const top = 48 * scale;
      picture.width = drawn.width;
      picture.height = drawn.height + top + (chart.lines.length * 20 + 12) * scale;
      const pen = picture.getContext("2d");
      pen.fillStyle = style.getPropertyValue("--bg").trim();
      pen.fillRect(0, 0, picture.width, picture.height);
      pen.drawImage(drawn, 0, top);
      pen.scale(scale, scale);
      pen.fillStyle = style.getPropertyValue("--fg").trim();
      pen.font = "600 15px system-ui, sans-serif";
      pen.fillText(chart.title || document.getElementById("name").textContent, 12, 20);
      pen.font = "12px system-ui, sans-serif";
      pen.fillText([chart.subtitle, place.closest("figure").querySelector(".viewed").textContent].filter(Boolean).join(" · "), 12, 38);
      for (const [at, line] of chart.lines.entries()) {
        const y = (drawn.height + top) / scale + 12 + at * 20;
        pen.fillStyle = colours[at % colours.length];
        pen.fillRect(12, y - 5, 14, 4);
        pen.fillStyle = style.getPropertyValue("--fg").trim();
        pen.fillText(line.label, 34, y);
      }
      picture.toBlob((blob) => save(fileName("png"), blob));
    }
  }

  function url() {
    const fields = [...new FormData(form)].filter(([name, value]) => name !== "search" && value !== "");
    const shownOnly = { view: "values", scale: "linear", value_version: "original" };
    return "?" + new URLSearchParams(fields.filter(([name, value]) => shownOnly[name] !== value));
  }

  function recent() {
    try {
      const kept = JSON.parse(localStorage.getItem(recentKey) ?? "[]");
      return kept.filter((each) => typeof each.title === "string" && String(each.path).startsWith(`${root}/company/`));
    } catch {
      return [];
    }
  }
  const rowNames = () => [...document.querySelectorAll(".scroll tbody th")].map((head) => JSON.parse(head.dataset.row));
  const companiesShown = () => [...new Set(rowNames().map(([company]) => company))];
  function remember() {
    const path = location.pathname + location.search;
    const names = rowNames();
    const companies = companiesShown().slice(0, 4).join(", ");
    const labels = [...new Set(names.map(([, label]) => label))].slice(0, 3).join(", ");
    // One entry for a question, however it is viewed.
    const asked = (each) => each.replace(/[?&](view|scale)=[^&]*/g, "");
    const kept = [{ path, title: `${companies}: ${labels}` }, ...recent().filter((each) => asked(each.path) !== asked(path))];
    try { localStorage.setItem(recentKey, JSON.stringify(kept.slice(0, 8))); } catch { /* no storage here */ }
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

  function showRuleFields() {
    for (const label of form.querySelectorAll("[data-rules]")) {
      label.hidden = !label.dataset.rules.split(" ").includes(form.elements.rule.value);
    }
  }

  const ask = document.getElementById("ask");
  const busy = document.getElementById("busy");
  let polling = null;
  let hadFocus = false;
  function startProgress() {
    const since = Date.now();
    setBusy(true);
    busy.textContent = "Reading ...";
    polling = setInterval(async () => {
      // Not in the status: a screen reader would read out each second.
      document.getElementById("waited").textContent = `${Math.round((Date.now() - since) / 1000)} s`;
      try {
        const response = await fetch(form.dataset.progress);
        const count = (await response.json()).answered;
        const text = `Reading, ${count} ${count === 1 ? "page" : "pages"} received ...`;
        if (polling !== null && count && busy.textContent !== text) busy.textContent = text;
      } catch { /* requested again in a second */ }
    }, 1000);
  }
  function endProgress(status) {
    clearInterval(polling);
    polling = null;
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
    const has = answer.querySelector(".scroll") !== null;
    document.getElementById("tools").hidden = !has;
    show();
    if (has) {
      remember();
      // What it would have cost.
      document.getElementById("cost").replaceChildren();
      const [first, ...others] = companiesShown();
      const compared = others.slice(0, 3).map((each) => [", ", Object.assign(document.createElement("bdi"), { textContent: each })]);
      const more = others.length > 3 ? [` and ${others.length - 3} more`] : [];
      if (first !== undefined) document.getElementById("compared-with").replaceChildren(...compared.flat(), ...more);
    }
    answer.focus({ preventScroll: true });
    answer.scrollIntoView({ block: "start" });
  }

  form.addEventListener("change", showRuleFields);
  form.addEventListener("submit", (event) => {
    if (polling === null) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  document.getElementById("cancel").addEventListener("click", () => form.dispatchEvent(new Event("htmx:abort")));
  document.addEventListener("change", (event) => {
    if (event.target.form !== form || event.target.dataset.filter) return;
    history.replaceState(null, "", url());
    if (event.target.name !== "view" && event.target.name !== "scale") return;
    show();
    if (answer.querySelector(".scroll")) remember();
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
  document.getElementById("csv").addEventListener("click", saveCsv);
  document.getElementById("png").addEventListener("click", savePng);
  document.querySelectorAll("[data-roving]").forEach(rove);
  showRuleFields();
  show();
  if (answer.querySelector(".scroll")) remember();
})();
