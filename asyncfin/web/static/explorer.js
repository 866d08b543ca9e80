"use strict";
// The explorer's own behaviour beside htmx: the fields of the chosen rule, the chart, progress, and copying.
(() => {
  const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a5195", "#8c564b", "#2f4b7c", "#a05195", "#bcbd22", "#444444"];

  // hx-on attributes are code in HTML: none of ours has any, so none is ever right.
  document.addEventListener("htmx:before:on:init", (event) => event.preventDefault());

  const form = document.getElementById("question");

  function showRuleFields() {
    const rule = form.elements.rule.value;
    for (const label of form.querySelectorAll("[data-rules]")) {
      label.hidden = !label.dataset.rules.split(" ").includes(rule);
    }
  }

  function compact(number) {
    return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format(number);
  }

  function draw(place) {
    const chart = JSON.parse(place.dataset.chart);
    const labels = new Map(chart.ends.map((end, at) => [end, chart.labels[at]]));
    // "" is a fiscal end that a line has no period for: undefined, over which a line goes on. null is a gap.
    const numbers = chart.lines.map((line) => line.numbers.map((number) => (number === "" ? undefined : number)));
    const options = {
      width: place.clientWidth,
      height: 320,
      padding: [null, 32, null, null],
      scales: { x: { time: false } },
      axes: [
        {
          splits: (plot) => {
            const step = Math.max(1, Math.ceil(chart.ends.length / Math.max(1, Math.floor(plot.width / 80))));
            return chart.ends.filter((_, at) => (chart.ends.length - 1 - at) % step === 0);
          },
          values: (_, splits) => splits.map((end) => labels.get(end)),
        },
        { size: 70, values: (_, splits) => splits.map(compact) },
      ],
      series: [
        { label: "Period", value: (_, end) => labels.get(end) ?? "" },
        ...chart.lines.map((line, at) => ({
          label: line.label,
          stroke: colours[at % colours.length],
          width: 2,
          points: { show: true, size: 6 },
          value: (_, number) => (number == null ? "" : compact(number)),
        })),
      ],
    };
    const plot = new uPlot(options, [chart.ends, ...numbers], place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 320 })).observe(place);
  }

  function drawNew() {
    for (const place of document.querySelectorAll(".chart:not([data-drawn])")) {
      place.dataset.drawn = "";
      draw(place);
    }
    const name = document.querySelector("#series [data-name]");
    if (name) {
      document.getElementById("name").textContent = name.dataset.name;
      document.title = name.dataset.name + " - asyncfin";
      const link = document.querySelector(".companies a[aria-current] bdi");
      if (link) link.textContent = name.dataset.name;
    }
  }

  let polling = null;
  function startProgress() {
    const busy = document.getElementById("busy");
    const since = Date.now();
    busy.textContent = "Asking ...";
    polling = setInterval(async () => {
      const seconds = Math.round((Date.now() - since) / 1000);
      let answered = "";
      try {
        const response = await fetch(form.dataset.progress, { headers: { "HX-Request": "true" } });
        const count = (await response.json()).answered;
        if (count) answered = `, ${count} ${count === 1 ? "query" : "queries"} answered`;
      } catch { /* the next beat tries again */ }
      if (polling !== null) busy.textContent = `Asking for ${seconds} s${answered} ...`;
    }, 1000);
  }
  function endProgress() {
    clearInterval(polling);
    polling = null;
    document.getElementById("busy").textContent = "";
  }

  if (form) {
    form.addEventListener("change", showRuleFields);
    showRuleFields();
    document.addEventListener("htmx:before:request", (event) => {
      if (event.detail.ctx.sourceElement === form) startProgress();
    });
    document.addEventListener("htmx:finally:request", (event) => {
      if (event.detail.ctx.sourceElement === form) endProgress();
    });
    document.addEventListener("htmx:after:swap", drawNew);
    document.addEventListener("htmx:error", (event) => {
      if (event.detail.ctx && event.detail.ctx.sourceElement === form) {
        document.getElementById("busy").textContent = "The page got no answer: is the explorer still running?";
      }
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-copy]");
      if (button) {
        navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = "Copied";
      }
    });
  }
})();
