// The list that cleans: suspects in a grid, or one at a time, with their neighbours beside them.
import { Answers } from "./answers.js";
import { ask, element, find, inTurn, isolated, likely, say } from "./api.js";
import { ClassPicker } from "./classes.js";
import { show } from "./content.js";
import { Grid } from "./grid.js";
import { confusionChooser } from "./confusions.js";

const SIZES = { images: [168, 236], texts: [300, 210], table: [300, 246], features: [200, 110] };
const PAUSE = 120; // milliseconds on an example, before its neighbours are asked for
const READ_ALOUD = 300; // characters of a text
const MANY = 10000; // rows in one answer

// Rows without a name of their own have a number.
const called = (name) => (/^\d+$/.test(name) ? `Row ${name}` : name);

export class Clean {
  constructor(state) {
    this.state = state;
    this.answers = new Answers("clean");
    this.at = 0;
    this.selected = new Map(); // row -> suspect
    this.one = false;
    this.picker = new ClassPicker(find("clean-picker"), state.classes, (k) => this.decide("label", () => k));
    const [width, height] = SIZES[state.kind];
    this.grid = new Grid(find("grid"), {
      width, height,
      fetched: (offset, limit) => this.fetched(offset, limit),
      drawn: (suspect, index) => this.card(suspect, index),
      failed: (error) => say(error.message, true),
    });
    this.filters();
    const acts = {
      suggested: () => this.suggested(), right: () => this.right(), skip: () => this.decide("skip"),
      unclear: () => this.decide("unclear"), undo: () => this.undo(),
    };
    for (const [name, act] of Object.entries(acts)) find(`clean-${name}`).addEventListener("click", act);
    find("one").addEventListener("click", () => this.view(!this.one));
  }

  filters() {
    for (const id of ["given", "suggested"]) {
      find(id).append(element("option", { value: "" }, "any class"));
      this.state.classes.forEach((name, k) => find(id).append(element("option", { value: k }, name)));
    }
    for (const id of ["order", "given", "suggested", "open"]) {
      find(id).addEventListener("change", () => inTurn(() => this.open()));
    }
    confusionChooser(find("matrix"), this.state, (suggested, given) => {
      find("suggested").value = suggested;
      find("given").value = given;
      find("confusions").open = false;
      inTurn(() => this.open());
    });
  }

  // Starts again at the top, by the filters.
  async open() {
    this.asOf = "";
    this.at = 0;
    this.selected.clear();
    const first = await this.ask(0, 1);
    this.asOf = first.as_of;
    this.grid.reset(first.total);
    await this.draw();
  }

  ask(offset, limit) {
    const parameters = { offset, limit, order: find("order").value, as_of: this.asOf };
    if (find("open").checked) parameters.open = 1;
    for (const id of ["given", "suggested"]) if (find(id).value) parameters[id] = find(id).value;
    if (!parameters.as_of) delete parameters.as_of;
    return ask("suspects", parameters);
  }

  async fetched(offset, limit) {
    const { suspects } = await this.ask(offset, limit);
    this.answers.learn(suspects.map(({ answer }) => answer));
    return suspects;
  }

  card(suspect, index) {
    const { row } = suspect, answer = this.answers.of(row);
    const picture = element("div", { className: "example" });
    show(picture, row, suspect.content, { small: true });
    const card = element("div", { className: "suspect" }, picture,
      element("p", { className: "labels" }, ...this.arrow(suspect)),
      element("p", { className: "soft" }, answer ? this.said(answer) : `${likely(suspect.probability)} likely wrong`));
    card.setAttribute("role", "option");
    card.setAttribute("aria-selected", String(this.selected.has(row)));
    card.setAttribute("aria-label", this.described(suspect));
    card.classList.toggle("done", Boolean(answer));
    card.classList.toggle("at", index === this.at);
    card.addEventListener("click", (event) => {
      if (event.shiftKey) this.extend(index);
      else {
        this.toggle(suspect);
        this.go(index);
      }
    });
    card.addEventListener("dblclick", () => {
      this.selected.clear();
      this.go(index);
      this.view(true);
    });
    return card;
  }

