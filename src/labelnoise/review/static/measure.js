// The list that measures: one example of the random sample at a time.
import { Answers } from "./answers.js";
import { ask, element, find, inTurn, isolated, percent, say, send } from "./api.js";
import { ClassPicker } from "./classes.js";
import { show } from "./content.js";

const MOST_ADDED = 1000; // rows of the sample at a time
const CHECK_AFTER = 1500; // milliseconds without an answer

const more = (n) => `${n} more ${n === 1 ? "answer" : "answers"}`;

export class Measure {
  constructor(state) {
    this.state = state;
    this.rows = [];
    this.at = 0;
    this.answers = new Answers("measure");
    this.picker = new ClassPicker(find("measure-picker"), state.classes, (k) => this.answer("label", k));
    for (const width of state.half_widths) {
      find("half-width").append(element("option", { value: width }, `\u00b1 ${100 * width} points`));
    }
    find("half-width").value = state.half_width;
    find("given-shown").checked = state.given_shown;
    find("given-shown").addEventListener("change", (event) => this.set({ given_shown: event.target.checked }));
    find("half-width").addEventListener("change", (event) => this.set({ half_width: Number(event.target.value) }));
    const buttons = {
      right: () => this.right(), unclear: () => this.answer("unclear"), undo: () => this.undo(),
      back: () => this.move(-1), next: () => this.move(1),
    };
    for (const [name, act] of Object.entries(buttons)) {
      find(`measure-${name}`).addEventListener("click", act);
    }
  }

  async open() {
    this.take(await ask("measure"));
    const first = this.rows.findIndex((row) => !this.answers.of(row));
    this.at = first < 0 ? this.rows.length : first;
    await this.draw();
    this.check();
  }

  take({ rows, answers, running }) {
    this.rows = rows;
    this.answers.learn(answers);
    this.estimate(running);
  }

  get row() { return this.rows[this.at]; }

  answer(verdict, label = null) {
    const { row } = this;
    // A key that comes before the next example is shown was not meant for either.
    if (row === undefined || this.busy) return;
    this.busy = true;
    const shown = this.given !== undefined;
    inTurn(async () => {
      try {
        const said = await this.answers.record([{ row, verdict, label }], shown);
        this.estimate(said.running);
      } catch (error) {
        await this.draw(); // if another window was first, its answer is marked now
        throw error;
      }
      const what = verdict === "label" ? this.state.classes[label] : verdict;
      say(`Recorded: ${what}. ${this.running.answered} of ${this.running.listed} answered.`);
      if (this.row === row) {
        this.at = this.after(this.at);
        await this.draw();
      }
      this.check();
    }).finally(() => { this.busy = false; });
  }

  right() {
    if (this.given !== undefined) this.answer("label", this.given);
  }

  // The next example without an answer, from the start again if need be; the end if there is none.
  after(at) {
    const open = (_, i) => !this.answers.of(this.rows[i]);
    const next = this.rows.findIndex((row, i) => i > at && open(row, i));
    const first = next < 0 ? this.rows.findIndex(open) : next;
    return first < 0 ? this.rows.length : first;
  }

  undo() {
    inTurn(async () => {
      const undone = await this.answers.undo(this.given !== undefined);
      if (!undone) return;
      this.estimate(undone.said.running);
      this.at = this.rows.indexOf(undone.rows[0]);
      await this.draw();
      say("Undone.");
    });
  }

  move(step) {
    inTurn(async () => {
      this.at = Math.min(Math.max(this.at + step, 0), this.rows.length);
      await this.draw();
    });
  }

  set(change) {
    inTurn(async () => {
      const { running } = await send("settings", change);
      this.estimate(running);
      if ("given_shown" in change) await this.draw();
    });
  }

