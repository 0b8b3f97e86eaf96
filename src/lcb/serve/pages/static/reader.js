// The visitors' page: twenty headlines, beside them what the recommender believes, then a summary.

import { hue } from "./art.js";
import { drawBeliefs, kindsOf, movement, tasteOf } from "./believes.js";
import { chip, drawDots, makeDeck } from "./deck.js";
import { byId, chance, formatCount, h, joinWords, percent } from "./dom.js";

const INTRO = "Open what you would read, pass on the rest. With each answer the page learns what kind of reader you are, and picks the next headline by that.";
const panel = byId("beliefs");
let state = null;

const toggle = h("button", { type: "button", class: "toggle", "aria-expanded": "false", "aria-controls": "beliefs", onclick: () => showPanel(panel.hidden) }, h("span", {}, "What it believes about you"), h("kbd", { "aria-hidden": "true" }, "B"));
const deck = makeDeck(byId("deck"), { study: false, intro: INTRO, changed, keys: { b: () => showPanel(panel.hidden) }, hints: ["B shows what it believes"] });
byId("deck").querySelector(".trail").after(toggle);
deck.visit(false);

function showPanel(shown) {
  panel.hidden = !shown;
  toggle.setAttribute("aria-expanded", String(shown));
  byId("desk").classList.toggle("with-beliefs", shown);
  if (shown && state) drawBeliefs(panel, state);
  if (shown && matchMedia("(max-width: 59.99rem)").matches) panel.scrollIntoView({ block: "start" });
}

function changed(next) {
  const finished = next.done && state !== null && !state.done;
  const moved = !next.done && state?.offer && state.offer.decision_id !== next.offer?.decision_id;
  state = next;
  byId("desk").hidden = next.done;
  byId("summary").hidden = !next.done;
  if (!next.done) byId("summary").replaceChildren();
  if (next.done) drawSummary(byId("summary"), next, finished);
  else if (!panel.hidden) drawBeliefs(panel, next);
  // on narrow screens the beliefs are below the headline: scroll back up to the next headline
  if (moved && byId("deck").getBoundingClientRect().top < 0) byId("deck").scrollIntoView({ block: "start" });
}

async function startAgain(event) {
  event.target.disabled = true; // a second click must not create a second visitor
  await deck.visit(true);
  scrollTo(0, 0);
  byId("main").focus();
}

function drawSummary(place, { past, beliefs, n_steps }, focus) {
  const opened = past.filter((step) => step.opened);
  const dots = h("p", { class: "dots", "aria-hidden": "true" });
  drawDots(dots, { past, n_steps, done: true });
  const title = h("h2", { id: "summary-title", tabindex: "-1" }, `You opened ${opened.length} of ${past.length}`);
  const again = h("button", { type: "button", class: "primary", onclick: startAgain }, "Start again as a new visitor");
  const kinds = beliefs?.posterior ? kindsOf({ beliefs, past }) : null;
  place.replaceChildren(
    dots,
    title,
    h("p", { class: "lead" }, verdict(kinds, beliefs)),
    h("p", { class: "actions" }, again),
    h("div", { class: "summary-grid" },
      h("div", { class: "summary-side" },
        h("section", { class: "sheet" }, h("h3", {}, "How it got there"), ...(kinds ? [movement(kinds, past), legend(kinds)] : []), h("p", {}, learned(past))),
        h("section", { class: "sheet" }, h("h3", {}, "What happened here"), ...explained(past, kinds)),
      ),
      h("section", { class: "sheet" }, h("h3", {}, "What you opened"), openedList(opened)),
    ),
  );
  if (focus) {
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function verdict(kinds, beliefs) {
  if (!kinds) {
    const top = (beliefs?.weights ?? []).filter(([, weight]) => weight >= 0.005).slice(0, 3).map(([category]) => category);
    return `It ranked articles by one list for all visitors, and did not try to tell what kind of reader you are.${top.length ? ` On top of the list: ${joinWords(top)}.` : ""}`;
  }
  const best = kinds.reduce((a, b) => (b.path.at(-1) > a.path.at(-1) ? b : a));
  const [end, start] = [best.path.at(-1), best.path[0]];
  const took = end >= 0.9 ? "It took you for" : end >= 0.6 ? "It thinks you are probably" : "It is not sure. Its best guess is that you are";
  const likely = percent(end).replace("<", "less than ").replace(">", "more than ");
  return `${took} one of the readers who like ${tasteOf(best.words)}. That is ${likely} likely now; before your first answer it was ${percent(start)}.`;
}

const legend = (kinds) => h("ul", { class: "legend" }, kinds.map((kind) => h("li", { "--colour": `var(--class-${kind.colour})` }, h("span", { class: "bar-letter" }, kind.letter), h("span", {}, kind.words), h("span", { class: "bar-number" }, percent(kind.path.at(-1))))));

// categories this visitor opened at least as often as passed
function liked(past) {
  const score = new Map();
  for (const { categories, opened } of past) for (const category of categories) score.set(category, (score.get(category) ?? 0) + (opened ? 1 : -1));
  const seen = new Set(past.filter((step) => step.opened).flatMap((step) => step.categories));
  return new Set([...seen].filter((category) => score.get(category) >= 0));
}

function learned(past) {
  const likes = liked(past);
  if (!likes.size) return `You passed on ${past.some((step) => step.opened) ? "nearly everything" : "everything"}, so it learned what you do not want, and little of what you do.`;
  const [early, late] = [past.slice(0, 10), past.slice(-10)].map((steps) => steps.filter((step) => step.categories.some((category) => likes.has(category))).length);
  return `You mostly opened ${joinWords([...likes].slice(0, 6))}. Of the first ${Math.min(10, past.length)} headlines, ${early} were on these topics; of the last ${Math.min(10, past.length)}, ${late}.`;
}

function openedList(opened) {
  if (!opened.length) return h("p", {}, "Nothing this time.");
  return h("ul", { class: "opened" }, opened.map((step) => h("li", { "--hue": hue(step.categories[0]) }, h("span", { class: "opened-title" }, step.title), step.summary ? h("span", { class: "opened-summary" }, step.summary) : null, h("ul", { class: "chips small", "aria-label": "Categories" }, step.categories.map(chip)))));
}

function explained(past, kinds) {
  const mean = past.reduce((sum, step) => sum + step.propensity, 0) / Math.max(past.length, 1);
  const words = [];
  if (kinds) {
    words.push(`The page knew nothing about you at first. But earlier readers had shown that people come in a few kinds (${formatCount(kinds.length, "kind")} here), each with its own taste. So the page did not have to learn your taste from nothing; it only had to find out which kind you are.`);
    words.push("When you opened an article, the kinds that like such articles became more likely; when you passed, they became less likely. Now and then it offered something for a less likely kind, in case its guess was wrong.");
  } else {
    words.push("Each answer, yours and everybody else’s, changes one shared list of scores. The article at the top is offered next; categories that were rarely tried get a bonus.");
  }
  words.push(mean < 1 ? `Each headline was drawn at random, with a higher chance for what the page thought you like, and its chance was recorded (${chance(mean)} on average). With these records one can estimate later how well another way of choosing would have worked, without asking you again.` : "No headline was drawn at random: the one at the top of the list was always offered.");
  return words.map((text) => h("p", {}, text));
}
