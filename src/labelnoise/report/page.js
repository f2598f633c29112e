"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)}%`;
// A name that runs from right to left must not turn the sentence around it, nor a long one fill it.
const isolated = (name) => {
  const letters = [...name];
  return `\u2068${letters.length > 40 ? letters.slice(0, 39).join("") + "\u2026" : name}\u2069`;
};

document.querySelectorAll(".controls").forEach((controls) => { controls.hidden = false; });

/* The matrix: sentences, arrow keys, orders, views */
const maps = [...document.querySelectorAll(".map")].map((table) => {
  const rows = [...table.tBodies[0].rows];
  const map = {
    table, rows,
    heads: [...table.tHead.rows[0].cells].slice(1),
    cells: rows.map((row) => [...row.cells].slice(1)),
    place: new Map(),
  };
  map.cells.forEach((row, i) => row.forEach((cell, j) => {
    cell.tabIndex = -1;
    map.place.set(cell, [i, j]);
  }));
  map.cells[0][0].tabIndex = 0;
  table.setAttribute("role", "grid");
  table.addEventListener("pointerover", (event) => show(map, event.target));
  table.addEventListener("click", (event) => show(map, event.target));
  table.addEventListener("focusin", (event) => show(map, event.target));
  table.addEventListener("keydown", (event) => move(map, event));
  return map;
});

function show(map, cell) {
  const place = map.place.get(cell);
  if (!place) return;
  const [i, j] = place;
  const share = data.share[i][j];
  const ends = data.low ? ` (${percent(data.low[i][j])} to ${percent(data.high[i][j])})` : "";
  const truth = data.truth ? ` The truth is ${percent(data.truth[i][j])}.` : "";
  const [from, to] = [data.classes[i], data.classes[j]].map(isolated);
  const label = i === j ? `rightly labelled ${to}` : `labelled ${to}`;
  find("readout").textContent = `${percent(share)}${ends} of true ${from} are ${label}.${truth}`;
  map.table.querySelectorAll(".at").forEach((head) => head.classList.remove("at"));
  map.heads[j].classList.add("at");
  map.rows[i].cells[0].classList.add("at");
}

function move(map, event) {
  const cell = event.target;
  if (!map.place.has(cell)) return;
  const row = cell.parentElement, table = row.parentElement;
  const last = { row: table.rows.length - 1, column: row.cells.length - 1 };
  let [y, x] = [row.sectionRowIndex, cell.cellIndex];
  if (event.key === "ArrowLeft") x -= 1;
  else if (event.key === "ArrowRight") x += 1;
  else if (event.key === "ArrowUp") y -= 1;
  else if (event.key === "ArrowDown") y += 1;
  else if (event.key === "Home") [y, x] = [event.ctrlKey ? 0 : y, 1];
  else if (event.key === "End") [y, x] = [event.ctrlKey ? last.row : y, last.column];
  else return;
  event.preventDefault();
  const next = table.rows[Math.min(Math.max(y, 0), last.row)].cells[Math.min(Math.max(x, 1), last.column)];
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function sort(order) {
  for (const map of maps) {
    map.table.tHead.rows[0].append(...order.map((j) => map.heads[j]));
    map.rows.forEach((row, i) => row.append(...order.map((j) => map.cells[i][j])));
    map.table.tBodies[0].append(...order.map((i) => map.rows[i]));
  }
}
const chosen = find("order");
chosen.addEventListener("change", () => sort(data.orders[chosen.value]));
if (maps[0].table.classList.contains("dense")) {
  // What is large is near the diagonal then, in place of anywhere.
  chosen.selectedIndex = chosen.options.length - 1;
  sort(data.orders[chosen.value]);
}

function view(name) {
  maps.forEach((map) => { map.table.hidden = map.table.dataset.view !== name; });
}
const views = [...document.querySelectorAll("input[name=view]")];
views.forEach((radio) => radio.addEventListener("change", () => view(radio.value)));
if (views.length) {
  views[0].checked = true;
  view(views[0].value);
}

/* Tables that can be sorted */
const valueOf = (cell) => cell.dataset.value ?? cell.textContent;
const compare = new Intl.Collator(undefined, { numeric: true }).compare;
for (const head of document.querySelectorAll("[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], at = head.cellIndex;
    // Numbers begin with the largest, words with the first.
    const number = body.rows.length && "value" in body.rows[0].cells[at].dataset;
    const before = head.getAttribute("aria-sort") ?? (number ? "ascending" : "descending");
    const order = before === "ascending" ? "descending" : "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    body.append(...[...body.rows].sort((a, b) => sign * compare(valueOf(a.cells[at]), valueOf(b.cells[at]))));
  });
}

/* Suspects: search, filter, export */
const suspects = find("suspects-table");
if (suspects) {
  const rows = [...suspects.tBodies[0].rows];
  const heads = [...suspects.tHead.rows[0].cells].map((head) => head.textContent);
  const given = heads.indexOf("given label");
  const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filter = () => {
    const wanted = find("search").value.trim().toLowerCase(), label = find("given").selectedIndex;
    const name = find("given").options[label].textContent;
    let count = 0;
    for (const row of rows) {
      const kept = words.get(row).includes(wanted) && (!label || row.cells[given].textContent === name);
      row.hidden = !kept;
      count += kept;
    }
    find("count").textContent = `${count} of ${rows.length} shown`;
  };
  find("search").addEventListener("input", filter);
  find("given").addEventListener("change", filter);
  filter();
  find("export").addEventListener("click", () => {
    const kept = [...suspects.tBodies[0].rows].filter((row) => !row.hidden);
    const listed = (line) => (heads[0] === "example" ? line.slice(1) : line);
    const lines = [heads, ...kept.map((row) => [...row.cells].map(valueOf))].map(listed);
    // A spreadsheet must not take a name for a formula.
    const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
    const csv = lines.map((line) => line.map(quoted).join(",") + "\n").join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", csv], { type: "text/csv" }));
    link.download = "suspects.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", () => {
    // The clipboard's own interface is not there for files opened from a disk in all browsers.
    getSelection().selectAllChildren(button.nextElementSibling);
    const done = document.execCommand("copy");
    button.textContent = done ? "Copied" : "Press Ctrl+C";
  });
}
