// A click on the head of a column sorts its table, a second one turns the order round. Works without a network.
"use strict";

function sortKey(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replace(/,(?=\d{3})/g, ""));
  return Number.isNaN(number) ? text.toLowerCase() : number;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

function sortBy(table, head, column) {
  const falling = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, key: sortKey(row.cells[column]) }));
  rows.sort((a, b) => (falling ? compare(b.key, a.key) : compare(a.key, b.key)));
  for (const { row } of rows) body.appendChild(row);
}

for (const table of document.querySelectorAll("article table")) {
  const heads = table.tHead && table.tHead.rows.length === 1 ? table.tHead.rows[0].cells : [];
  const whole = Array.from(table.tBodies[0]?.rows ?? []).every((row) => row.cells.length === heads.length);
  if (!whole || table.tBodies[0].rows.length < 3) continue;
  table.classList.add("sortable");
  Array.from(heads).forEach((head, column) => {
    head.tabIndex = 0;
    head.title = "Sort by this column";
    head.addEventListener("click", () => sortBy(table, head, column));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sortBy(table, head, column);
      }
    });
  });
}
