// What the recommender believes about this visitor: the probability of each kind of reader as bars, a chart of how these
// probabilities changed, and why this article was chosen.

import { formatCount, h, joinWords, percent, s } from "./dom.js";

const SHOWN = 7; // lines in the chart; with more kinds, the last line is all others together
const LETTERS = "ABCDEFG";

const MOST_WORDS = 3; // the server sends at most this many words for a kind

export const inWords = (likes) => (likes.length ? likes.join(", ") : "a bit of everything");

// completes the sentence "readers who like ..."
export function tasteOf(words) {
  const likes = words.split(", ");
  return likes.length >= MOST_WORDS ? `${words} and the like` : joinWords(likes);
}

// the probabilities of the kinds before the first answer and after each answer: (answers + 1, kinds)
export function pathOf({ beliefs, past }) {
  return [beliefs.start, ...past.map((step) => step.posterior).filter((row) => row)];
}

// the kinds that get a line: all, or those with the highest probability at any time; [{words, letter, colour, path}]
export function kindsOf(state) {
  const path = pathOf(state);
  const n = state.beliefs.classes.length;
  const highest = state.beliefs.classes.map((_, i) => Math.max(...path.map((row) => row[i])));
  const order = highest.map((_, i) => i).sort((i, j) => highest[j] - highest[i]);
  const kept = (n > SHOWN ? order.slice(0, SHOWN - 1) : order).sort((i, j) => i - j);
  const kinds = kept.map((i, place) => ({
    words: inWords(state.beliefs.classes[i].likes),
    letter: LETTERS[place],
    colour: place,
    path: path.map((row) => row[i]),
  }));
  if (n > SHOWN) {
    const rest = path.map((row) => Math.max(0, 1 - kept.reduce((sum, i) => sum + row[i], 0)));
    kinds.push({ words: `${n - kept.length} other kinds together`, letter: LETTERS[SHOWN - 1], colour: SHOWN - 1, path: rest });
  }
  return kinds;
}

export function drawBeliefs(place, state) {
  const head = h("h2", { id: "beliefs-title" }, "What it believes about you");
  const body = !state.beliefs ? [h("p", {}, "Nothing yet.")] : state.beliefs.posterior ? aboutKinds(state) : aboutEverybody(state);
  place.replaceChildren(head, ...body, ...(state.offer ? aboutOffer(state) : []), ...moves(state));
}

function aboutKinds(state) {
  const kinds = kindsOf(state);
  const n = state.past.length;
  const lead = n
    ? `After ${formatCount(n, "answer")}, how likely it is that you are one of the readers who like …`
    : "Earlier readers came in a few kinds. Before your first answer it knows only how common each kind is: readers who like …";
  return [h("p", {}, lead), bars(kinds)];
}

function moves(state) {
  if (!state.beliefs?.posterior || !state.past.length) return [];
  return [h("h3", {}, "How its guess moved"), movement(kindsOf(state), state.past)];
}

function bars(kinds) {
  const most = Math.max(...kinds.map((kind) => kind.path.at(-1)));
  const row = (kind) => {
    const [share, before] = [kind.path.at(-1), kind.path.at(-2) ?? kind.path.at(-1)];
    const change = Math.round(100 * share) - Math.round(100 * before);
    const moved = change ? h("span", { class: "moved" }, h("span", { "aria-hidden": "true" }, change > 0 ? "▲" : "▼"), h("span", { class: "hidden" }, change > 0 ? "up " : "down "), Math.abs(change)) : null;
    return h(
      "li",
      { class: share === most ? "bar most" : "bar", "--colour": `var(--class-${kind.colour})`, "--share": before, "--start": kind.path[0], "data-share": share.toFixed(4) },
      h("span", { class: "bar-letter", "aria-hidden": "true" }, kind.letter),
      h("span", { class: "bar-words" }, kind.words),
      h("span", { class: "bar-number" }, moved, " ", percent(share)),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill" }), h("span", { class: "bar-start" })),
    );
  };
  const marks = kinds[0].path.length > 1 ? " ▲ and ▼ are what your last answer changed." : "";
  const note = h("p", { class: "fine" }, `The small mark shows where each kind started: its share among earlier readers.${marks}`);
  const list = h("ul", { class: "bars" }, kinds.map(row));
  requestAnimationFrame(() => requestAnimationFrame(() => list.childNodes.forEach((bar) => bar.style.setProperty("--share", bar.dataset.share))));
  return h("div", {}, list, note);
}

