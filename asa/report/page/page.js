"use strict";
// Tables sort by their headings and show the rows that have some words; what is chosen in a figure is told below it.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  const keys = (cell) => {
    if (!cell.classList.contains("number")) return [0, cell.textContent.trim().toLowerCase()];
    const value = cell.dataset.value;
    return value === "" || value === "nan" ? [1, 0] : [0, Number(value)];
  };
  headings.forEach((heading, place) => {
    heading.querySelector("button").addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const sorted = rows.map((row, order) => [keys(row.cells[place]), order, row]);
      sorted.sort(([a, i], [b, j]) => a[0] - b[0] || sign * (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0) || i - j);
      body.append(...sorted.map(([, , row]) => row));
    });
  });
  const search = table.closest(".table").querySelector(".search");
  if (!search) continue;
  const [input, told] = [search.querySelector("input"), search.querySelector("output")];
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    told.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
}
for (const figure of document.querySelectorAll("figure")) {
  const told = figure.querySelector(".told");
  const tell = (event) => {
    const shape = event.target.closest("[role=img][aria-label]");
    if (shape) told.textContent = shape.getAttribute("aria-label");
  };
  for (const kind of ["mouseover", "focusin", "click"]) figure.addEventListener(kind, tell);
}
