// What the page asks the server for. Addresses are relative: the token is in the page's own.

const GONE = "The server does not answer. Start labelnoise review again and open the address that " +
  "it prints: all answers that were recorded are kept.";

export class Refusal extends Error {
  constructor(message, current) {
    super(message);
    this.current = current; // newer answers, if somebody else was first
  }
}

async function json(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refusal(GONE);
  }
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(content.error ?? `The server refused: ${response.status}`, content.current);
  return content;
}

export const ask = (path, parameters = {}) => json(`api/${path}?${new URLSearchParams(parameters)}`);

export const send = (path, body) => json(`api/${path}`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});

export const find = (id) => document.getElementById(id);

let fading;
export function say(text, isError = false) {
  const status = find("status");
  status.textContent = text;
  status.className = isError ? "shown error" : "shown";
  clearTimeout(fading);
  if (!isError) fading = setTimeout(() => { status.className = ""; }, 2500);
}

// Runs one thing at a time: keys that come meanwhile wait for their turn.
let last = Promise.resolve();
export function inTurn(work) {
  last = last.then(work).catch((error) => say(error.message, true));
  return last;
}

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

// A name in its own direction of writing, so that it does not turn the sentence around.
export const isolated = (name) => element("bdi", {}, name);

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;

// A chance is never shown as certain.
export const likely = (chance) => (chance > 0.99 ? "> 99%" : percent(chance, 0));
