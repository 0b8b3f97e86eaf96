// The study: consent, twenty headlines without naming the recommender, thanks, results.

import { ask, clearTrouble, Refused, showTrouble } from "./api.js";
import { makeDeck } from "./deck.js";
import { byId, formatCount, h, s } from "./dom.js";

const NAMES = { lcb: "LCB", population: "Population LinUCB", "linucb-population": "Population LinUCB" };
const named = (name) => NAMES[name] ?? name;
const views = ["consent", "deck", "thanks"];
let again = false;
let polling = false;

const deck = makeDeck(byId("deck"), { study: true, intro: "Open what you would read, pass on the rest.", changed });
byId("start").addEventListener("click", start);
byId("look").addEventListener("click", () => showResults(true));
byId("next-person").addEventListener("click", handOver);
byId("simulate").addEventListener("submit", simulate);
resume();

function view(name) {
  for (const id of views) byId(id).hidden = id !== name;
}

// nothing is stored before consent; this only asks whether the visitor has started already
async function resume() {
  const kept = await ask("page/visit?study=true").catch((error) => showTrouble(error.message, "Try again", () => location.reload()));
  if (kept?.visitor) deck.show(kept);
  byId("ways").hidden = !(kept?.n_ways > 1);
  if (location.hash === "#results") showResults(true);
}

async function start() {
  byId("results").hidden = true;
  view("deck");
  await deck.visit(again);
  again = false;
  scrollTo(0, 0);
  byId("main").focus({ preventScroll: true });
}

function handOver() {
  again = true;
  byId("results").hidden = true;
  view("consent");
  scrollTo(0, 0);
  byId("consent-title").focus({ preventScroll: true });
}

function changed(next) {
  view(next.done ? "thanks" : "deck");
  if (!next.done) return;
  const opened = next.past.filter((step) => step.opened).length;
  byId("thanks-words").textContent = `You opened ${opened} of ${next.past.length}. Your answers are counted in the table below, without your name.`;
  scrollTo(0, 0);
  byId("thanks-title").focus({ preventScroll: true });
  showResults(false);
}

async function showResults(focus) {
  byId("results").hidden = false;
  await refresh();
  if (focus) {
    byId("results-title").scrollIntoView({ block: "start" });
    byId("results-title").focus({ preventScroll: true });
  }
  watch();
}

async function refresh() {
  const results = await ask("page/study/results");
  fill(byId("here"), results.recommenders);
  const place = ({ name }) => results.recommenders.findIndex((row) => named(row.name) === named(name));
  results.paper.sort((a, b) => place(a) - place(b)); // so that both tables have the same order
  fill(byId("paper"), results.paper);
  byId("difference").textContent = compared(results);
  byId("results-chart").replaceChildren(chart(results));
}

const three = (value) => (value == null ? "–" : value.toFixed(3).replace("-", "−"));

function fill(table, rows) {
  const line = (row) => h("tr", {}, h("th", { scope: "row" }, named(row.name)), h("td", { class: "num" }, row.users, row.simulated ? h("span", { class: "fine" }, ` (${row.simulated} simulated)`) : null), h("td", { class: "num" }, three(row.mean)), h("td", { class: "num" }, row.deviation == null ? "–" : `± ${three(row.deviation)}`));
  const empty = h("tr", {}, h("td", { colspan: 4 }, "Nobody has finished yet."));
  table.tBodies[0].replaceChildren(...(rows.length ? rows.map(line) : [empty]));
}

function compared({ difference, recommenders }) {
  const n = recommenders.reduce((sum, row) => sum + row.users, 0);
  if (!n) return "Nobody has finished yet. Be the first, or add simulated visitors below.";
  const made = recommenders.reduce((sum, row) => sum + (row.simulated ?? 0), 0);
  const who = made ? `${formatCount(n, "visitor")} so far, ${made === n ? "all" : made} of them simulated` : `${formatCount(n, "visitor")} so far`;
  if (recommenders.length < 2) return `${who}.`;
  if (!difference) return `${who}, too few to compare.`;
  const { of, to, mean, low, high } = difference;
  const words = `${who}. Those with ${named(of)} opened ${hundredths(Math.abs(mean))} ${mean < 0 ? "fewer" : "more"} of 100 headlines than those with ${named(to)}`;
  const clear = low > 0 || high < 0 ? "" : ", so there may be no difference";
  return `${words} (95 % interval ${hundredths(low)} to ${hundredths(high)}${clear}).`;
}