  async draw() {
    const { row } = this;
    const place = find("measure-example");
    const over = row === undefined;
    for (const name of ["unclear", "next"]) find(`measure-${name}`).disabled = over;
    find("measure-picker").hidden = over;
    find("question").textContent = over ? "All rows of the sample are answered" : "Which class is it?";
    find("measure-back").disabled = this.at === 0;
    let position = over ? "" : `Example ${this.at + 1} of ${this.rows.length}`;
    this.given = undefined;
    if (over) place.replaceChildren(this.ending());
    else {
      const example = await ask(`example/${row}`, { list: "measure" });
      show(place, row, example.content, { name: example.name });
      this.given = example.given;
      const answer = this.answers.of(row);
      this.picker.mark(answer?.label);
      if (answer) position += ` \u00b7 answered: ${this.said(answer)}`;
      const next = this.rows[this.after(this.at)];
      if (next !== undefined && this.state.kind === "images") new Image().src = `image/${next}`;
    }
    find("measure-position").textContent = position;
    const shown = this.given !== undefined;
    find("measure-given").hidden = find("measure-right").hidden = !shown;
    if (shown) find("measure-given").replaceChildren("Given label: ", isolated(this.state.classes[this.given]));
  }

  said(answer) {
    return answer.verdict === "label" ? this.state.classes[answer.label] : answer.verdict;
  }

  ending() {
    const missing = this.running.to_add;
    const said = element("div", { className: "ending" });
    if (missing > 0) {
      const n = Math.min(missing, MOST_ADDED);
      const draw = element("button", { type: "button", className: "main" }, `Add ${n} rows to the sample`);
      draw.addEventListener("click", () => inTurn(async () => {
        this.take(await send("sample", { n }));
        this.at = this.after(-1);
        await this.draw();
      }));
      said.append(element("p", {}, "The interval is not as short yet as you want it."), draw);
    }
    said.append(element("p", {}, "The answers are kept. ", element("a", { href: "#export" }, "Export them"),
      ", or go on to ", element("a", { href: "#clean" }, "clean the suspects"), "."));
    return said;
  }

  estimate(running) {
    this.running = running;
    const { rate, model_rate: model } = running;
    find("rate").textContent = rate ? percent(rate.estimate) : percent(model);
    find("interval").textContent = rate
      ? `${percent(rate.low)} to ${percent(rate.high)} (${percent(rate.level, 0)} interval), by ${rate.n} answers. ` +
        `The estimate before any answer was ${percent(model)}.`
      : `This is the estimate before any answer. A measured one takes ${more(running.until_first)}.`;
    const unclear = running.unclear ? `, ${running.unclear} unclear` : "";
    const count = `${running.answered} of ${running.listed} answered${unclear}.`;
    find("needed").textContent = running.to_add === 0
      ? `${count} That is enough for`
      : running.to_add ? `${count} ${more(running.to_add)} for` : `${count} Aim:`;
    this.track(rate, model);
  }

  track(rate, model) {
    const track = find("track");
    track.hidden = !rate;
    if (!rate) return;
    const end = Math.min(1, Math.max(0.1, 1.25 * Math.max(rate.high, model)));
    const at = (share) => `${(100 * share) / end}%`;
    const [band, dot, tick] = track.children;
    band.style.left = at(rate.low);
    band.style.width = at(rate.high - rate.low);
    dot.style.left = at(rate.estimate);
    tick.style.left = at(model);
    tick.title = `before any answer: ${percent(model)}`;
  }

  // What speaks against the answers or the model takes a second to find out: in a pause.
  check() {
    clearTimeout(this.checking);
    if (!this.running.rate) return;
    this.checking = setTimeout(async () => {
      const { findings } = await ask("checks").catch(() => ({ findings: [] }));
      find("findings").hidden = !findings.length;
      find("findings").replaceChildren(...findings.map((text) => element("li", {}, text)));
    }, CHECK_AFTER);
  }

  key(event) {
    const about = this.row === undefined ? null : this.picker.key(event);
    if (about) return about;
    const acts = {
      "?": () => this.answer("unclear"), "=": () => this.right(), Backspace: () => this.undo(),
      ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1),
    };
    if (!(event.key in acts)) return null;
    acts[event.key]();
    return "done";
  }
}
