// The classes to choose from: by click, by number, or by typing a name.
import { element, isolated } from "./api.js";

const KEYS = "1234567890";

// A class whose name is a digit has that digit as its key; names that are longer numbers are typed.
function keysOf(classes) {
  const numbers = classes.every((name) => /^\d+$/.test(name));
  if (!numbers) return classes.map((_, k) => KEYS[k] ?? "");
  return classes.map((name) => (classes.every((other) => other.length === 1) ? name : ""));
}

export class ClassPicker {
  constructor(place, classes, chosen) {
    this.classes = classes;
    this.chosen = chosen; // is called with the number of a class
    this.keys = keysOf(classes);
    this.fitting = [];
    const id = place.id;
    this.input = element("input", {
      type: "text", id: `${id}-input`, autocomplete: "off", spellcheck: false,
      placeholder: "Type a class name",
    });
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-expanded": "true", "aria-controls": `${id}-list`,
      "aria-autocomplete": "list", "aria-label": "Class name", autocapitalize: "off",
    })) this.input.setAttribute(name, value);
    this.options = classes.map((name, k) => {
      const key = this.keys[k] ? [element("kbd", {}, this.keys[k]), " "] : [];
      const option = element("li", { id: `${id}-${k}` }, ...key, isolated(name));
      option.setAttribute("role", "option");
      option.addEventListener("click", () => this.choose(k));
      return option;
    });
    const list = element("ul", { id: `${id}-list`, className: "classes" }, ...this.options);
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Classes");
    place.replaceChildren(this.input, list);
    this.input.addEventListener("input", () => this.filter());
  }

  get typing() { return this.input.value !== ""; }

  // The class that the example has now, if it was answered.
  mark(label) {
    this.options.forEach((option, k) => option.classList.toggle("now", k === label));
  }

  clear() {
    this.input.value = "";
    this.filter();
  }

  choose(k) {
    this.clear();
    this.chosen(k);
  }

  filter() {
    const typed = this.input.value.trim().toLowerCase();
    const names = this.classes.map((name) => name.toLowerCase());
    const rank = (k) => (names[k] === typed ? 0 : names[k].startsWith(typed) ? 1 : 2);
    this.fitting = names.map((_, k) => k).filter((k) => names[k].includes(typed));
    this.fitting.sort((a, b) => rank(a) - rank(b) || a - b);
    this.options.forEach((option, k) => { option.hidden = !this.fitting.includes(k); });
    this.point(this.typing ? 0 : -1);
  }

  point(at) {
    this.at = at;
    const current = this.fitting[at];
    this.options.forEach((option, k) => option.setAttribute("aria-selected", String(k === current)));
    if (current === undefined) this.input.removeAttribute("aria-activedescendant");
    else {
      this.input.setAttribute("aria-activedescendant", this.options[current].id);
      this.options[current].scrollIntoView({ block: "nearest" });
    }
  }

  // What a key is about: "done" if it was about a class, "typed" if it belongs to the field.
  key(event) {
    const letter = [...event.key].length === 1 && /[\p{L}\p{N}]/u.test(event.key);
    if (event.ctrlKey || event.metaKey || event.altKey) return null;
    if (!this.typing) {
      const k = this.keys.indexOf(event.key);
      if (k >= 0) {
        this.choose(k);
        return "done";
      }
      if (!letter) return null;
    } else {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Tab") return "typed";
      if (step && this.fitting.length) this.point((this.at + step + this.fitting.length) % this.fitting.length);
      else if (event.key === "Escape") this.clear();
      else if (event.key === "Enter" && this.fitting.length) this.choose(this.fitting[this.at]);
      if (step || event.key === "Escape" || event.key === "Enter") return "done";
    }
    this.input.focus();
    return "typed";
  }
}
