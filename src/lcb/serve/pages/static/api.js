// Requests to the page's own server. If the network fails or the server is busy, the same request is sent again later;
// a refusal is shown.

import { byId, h } from "./dom.js";

const PATIENCE = 10_000; // milliseconds for one answer
const LONGEST_WAIT = 10; // seconds between two tries

export class Refused extends Error {
  constructor(problem) {
    super(sentence(problem.detail ?? problem.title ?? `The server answered ${problem.status}`));
    this.status = problem.status;
  }
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

async function sendOnce(path, body) {
  const stop = AbortSignal.timeout(PATIENCE);
  const settings = { headers: { Accept: "application/json" }, signal: stop, credentials: "same-origin" };
  if (body !== undefined) {
    settings.method = "POST";
    settings.headers["Content-Type"] = "application/json";
    settings.body = JSON.stringify(body);
  }
  const answer = await fetch(path, settings);
  const read = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (answer.ok) return read;
  const refused = new Refused({ ...read, status: answer.status });
  refused.after = Number(answer.headers.get("Retry-After")) || 0;
  throw refused;
}

const isTemporary = (error) => !(error instanceof Refused) || [429, 502, 503, 504].includes(error.status);

export async function ask(path, body) {
  for (let n = 0; ; n += 1) {
    try {
      const answer = await sendOnce(path, body);
      if (n) clearTrouble();
      return answer;
    } catch (error) {
      if (!isTemporary(error)) throw error;
      const wait = Math.min(error.after || 2 ** n, LONGEST_WAIT);
      const said = error instanceof Refused ? error.message : "The server does not answer just now.";
      await showAndWait(said, wait);
    }
  }
}

function showAndWait(said, seconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    const now = () => {
      clearTimeout(timer);
      resolve();
    };
    showTrouble(`${said} Your place is kept; this page keeps trying.`, "Try now", now);
  });
}

export function showTrouble(words, label, action) {
  const place = byId("trouble");
  place.hidden = false;
  const old = place.querySelector("p");
  if (old?.textContent !== words) place.replaceChildren(h("p", { role: "status" }, words));
  place.querySelector("button")?.remove();
  place.append(h("button", { type: "button", onclick: action }, label));
  const status = place.querySelector("p");
  if (old?.textContent !== words) {
    status.textContent = ""; // a status region is announced when its text changes
    requestAnimationFrame(() => (status.textContent = words));
  }
}

export function clearTrouble() {
  const place = byId("trouble");
  const focused = place.contains(document.activeElement);
  place.hidden = true;
  place.replaceChildren();
  if (focused) byId("main").focus();
}
