// T as a table whose cells choose suspects; of many classes, a list of the largest confusions.
import { element, isolated, percent } from "./api.js";

const LONGEST = 50; // confusions in a list
const FULL = 0.5; // share of T's entry that has the full colour

export function confusionChooser(place, state, chosen) {
  if (state.transition_matrix) place.append(matrix(state, chosen));
  else place.append(list(state, chosen));
}

function list({ classes, confusions }, chosen) {
  const lines = confusions.slice(0, LONGEST).map(([suggested, given, n]) => {
    const button = element("button", { type: "button" }, isolated(classes[given]), " \u2192 ",
      isolated(classes[suggested]), ` (${n})`);
    button.addEventListener("click", () => chosen(suggested, given));
    return element("li", {}, button);
  });
  return element("ul", { className: "confusions" }, ...lines);
}

function matrix({ classes, confusions, transition_matrix: T }, chosen) {
  const count = new Map(confusions.map(([suggested, given, n]) => [`${suggested} ${given}`, n]));
  const head = element("tr", {}, element("td", {}, "true \u2193 label \u2192"),
    ...classes.map((name) => element("th", { scope: "col" }, isolated(name))));
  const rows = classes.map((name, i) => element("tr", {}, element("th", { scope: "row" }, isolated(name)),
    ...classes.map((label, j) => {
      const n = count.get(`${i} ${j}`) ?? 0;
      const share = percent(T[i][j], 0);
      if (!n) return element("td", { className: i === j ? "diagonal" : "" }, share);
      const button = element("button", { type: "button", tabIndex: -1 }, share);
      button.style.setProperty("--share", Math.min(1, T[i][j] / FULL));
      button.title = `${n} suspects`;
      button.setAttribute("aria-label", `${n} suspects labelled ${label}, suggested ${name}. ${share} of true ${name} are labelled ${label}.`);
      button.addEventListener("click", () => chosen(i, j));
      return element("td", {}, button);
    })));
  const table = element("table", { className: "matrix" }, element("thead", {}, head), element("tbody", {}, ...rows));
  const first = table.querySelector("button");
  if (first) first.tabIndex = 0;
  table.addEventListener("keydown", (event) => move(table, event));
  return table;
}

// Arrows go to the next cell that has suspects.
function move(table, event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const cell = event.target.closest("td");
  if (!step || !cell) return;
  event.preventDefault();
  event.stopPropagation();
  let [y, x] = [cell.parentElement.rowIndex, cell.cellIndex];
  let button = null;
  while (!button) {
    [y, x] = [y + step[0], x + step[1]];
    const next = table.rows[y]?.cells[x];
    if (!next || y < 1 || x < 1) return;
    button = next.querySelector("button");
  }
  event.target.tabIndex = -1;
  button.tabIndex = 0;
  button.focus();
}