const hundredths = (value) => (100 * value).toFixed(1).replace("-", "−");

// a dot for the mean, a bar of one standard deviation to both sides
function chart({ recommenders, paper }) {
  const rows = [...recommenders.map((row) => ({ ...row, where: "here" })), ...paper.map((row) => ({ ...row, where: "published" }))].filter((row) => row.mean != null);
  const narrow = matchMedia("(max-width: 40rem)").matches; // names are above their lines on narrow screens
  const [width, left, step, top] = narrow ? [360, 12, 56, 4] : [640, 250, 34, 12];
  const high = Math.min(1, Math.max(0.6, ...rows.map((row) => row.mean + (row.deviation ?? 0))));
  const x = (value) => left + ((width - left - 20) * Math.max(0, Math.min(value, high))) / high;
  const bottom = top + step * rows.length;
  const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1].filter((value) => value <= high + 1e-9);
  const grid = ticks.map((value) => s("g", {}, s("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: bottom }), s("text", { class: "tick", x: x(value), y: bottom + 18, "text-anchor": "middle" }, value.toFixed(1))));
  const marks = rows.map((row, i) => {
    const y = top + step * (i + (narrow ? 0.7 : 0.5));
    const colour = `var(--class-${named(row.name) === "LCB" ? 0 : 1})`;
    return s(
      "g",
      { class: `estimate ${row.where}`, "--colour": colour },
      s("text", { class: "estimate-name", x: narrow ? left : left - 14, y: narrow ? y - 16 : y + 5, "text-anchor": narrow ? "start" : "end" }, `${named(row.name)}, ${row.where}`),
      s("line", { x1: x(row.mean - (row.deviation ?? 0)), x2: x(row.mean + (row.deviation ?? 0)), y1: y, y2: y }),
      s("circle", { cx: x(row.mean), cy: y, r: 7 }),
    );
  });
  const said = rows.map((row) => `${named(row.name)} ${row.where} ${three(row.mean)}`).join(", ");
  return h("figure", {}, s("svg", { viewBox: `0 0 ${width} ${bottom + 28}`, role: "img", "aria-label": `Share opened, mean and one standard deviation to each side: ${said}.` }, grid, marks), h("figcaption", { class: "fine" }, "Share of headlines opened: the mean, and one standard deviation over visitors to each side."));
}

async function simulate(event) {
  event.preventDefault();
  try {
    await ask("page/study/visitors", { n: byId("count").valueAsNumber });
    clearTrouble();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    showTrouble(error.message, "Close", clearTrouble);
    return;
  }
  watch();
}

async function watch() {
  if (polling) return;
  polling = true;
  let wasRunning = false;
  try {
    for (;;) {
      const { running, done, may } = await ask("page/study/visitors");
      byId("simulate").hidden = !may; // only for clients that may add visitors
      if (wasRunning || running) await refresh();
      const all = running + done;
      byId("simulate-state").hidden = !wasRunning && !running;
      byId("simulate-words").textContent = running ? `${done} of ${all} have finished` : `All ${all} have finished`;
      byId("simulate-bar").max = Math.max(all, 1);
      byId("simulate-bar").value = done;
      if (running && !wasRunning) byId("simulate-said").textContent = `${formatCount(running, "simulated visitor")} added.`;
      if (!running) {
        if (wasRunning) byId("simulate-said").textContent = `All ${all} simulated visitors have finished. ${byId("difference").textContent}`;
        break;
      }
      wasRunning = true;
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  } finally {
    polling = false;
  }
}