  arrow({ given, suggested }) {
    const { classes } = this.state;
    return [isolated(classes[given]), element("span", { className: "unseen" }, ", suggested"), " \u2192 ",
      isolated(classes[suggested])];
  }

  described(suspect) {
    const { classes } = this.state, answer = this.answers.of(suspect.row);
    const near = suspect.near.map((k) => classes[k]).join(", ");
    const text = suspect.content.kind === "text" ? ` ${suspect.content.text.slice(0, READ_ALOUD)}` : "";
    return `${called(suspect.name)}: labelled ${classes[suspect.given]}, suggested ${classes[suspect.suggested]}, ` +
      `${likely(suspect.probability)} likely wrong. ${near ? `Nearest: ${near}.` : ""} ` +
      `${answer ? this.said(answer) : ""}${text}`;
  }

  said(answer) {
    const said = { label: () => `is ${this.state.classes[answer.label]}`, skip: () => "skipped", unclear: () => "unclear" };
    return `\u2713 ${said[answer.verdict]()}`;
  }

  // Shows where one is: the card, the large example, the evidence.
  async draw() {
    const { total } = this.grid;
    const suspect = total ? await this.grid.fetch(this.at) : undefined;
    const place = total ? `${(this.at + 1).toLocaleString("en")} of ${total.toLocaleString("en")}` : "No suspects";
    find("clean-position").textContent = `${place}${find("open").checked ? " undecided" : ""}` +
      `${this.selected.size ? ` \u00b7 ${this.selected.size} selected` : ""}`;
    this.current = suspect;
    for (const index of this.grid.cards.keys()) this.mark(index);
    find("grid").setAttribute("aria-activedescendant", suspect ? `suspect-${this.at}` : "");
    const n = this.selected.size || Number(Boolean(suspect));
    find("targets").textContent = this.selected.size ? `Decide on ${n} selected` : "Decide";
    for (const name of ["suggested", "right", "skip", "unclear"]) find(`clean-${name}`).disabled = !n;
    const one = !this.selected.size && suspect;
    find("clean-suggested").lastElementChild.replaceChildren(
      ...(one ? ["It is ", isolated(this.state.classes[suspect.suggested])] : ["Take suggestion"]));
    this.picker.mark(one ? this.answers.of(suspect.row)?.label : undefined);
    this.evidence(suspect);
  }

  mark(index) {
    const card = this.grid.cards.get(index), suspect = this.grid.item(index);
    if (!suspect) return;
    card.classList.toggle("at", index === this.at);
    card.setAttribute("aria-selected", String(this.selected.has(suspect.row)));
  }

  evidence(suspect) {
    clearTimeout(this.looking);
    find("about").textContent = suspect ? called(suspect.name) : "\u00a0";
    find("neighbors").replaceChildren();
    if (!suspect) {
      find("suspicion").textContent = "";
      find("clean-example").replaceChildren();
      return;
    }
    const answer = this.answers.of(suspect.row);
    find("suspicion").replaceChildren("Labelled ", ...this.arrow(suspect),
      ` \u00b7 ${likely(suspect.probability)} likely wrong${answer ? ` \u00b7 ${this.said(answer)}` : ""}`);
    if (this.one) show(find("clean-example"), suspect.row, suspect.content, { name: suspect.name });
    this.looking = setTimeout(() => this.neighbors(suspect), PAUSE);
  }

  async neighbors({ row, given, suggested }) {
    const example = await ask(`example/${row}`).catch(() => null);
    if (!example || this.current?.row !== row) return;
    find("neighbors").replaceChildren(...example.neighbors.map((near) => {
      const picture = element("div", { className: "example" });
      show(picture, near.row, near.content, { name: near.name, small: true });
      const as = { [given]: "as-given", [suggested]: "as-suggested" }[near.given] ?? "";
      return element("li", { className: as }, picture, isolated(this.state.classes[near.given]));
    }));
  }