// a line per kind over the answers, with its letter at the end; letters that would overlap are moved apart
export function movement(kinds, past) {
  const [width, height, left, right, top, bottom] = [360, 190, 44, 26, 10, 34];
  const steps = Math.max(kinds[0].path.length - 1, 1);
  const x = (t) => left + ((width - left - right) * t) / steps;
  const y = (p) => top + (height - top - bottom) * (1 - p);
  const grid = [0, 0.5, 1].map((p) => s("g", {}, s("line", { class: "grid", x1: left, x2: width - right, y1: y(p), y2: y(p) }), s("text", { class: "tick", x: left - 6, y: y(p) + 4, "text-anchor": "end" }, `${100 * p} %`)));
  const marks = past.slice(0, steps).map((step, i) => s("circle", { class: step.opened ? "mark opened" : "mark passed", cx: x(i + 1), cy: height - bottom + 12, r: 3 }));
  const places = moveApart(kinds.map((kind) => y(kind.path.at(-1))), 14, top + 4, height - bottom);
  const lines = kinds.map((kind, i) => {
    const d = kind.path.map((p, t) => `${t ? "L" : "M"}${x(t).toFixed(1)} ${y(p).toFixed(1)}`).join("");
    return s(
      "g",
      { class: "line", "--colour": `var(--class-${kind.colour})` },
      s("path", { d }),
      s("circle", { cx: x(steps), cy: y(kind.path.at(-1)), r: 3 }),
      s("text", { class: "letter", x: width - right + 10, y: places[i] + 4 }, kind.letter),
    );
  });
  const ends = kinds.map((kind) => `${kind.words} from ${percent(kind.path[0])} to ${percent(kind.path.at(-1))}`);
  return h(
    "figure",
    { class: "movement" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Probability of each kind over ${formatCount(past.length, "answer")}: ${ends.join("; ")}.` }, grid, marks, lines, s("text", { class: "tick", x: left, y: height - 4 }, "your answers: ● opened, ○ passed")),
  );
}

function moveApart(values, room, low, high) {
  const order = values.map((_, i) => i).sort((i, j) => values[i] - values[j]);
  const placed = [...values];
  order.forEach((i, n) => (placed[i] = Math.max(values[i], n ? placed[order[n - 1]] + room : low)));
  [...order].reverse().forEach((i, n, back) => (placed[i] = Math.min(placed[i], n ? placed[back[n - 1]] - room : high)));
  return placed;
}

function aboutEverybody(state) {
  const weights = state.beliefs.weights.filter(([, weight]) => weight >= 0.005).slice(0, 6);
  const most = Math.max(...weights.map(([, weight]) => weight), 1e-9);
  const row = ([category, weight]) =>
    h(
      "li",
      { class: "bar", "--colour": "var(--class-0)", "--share": Math.max(0, weight / most), "--start": 0 },
      h("span", { class: "bar-words" }, category),
      h("span", { class: "bar-number" }, percent(Math.max(0, weight))),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill" })),
    );
  const lead = "One list for all visitors. It learns nothing about you in particular: all visitors share one score per category.";
  if (!weights.length) return [h("p", {}, lead), h("p", {}, "Nobody has opened anything yet, so all categories have the same score.")];
  return [h("p", {}, lead), h("ul", { class: "bars" }, weights.map(row)), h("p", { class: "fine" }, "How often an article of that category alone is expected to be opened.")];
}

function aboutOffer({ offer, beliefs }) {
  const odds = `This chance is recorded as the propensity of the draw: ${offer.propensity.toPrecision(2)}.`;
  return [h("h3", {}, "Why this headline?"), h("p", { class: "why" }, beliefs?.why ?? ""), h("p", { class: "fine odds" }, odds)];
}
