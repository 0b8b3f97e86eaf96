// One user's story: each decision with what was offered, chosen, and learned from it.

import { Chart } from "./embed.js";
import { $, call, el, number, percent, rounded, say, session, time } from "./operator.js";

const AT_ONCE = 50; // rows added to the table per click
const BANDS = 8; // classes with their own colour, as in the chart above
const user = decodeURIComponent(location.pathname.split("/").filter(Boolean).at(-1));
const path = `/page/users/${encodeURIComponent(user)}`;

function facts(story) {
  const { decisions } = story;
  const rewarded = decisions.filter((decision) => decision.reward !== null);
  const mean = rewarded.reduce((sum, decision) => sum + decision.reward, 0) / rewarded.length;
  const latest = decisions.findLast((decision) => decision.posterior)?.posterior;
  const h = latest ? latest.indexOf(Math.max(...latest)) : -1;
  const rows = [
    ["Recommender", story.recommender],
    ["Model version", story.model == null ? "none" : `v${story.model}`],
    ["Decisions", number(decisions.length)],
    ["Rewards", number(rewarded.length)],
    ["Mean reward", rounded(mean)],
    ...(latest ? [["Most probable class", `${className(story, h)}, ${percent(latest[h])}`]] : []),
  ];
  $("facts").replaceChildren(...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

const className = (story, h) => story.classes?.[h] || `class ${h + 1}`;

/** Return class -> colour band for the classes whose probability was highest at any time. */
function bandsOf(decisions) {
  const most = [];
  for (const { posterior } of decisions) posterior?.forEach((p, h) => (most[h] = Math.max(most[h] ?? 0, p)));
  const ranked = most.map((p, h) => [p, h]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const kept = ranked.slice(0, BANDS).map(([, h]) => h).sort((a, b) => a - b);
  return new Map(kept.map((h, band) => [h, band]));
}

function posterior(story, bands, shares) {
  if (!shares) return "";
  const order = shares.map((p, h) => [p, h]).sort((a, b) => b[0] - a[0]);
  const said = order.slice(0, 3).filter(([p]) => p >= 0.005).map(([p, h]) => `${className(story, h)} ${percent(p)}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 100 10", preserveAspectRatio: "none", class: "posterior", "aria-hidden": "true" })) {
    svg.setAttribute(name, value);
  }
  let x = 0;
  shares.forEach((p, h) => {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const place = { x: 100 * x, width: 100 * p, y: 0, height: 10, class: `band-${bands.get(h) ?? "rest"}` };
    for (const [name, value] of Object.entries(place)) rect.setAttribute(name, value);
    if (p > 0.001) svg.append(rect);
    x += p;
  });
  return el("div", { class: "belief" }, svg, el("span", { class: "note" }, said[0] ?? ""), el("span", { class: "away" }, said.slice(1).join(", ")));
}

function offered(arms, arm, n) {
  const list = () => el("ul", { class: "arms" }, ...arms.map((id) => el("li", { class: id === arm ? "chosen" : null }, String(id))));
  if (arms.length <= 4) return list();
  const details = el("details", {}, el("summary", {}, n === arms.length ? `${n} arms` : `${n} arms, ${arms.length} named here`));
  details.addEventListener("toggle", () => details.children.length === 1 && details.append(list()), { once: true });
  return details;
}

const REASONS = {
  liked: () => "liked most",
  popular: () => "liked by everybody",
  new: () => "nobody has answered to it yet",
  informative: () => "its answer tells most",
  drawn: (propensity) => `drawn from the posterior, chance ${number(100 * propensity, 0)} %`,
};

function decisionRow(story, bands, decision, index) {
  const { at, arms, arm, arm_title: title, propensity, policy, reward, erased } = decision;
  const first = el("th", { scope: "row", class: "n", title: decision.decision_id }, number(index + 1));
  if (erased) return el("tr", {}, first, el("td", {}, time(at)), el("td", { colspan: 7, class: "note" }, "erased"));
  const name = title ? [title, " ", el("span", { class: "note" }, String(arm))] : [String(arm)];
  return el(
    "tr",
    {},
    first,
    el("td", {}, time(at)),
    el("td", { class: "chosen-arm" }, ...name),
    el("td", {}, offered(arms, arm, decision.n_arms), decision.rules ? el("div", { class: "note rules" }, decision.rules) : ""),
    el("td", { class: "n" }, number(propensity, 3)),
    el("td", {}, policy ? `${policy}${decision.model ? ` v${decision.model}` : ""}` : ""),
    el("td", {}, REASONS[decision.reason]?.(propensity) ?? ""),
    el("td", { class: "n" }, reward === null ? el("span", { class: "note" }, "waiting") : rounded(reward)),
    el("td", {}, posterior(story, bands, decision.posterior)),
  );
}

function show(story) {
  facts(story);
  if (story.chart) {
    $("posterior").hidden = false;
    new Chart($("chart-posterior"), story.chart);
  }
  const bands = bandsOf(story.decisions);
  $("table").classList.toggle("without-reasons", !story.decisions.some((decision) => decision.reason));
  let shown = 0;
  const more = () => {
    const next = story.decisions.slice(shown, shown + AT_ONCE);
    $("decisions").append(...next.map((decision, i) => decisionRow(story, bands, decision, shown + i)));
    shown += next.length;
    $("more").hidden = shown >= story.decisions.length;
    $("shown").textContent = shown < story.decisions.length ? `first ${number(shown)} of ${number(story.decisions.length)}` : "";
  };
  $("more").addEventListener("click", more);
  more();
  if (!shown) $("decisions").append(el("tr", {}, el("td", { colspan: 9, class: "note" }, "No decisions yet.")));
}

async function verify() {
  const result = $("verified");
  $("verify").disabled = true;
  result.className = "note";
  result.textContent = "Recomputing …";
  $("differences").hidden = true;
  try {
    const { checked, equal, erased = 0, differences } = await call(`${path}/verify`, {});
    const apart = erased ? `; ${number(erased)} erased` : "";
    const same = equal === checked;
    result.className = same ? "good" : "error";
    result.textContent = same
      ? `All ${number(checked)} decisions were recomputed from the log and have the same arm and propensity${apart}.`
      : `${number(checked - equal)} of ${number(checked)} decisions recomputed from the log differ${apart}:`;
    const lines = differences.slice(0, 100).map((line) => el("li", {}, typeof line === "string" ? line : JSON.stringify(line)));
    $("differences").replaceChildren(...lines);
    $("differences").hidden = !lines.length;
  } catch (error) {
    result.className = "error";
    result.textContent = error.message;
  }
  $("verify").disabled = false;
}

async function start() {
  document.title = `${user} · lcb`;
  $("title").textContent = `User ${user}`;
  await session();
  const story = await call(`${path}/story`);
  $("board").hidden = false;
  show(story);
  $("verify").addEventListener("click", verify);
  if (location.hash === "#verify") verify();
}

start().catch((error) => say(error.status === 404 ? `There is no user ${user}.` : error.message));
