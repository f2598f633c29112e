// A list of any length: only what can be seen is fetched and drawn.
import { element } from "./api.js";

const PAGE = 100; // items a request
const GAP = 12;
const AROUND = 2; // lines drawn above and below what can be seen

export class Grid {
  // `fetched(offset, limit)` gives items; `drawn(item, index)` an element with role option.
  constructor(viewport, { fetched, drawn, failed, width, height }) {
    Object.assign(this, { viewport, fetched, drawn, failed, width, height });
    this.sheet = viewport.firstElementChild;
    this.cards = new Map();
    this.reset(0);
    viewport.addEventListener("scroll", () => this.render());
    new ResizeObserver(() => this.render()).observe(viewport);
  }

  reset(total) {
    this.total = total;
    this.pages = new Map();
    this.viewport.scrollTop = 0;
    this.redraw();
  }

  get columns() {
    return Math.max(1, Math.floor((this.sheet.clientWidth + GAP) / (this.width + GAP)));
  }

  item(index) { return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE]; }

  // Resolves to an item, fetched if need be.
  async fetch(index) {
    await this.page(Math.floor(index / PAGE));
    return this.item(index);
  }

  async page(number) {
    if (!this.pages.has(number)) {
      const pages = this.pages;
      const coming = this.fetched(number * PAGE, PAGE);
      pages.set(number, coming);
      try {
        pages.set(number, await coming);
      } catch (error) {
        pages.delete(number);
        throw error;
      }
      if (pages === this.pages) this.redraw();
    }
    return this.pages.get(number);
  }

  redraw() {
    for (const card of this.cards.values()) card.remove();
    this.cards.clear();
    this.render();
  }

  render() {
    const { columns, height, sheet, total, viewport } = this;
    if (!sheet.clientWidth) return;
    const line = height + GAP, wide = (sheet.clientWidth - GAP * (columns - 1)) / columns;
    sheet.style.height = `${Math.ceil(total / columns) * line}px`;
    const top = Math.floor(viewport.scrollTop / line) - AROUND;
    const bottom = Math.ceil((viewport.scrollTop + viewport.clientHeight) / line) + AROUND;
    const first = Math.max(0, top * columns), last = Math.min(total, bottom * columns);
    for (const [index, card] of this.cards) {
      if (index < first || index >= last) {
        card.remove();
        this.cards.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (!this.cards.has(index)) this.place(index);
      const { style } = this.cards.get(index);
      style.width = `${wide}px`;
      style.height = `${height}px`;
      style.left = `${(index % columns) * (wide + GAP)}px`;
      style.top = `${Math.floor(index / columns) * line}px`;
    }
    for (let number = Math.floor(first / PAGE); number * PAGE < last; number += 1) {
      this.page(number).catch((error) => this.failed(error));
    }
  }

  place(index) {
    const item = this.item(index);
    const card = item ? this.drawn(item, index) : element("div", { className: "suspect waiting" });
    card.id = `suspect-${index}`;
    card.setAttribute("aria-setsize", this.total);
    card.setAttribute("aria-posinset", index + 1);
    this.cards.set(index, card);
    this.sheet.append(card);
  }

  // Draws one card again.
  refresh(index) {
    if (!this.cards.has(index)) return;
    this.cards.get(index).remove();
    this.cards.delete(index);
    this.render();
  }

  reveal(index) {
    const line = this.height + GAP, { viewport } = this;
    const top = Math.floor(index / this.columns) * line;
    if (top < viewport.scrollTop) viewport.scrollTop = top;
    else if (top + line > viewport.scrollTop + viewport.clientHeight) {
      viewport.scrollTop = top + line - viewport.clientHeight;
    }
    this.render();
  }
}
