"use strict";
// Sorts, filters and unfolds tables of gpubench's pages. It sets all content as text, never as markup.
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
    const number = head.classList.contains("number");
    const key = (row) => {
      const cell = row.cells[head.cellIndex];
      const text = cell.dataset.value ?? cell.textContent.trim();
      const value = number ? parseFloat(text.replaceAll(",", "")) : text;
      return Number.isNaN(value) ? "" : value;
    };
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // empty cells stay at the end
      const order = number ? x - y : x.localeCompare(y, "en", { numeric: true });
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
    status.textContent = `Sorted by ${head.textContent}, ${down ? "descending" : "ascending"}.`;
  }

  function unfold(element) {
    for (let at = element?.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  }

  const search = document.getElementById("filter");
  const selects = [...document.querySelectorAll("select[data-filter]")];
  const filters = document.getElementById("filters");
  if (filters) filters.hidden = false; // they need this script; until now only their place was kept

  function filter() {
    const words = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const set = selects.filter((select) => select.value);
    const asked = words.length + set.length > 0;
    let shown = 0;
    for (const row of document.querySelectorAll("table[data-sortable] tbody tr")) {
      const text = row.textContent.toLowerCase();
      // A filter does not apply to a table without its attribute.
      const fits = set.every(({ dataset, value }) => (row.dataset[dataset.filter] ?? value) === value);
      row.hidden = !(fits && words.every((word) => text.includes(word)));
      shown += !row.hidden;
      if (asked && !row.hidden) unfold(row);
    }
    status.textContent = asked ? `${shown} lines match.` : "";
  }
  for (const input of [search, ...selects]) input?.addEventListener("input", filter);
  filters?.addEventListener("submit", (event) => event.preventDefault());

  function follow() {
    const target = document.getElementById(location.hash.slice(1));
    unfold(target);
    target?.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  if (location.hash) follow();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
