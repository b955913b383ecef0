"use strict";
// Tables sort by their headings and show the rows that have some words, or one of a column's few; what is chosen in a
// figure is described below it; what is folded is unfolded for print.
const MAX_CHOICES = 12;
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  const keys = (cell) => {
    const value = cell.dataset.value;
    if (value === undefined) return [0, cell.textContent.trim().toLowerCase()];
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
  const box = table.closest(".table").querySelector(".search");
  if (!box) continue;
  const [input, count] = [box.querySelector("input"), box.querySelector("output")];
  const choices = [];
  headings.forEach((heading, place) => {
    if (rows[0].cells[place].dataset.value !== undefined) return;
    const values = [...new Set(rows.map((row) => row.cells[place].textContent.trim()))];
    if (values.length < 2 || values.length > MAX_CHOICES || values.length > rows.length / 2) return;
    const [label, choice] = [document.createElement("label"), document.createElement("select")];
    const name = heading.textContent.trim();
    choice.append(new Option("all", ""), ...values.map((value) => new Option(value || "none", `=${value}`)));
    choice.addEventListener("change", show);
    label.append(`${name} `, choice);
    count.before(label);
    choices.push([place, choice]);
  });
  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = choices.filter(([, choice]) => choice.value);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = chosen.every(([place, choice]) => `=${row.cells[place].textContent.trim()}` === choice.value);
      row.hidden = !fits || !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words.length || chosen.length ? `${shown} of ${rows.length} rows` : "";
  }
  input.addEventListener("input", show);
}
for (const figure of document.querySelectorAll("figure")) {
  const described = figure.querySelector(".described");
  const tell = (event) => {
    const shape = event.target.closest("[role=img][aria-label]");
    if (shape) described.textContent = shape.getAttribute("aria-label");
  };
  for (const kind of ["mouseover", "focusin", "click"]) figure.addEventListener(kind, tell);
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
