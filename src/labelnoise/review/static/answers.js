// Answers are recorded one after the other; each says which version of the row it has seen.
import { Refusal, say, send } from "./api.js";

export class Answers {
  constructor(list) {
    this.list = list;
    this.known = new Map(); // row -> its last answer
    this.done = []; // what undo takes back: the answers before, of this window
  }

  of(row) {
    const answer = this.known.get(row);
    return answer && answer.verdict !== "withdrawn" ? answer : null;
  }

  learn(answers) {
    for (const answer of answers) {
      if (answer && answer.version >= this.version(answer.row)) this.known.set(answer.row, answer);
    }
  }

  version(row) { return this.known.get(row)?.version ?? 0; }

  // Records decisions {row, verdict, label}; resolves to what the server says then.
  async record(decisions, givenShown, undoing = false) {
    const before = decisions.map(({ row }) => this.known.get(row) ?? { row, verdict: "withdrawn", label: null });
    const changes = decisions.map(({ row, verdict, label = null }) => ({
      row, verdict, label, version: this.version(row),
    }));
    try {
      const said = await send("answers", { list: this.list, changes, given_shown: givenShown });
      this.learn(said.answers);
      if (!undoing) this.done.push({ before, after: said.answers });
      return said;
    } catch (error) {
      if (error instanceof Refusal && error.current) this.learn(error.current);
      throw error;
    }
  }

  // Takes back the last answers of this window; resolves to their rows, or null.
  async undo(givenShown) {
    const last = this.done.at(-1);
    if (!last) {
      say("There is nothing to undo in this window. Go back to an answer to change it.");
      return null;
    }
    if (last.after.some((answer) => this.version(answer.row) !== answer.version)) {
      this.done.pop();
      throw new Refusal("Nothing was undone: another window has answered since.");
    }
    const said = await this.record(last.before, givenShown, true);
    this.done.pop();
    return { rows: last.before.map(({ row }) => row), said };
  }
}
