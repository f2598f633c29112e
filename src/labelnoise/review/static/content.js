// What an example looks like: an image, a text, a row of a table. All of it is text or a picture,
// never markup.
import { element } from "./api.js";

const SMALL = 160; // pixels, below which an image is enlarged without blurring it

const CELLS = 5; // of a table's row, on a card

export function show(place, row, content, { name = "", small = false } = {}) {
  place.replaceChildren(drawn(row, content, name, small));
}

function drawn(row, content, name, small) {
  if (content.kind === "image") {
    const image = element("img", { alt: name || `Example ${row}`, decoding: "async", draggable: false });
    image.addEventListener("load", () => image.classList.toggle("pixels", image.naturalWidth < SMALL));
    image.addEventListener("error", () => {
      image.replaceWith(element("p", { className: "soft" }, "This image cannot be shown."));
    });
    image.src = `image/${row}${small ? "?small" : ""}`;
    return image;
  }
  if (content.kind === "row") {
    const lines = content.cells.slice(0, small ? CELLS : undefined).map(([column, cell]) => element(
      "tr", {}, element("th", { scope: "row" }, column), element("td", {}, cell)));
    return element("table", { className: "row" }, element("tbody", {}, ...lines));
  }
  if (content.kind === "text") return element("p", { className: "text", dir: "auto" }, content.text);
  if (content.kind === "missing") return element("p", { className: "soft" }, content.text);
  return element("p", { className: "soft" }, `Row ${row}. Features alone have nothing to look at.`);
}
