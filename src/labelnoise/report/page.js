"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)}%`;
// A name that runs from right to left must not turn the sentence around it, nor a long one fill it.
const isolated = (name) => {
  const letters = [...name];
  return `\u2068${letters.length > 40 ? letters.slice(0, 39).join("") + "\u2026" : name}\u2069`;
};
const make = (tag, text, attributes = {}) => Object.assign(document.createElement(tag), { textContent: text, ...attributes });

document.querySelectorAll(".controls, #readout, #count").forEach((one) => { one.hidden = false; });

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
  const [from, to] = [i, j].map((at) => isolated(data.classes[data.shown[at]]));
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
if (chosen) {
  chosen.addEventListener("change", () => sort(data.orders[chosen.value]));
  // What is large in a large matrix is near the diagonal then, in place of anywhere.
  if (maps[0].table.classList.contains("dense")) chosen.selectedIndex = chosen.options.length - 1;
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
  const button = make("button", "", { type: "button" });
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

/* All suspects: search, filter, save */
if (find("suspects-table")) {
  const all = data.suspects, body = find("suspects-table").tBodies[0];
  const name = (i) => (all.name ? all.name[i] : "");
  const words = all.row.map((row, i) => `${row} ${name(i)}`.toLowerCase());
  let kept = [], listed = 0;

  for (const id of ["given", "suggested"]) {
    const numbers = [...new Set(all[id])].sort((a, b) => a - b);
    const options = numbers.map((number) => make("option", data.classes[number] || "\u00a0", { value: number }));
    find(id).append(make("option", "all", { value: "" }), ...options);
  }
  const cell = (text) => {
    const made = make("td", "");
    made.append(make("bdi", text, { title: text }));
    return made;
  };
  const chance = (wrong) => (wrong > 9990 ? ">99.9%" : `${(wrong / 100).toFixed(1)}%`);
  const line = (i) => {
    const row = document.createElement("tr");
    row.append(cell(all.row[i]), ...(all.name ? [cell(name(i))] : []), cell(data.classes[all.given[i]]),
      cell(data.classes[all.suggested[i]]), cell(chance(all.wrong[i])));
    return row;
  };
  const list = (most) => {
    body.append(...kept.slice(listed, most).map(line));
    listed = Math.min(most, kept.length);
    find("more").hidden = listed === kept.length;
    const shown = listed < kept.length ? ` The surest ${listed} are shown.` : "";
    find("count").textContent = `${kept.length.toLocaleString("en")} of ${all.row.length.toLocaleString("en")} suspects.${shown}`;
  };
  const filter = () => {
    const wanted = find("search").value.trim().toLowerCase();
    const [given, suggested] = [find("given").value, find("suggested").value];
    kept = [...all.row.keys()].filter((i) => words[i].includes(wanted)
      && (given === "" || all.given[i] === Number(given))
      && (suggested === "" || all.suggested[i] === Number(suggested)));
    body.replaceChildren();
    listed = 0;
    list(24);
  };
  for (const id of ["search", "given", "suggested"]) find(id).addEventListener("input", filter);
  find("more").addEventListener("click", () => { list(listed + 200); overflowing(); });
  filter();

  find("export").addEventListener("click", () => {
    // A spreadsheet must not take a name for a formula.
    const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) && isNaN(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
    const heads = ["row", ...(all.name ? ["name"] : []), "is_label_issue", "label_score", "given_label",
      "predicted_label", "probability_wrong"];
    const lines = kept.map((i) => [String(all.row[i]), ...(all.name ? [quoted(name(i))] : []), "True",
      ((10000 - all.wrong[i]) / 10000).toFixed(4), quoted(data.classes[all.given[i]]),
      quoted(data.classes[all.suggested[i]]), (all.wrong[i] / 10000).toFixed(4)]);
    const csv = [heads, ...lines].map((one) => `${one.join(",")}\n`).join("");
    const link = make("a", "", { download: "suspects.csv" });
    link.href = URL.createObjectURL(new Blob(["\ufeff", csv], { type: "text/csv" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}

/* A table that is cut off shows on which side, and can be reached by keyboard. */
function overflowing() {
  for (const box of document.querySelectorAll(".scroll")) {
    box.tabIndex = box.scrollWidth - box.clientWidth > 2 || box.scrollHeight - box.clientHeight > 2 ? 0 : -1;
    box.classList.toggle("cut-right", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
    box.classList.toggle("cut-left", box.scrollLeft > 2);
    box.classList.toggle("cut-below", box.scrollHeight - box.clientHeight - box.scrollTop > 2);
  }
}
for (const box of document.querySelectorAll(".scroll")) box.addEventListener("scroll", overflowing, { passive: true });
for (const folded of document.querySelectorAll("details")) folded.addEventListener("toggle", overflowing);
addEventListener("resize", overflowing);
overflowing();

/* What is folded is printed, too. */
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  unfolded.forEach((one) => { one.open = true; });
});
addEventListener("afterprint", () => unfolded.forEach((one) => { one.open = false; }));

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", () => {
    // The clipboard's own interface is not there for files opened from a disk in all browsers.
    getSelection().selectAllChildren(button.nextElementSibling);
    const done = document.execCommand("copy");
    button.textContent = done ? "Copied" : "Press Ctrl+C";
  });
}