  view(one) {
    this.one = one;
    find("one").setAttribute("aria-pressed", String(one));
    find("clean").classList.toggle("one", one);
    find("grid").hidden = one;
    find("clean-example").hidden = !one;
    if (one) this.selected.clear();
    else {
      this.grid.redraw();
      this.grid.reveal(this.at);
      find("grid").focus();
    }
    inTurn(() => this.draw());
  }

  go(index) {
    if (!this.grid.total) return;
    this.at = Math.min(Math.max(index, 0), this.grid.total - 1);
    if (!this.one) this.grid.reveal(this.at);
    inTurn(() => this.draw());
  }

  toggle(suspect) {
    if (!suspect) return;
    if (!this.selected.delete(suspect.row)) this.selected.set(suspect.row, suspect);
  }

  // Selects all from where one is to another place.
  extend(end) {
    const [from, to] = [Math.min(this.at, end), Math.max(this.at, end)];
    inTurn(async () => {
      for (let index = from; index <= to && this.selected.size < MANY; index += 1) {
        const suspect = await this.grid.fetch(index);
        this.selected.set(suspect.row, suspect);
      }
    });
    this.go(end);
  }

  suggested() { this.decide("label", ({ suggested }) => suggested); }

  right() { this.decide("label", ({ given }) => given); }

  decide(verdict, label = () => null) {
    const selected = [...this.selected.values()];
    const suspects = selected.length || !this.current ? selected : [this.current];
    if (!suspects.length || this.busy) return;
    this.busy = true;
    inTurn(async () => {
      const decisions = suspects.map((suspect) => ({ row: suspect.row, verdict, label: label(suspect) }));
      try {
        await this.answers.record(decisions, true);
      } finally {
        this.selected.clear();
        this.grid.redraw();
      }
      say(`Recorded: ${decisions.length === 1 ? this.said(this.answers.of(decisions[0].row)) : `${decisions.length} answers`}.`);
      await this.advance();
    });
    inTurn(() => this.draw()).finally(() => { this.busy = false; });
  }

  // Goes to the next one without an answer.
  async advance() {
    let next = this.at;
    while (next < this.grid.total && this.answers.of((await this.grid.fetch(next)).row)) next += 1;
    if (next < this.grid.total) this.at = next;
    if (!this.one) this.grid.reveal(this.at);
  }

  undo() {
    inTurn(async () => {
      const undone = await this.answers.undo(true);
      if (!undone) return;
      for (const [index] of this.grid.cards) {
        if (undone.rows.includes(this.grid.item(index)?.row)) this.at = Math.min(this.at, index);
      }
      this.grid.redraw();
      await this.draw();
      say(undone.rows.length === 1 ? "Undone." : `${undone.rows.length} answers undone.`);
    });
  }

  key(event) {
    const about = this.picker.key(event);
    if (about) return about;
    const { columns } = this.grid, down = this.one ? 1 : columns;
    const screen = down * Math.max(1, Math.floor(find("grid").clientHeight / this.grid.height));
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -down, ArrowDown: down, PageUp: -screen, PageDown: screen,
      Home: -Infinity, End: Infinity,
    };
    const acts = {
      Enter: () => this.suggested(), "=": () => this.right(), "-": () => this.decide("skip"),
      "?": () => this.decide("unclear"), Backspace: () => this.undo(), ".": () => this.view(!this.one),
      " ": () => { this.toggle(this.current); this.go(this.at); },
      Escape: () => { this.selected.clear(); this.go(this.at); },
    };
    if (event.key in steps) {
      const to = Math.min(Math.max(this.at + steps[event.key], 0), this.grid.total - 1);
      if (event.shiftKey && !this.one) this.extend(to);
      else this.go(to);
    } else if (event.key in acts) acts[event.key]();
    else return null;
    return "done";
  }
}
