// The lists behind their links, and keys for whichever is open.
import { ask, element, find, inTurn, isolated, say } from "./api.js";
import { Clean } from "./clean.js";
import { Measure } from "./measure.js";

const ABOUT = {
  "checked.csv": "Every answer in a row, for labelnoise estimate --verified checked.csv and for HOC.verify.",
  "label-studio.json": "Tasks for Label Studio: answers as annotations, suspicions as predictions.",
};
const CLEANED = "All labels in the format they came in, with the answers in place of the labels that were wrong.";

const state = await ask("state").catch((error) => {
  say(error.message, true);
  throw error;
});
const lists = { measure: new Measure(state), clean: new Clean(state) };
const folder = state.folder.split(/[/\\]/).at(-1);
find("folder").append(isolated(folder));
find("folder").title = state.folder;
document.title = `Review of ${folder}`;
for (const name of state.exports) {
  find("exports").append(
    element("dt", {}, element("a", { href: `export/${name}`, download: name }, name)),
    element("dd", {}, ABOUT[name] ?? CLEANED));
}

let current;
function open() {
  const name = ["measure", "clean", "export"].find((list) => `#${list}` === location.hash) ?? "measure";
  current = lists[name];
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (current) inTurn(() => current.open());
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (!current || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("select")) return;
  // Buttons, links and boxes keep the keys that work them.
  const worked = target.closest("button, a, summary, input[type=checkbox]");
  if (worked && (key === "Enter" || key === " ")) return;
  if (current.key(event) === "done") event.preventDefault();
});
addEventListener("hashchange", open);
open();
