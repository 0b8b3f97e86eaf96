// The headlines, one at a time: card, two buttons, keys, progress. Used by the visitors' page and the study.

import { ask, clearTrouble, Refused, showTrouble } from "./api.js";
import { glyph, hue, picture } from "./art.js";
import { h, joinWords } from "./dom.js";

// root: the element to draw in; changed(state): called with each new state; keys: further keys, letter -> action
export function makeDeck(root, { study, intro, changed, keys = {}, hints = [] }) {
  let state = null;
  let busy = false;
  let listening = true;

  const said = h("p", { class: "hidden", "aria-live": "polite" });
  const step = h("p", { class: "step" });
  const dots = h("p", { class: "dots", "aria-hidden": "true" });
  const introduction = h("p", { class: "intro" }, intro);
  const art = h("div", { class: "card-art" });
  const chips = h("ul", { class: "chips", "aria-label": "Categories" });
  const title = h("h2", { class: "headline" });
  const card = h("article", { class: "card" }, art, h("div", { class: "card-words" }, chips, title));
  const pass = h("button", { type: "button", class: "answer pass", onclick: () => answer(false) }, h("span", {}, "Pass"), key("←"));
  const open = h("button", { type: "button", class: "answer open", onclick: () => answer(true) }, h("span", {}, "Open"), key("→"));
  const trail = h("div", { class: "trail" });
  const silence = h("button", { type: "button", class: "link", "aria-pressed": "false", onclick: toggleKeys }, "Turn keys off");
  const words = ["→ or O opens", "← or P passes", ...hints].join(" · ");
  const hint = h("p", { class: "hints" }, h("span", {}, `${words} `), silence);
  root.replaceChildren(h("div", { class: "progress" }, step, dots), introduction, card, h("div", { class: "answers" }, pass, open), trail, hint, said);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || !listening || root.hidden) return;
    if (event.target.closest?.("input, select, textarea")) return;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const actions = { ArrowRight: () => answer(true), o: () => answer(true), ArrowLeft: () => answer(false), p: () => answer(false), ...keys };
    if (!actions[name]) return;
    event.preventDefault();
    actions[name]();
  });

  function toggleKeys() {
    listening = !listening;
    silence.setAttribute("aria-pressed", String(!listening));
    silence.textContent = listening ? "Turn keys off" : "Turn keys on";
    root.classList.toggle("keyless", !listening);
  }

  let again = false; // whether the last visit request asked for a new visitor

  async function visit(anew) {
    again = anew;
    await change(() => ask("page/visit", { study, again }));
  }

  async function answer(opened) {
    if (busy || !state?.offer) return;
    const { decision_id } = state.offer;
    card.dataset.going = opened ? "open" : "pass";
    await change(() => ask("page/answer", { decision_id, opened }));
  }

  async function change(request) {
    busy = true;
    for (const button of [pass, open]) button.setAttribute("aria-disabled", "true");
    try {
      show(await request());
      again = false;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      // the server knows where this visitor is, so after a refusal ask it
      showTrouble(error.message, "Try again", () => {
        clearTrouble();
        visit(again);
      });
    } finally {
      busy = false;
      delete card.dataset.going;
      for (const button of [pass, open]) button.removeAttribute("aria-disabled");
    }
  }

  function show(next) {
    const moved = state?.offer?.decision_id !== next.offer?.decision_id;
    const answered = state?.visitor === next.visitor && next.past.length > 0;
    state = next;
    root.hidden = next.done;
    if (next.offer) {
      const n = next.past.length + 1;
      step.textContent = `${n} of ${next.n_steps}`;
      introduction.hidden = n > 1;
      title.textContent = next.offer.title;
      chips.replaceChildren(...next.offer.categories.map(chip));
      art.replaceChildren(picture(next.offer));
      card.classList.toggle("arriving", false);
      if (moved) requestAnimationFrame(() => card.classList.toggle("arriving", true));
      const before = answered ? `${next.past.at(-1).opened ? "Opened" : "Passed"}. ` : "";
      said.textContent = `${before}Headline ${n} of ${next.n_steps}: ${next.offer.title}. In ${joinWords(next.offer.categories)}.`;
    }
    drawDots(dots, next);
    drawTrail(trail, next.past.at(-1));
    changed(next);
  }

  return { visit, show };
}

const key = (sign) => h("kbd", { "aria-hidden": "true" }, sign);

export const chip = (category) => h("li", { class: "chip", "--hue": hue(category) }, glyph(category), category);

export function drawDots(place, { past, n_steps, done }) {
  const dot = (i) => {
    const kind = i < past.length ? (past[i].opened ? "opened" : "passed") : i === past.length && !done ? "now" : "ahead";
    return h("span", { class: `dot ${kind}`, "--hue": i < past.length ? hue(past[i].categories[0]) : 0 });
  };
  place.replaceChildren(...Array.from({ length: n_steps }, (_, i) => dot(i)));
}

function drawTrail(place, last) {
  if (!last) return place.replaceChildren();
  const verb = h("span", { class: "trail-verb" }, last.opened ? "You opened" : "You passed");
  const parts = [h("p", {}, verb, " ", h("span", { class: "trail-title" }, last.title))];
  if (last.opened && last.summary) parts.push(h("p", { class: "trail-summary" }, last.summary));
  place.dataset.opened = String(last.opened);
  place.replaceChildren(...parts);
}
