"use strict";
// Sorting, filtering and charts of a gpubench report. Everything it shows is set as text, never as markup.
(() => {
  const status = document.getElementById("status");

  for (const table of document.querySelectorAll("table[data-sortable]")) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => sort(table, head));
    }
  }

  function sort(table, head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent.trim();
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // the empty ones stay at the end
      const order = head.classList.contains("number") ? x - y : x.localeCompare(y, "en", { numeric: true });
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
    status.textContent = `Sorted by ${head.textContent}, ${down ? "descending" : "ascending"}.`;
  }

  const search = document.getElementById("filter");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of document.querySelectorAll("table[data-sortable] tbody tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    status.textContent = words.length ? `${shown} rows match.` : "";
  });

  const data = JSON.parse(document.getElementById("figures").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = [];

  // The 95% interval of each bar, and the line that ratios are read against.
  const marks = {
    id: "marks",
    afterDatasetsDraw(chart) {
      const { ctx, scales } = chart;
      const points = chart.getDatasetMeta(0).data;
      ctx.save();
      ctx.strokeStyle = colour("--ink");
      ctx.lineWidth = 1.5;
      const one = chart.options.reference;
      if (one) {
        const x = scales.x.getPixelForValue(1);
        ctx.beginPath();
        ctx.moveTo(x, chart.chartArea.top);
        ctx.lineTo(x, chart.chartArea.bottom);
        ctx.stroke();
      }
      chart.options.intervals.forEach((interval, at) => {
        if (!interval || !points[at]) return;
        const [low, high] = interval.map((value) => scales.x.getPixelForValue(value));
        const y = points[at].y;
        ctx.beginPath();
        for (const x of [low, high]) { ctx.moveTo(x, y - 4); ctx.lineTo(x, y + 4); }
        ctx.moveTo(low, y);
        ctx.lineTo(high, y);
        ctx.stroke();
      });
      ctx.restore();
    },
  };

  function draw() {
    while (charts.length) charts.pop().destroy();
    for (const figure of data) {
      const canvas = document.getElementById(figure.id);
      const phone = innerWidth < 640;
      const most = phone ? 20 : 44;
      // The end of a name often tells cards apart, so its middle goes.
      const clipped = (text) => (text.length > most
        ? `${text.slice(0, most * 0.55)}…${text.slice(text.length - most * 0.45)}` : text);
      const full = (bar) => `${bar.model} ${bar.label}`;
      charts.push(new Chart(canvas, {
        type: "bar",
        data: {
          labels: figure.bars.map(full),
          datasets: [{ data: figure.bars.map((bar) => bar.value), maxBarThickness: 20,
            backgroundColor: figure.bars.map((bar) => bar.colour) }],
        },
        options: {
          indexAxis: "y", animation: false, maintainAspectRatio: false, responsive: true,
          reference: figure.reference, intervals: figure.bars.map((bar) => bar.interval),
          plugins: {
            legend: { display: false },
            tooltip: { callbacks: { title: (items) => full(figure.bars[items[0].dataIndex]),
              label: (item) => figure.bars[item.dataIndex].text } },
          },
          scales: {
            x: { type: figure.logarithmic ? "logarithmic" : "linear", title: { display: true, text: figure.axis,
              color: colour("--soft") }, ticks: { color: colour("--soft") }, grid: { color: colour("--line") },
              suggestedMax: Math.max(...figure.bars.map((bar) => (bar.interval ? bar.interval[1] : bar.value))) * 1.02 },
            y: { ticks: { color: colour("--ink"), autoSkip: false,
              font: { size: phone ? 10 : 12 },
              callback: (_, at) => (phone ? [clipped(figure.bars[at].model), clipped(figure.bars[at].label)]
                : clipped(full(figure.bars[at]))) }, grid: { display: false } },
          },
        },
        plugins: [marks],
      }));
    }
  }
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
