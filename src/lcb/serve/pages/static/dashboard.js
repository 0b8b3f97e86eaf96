// The dashboard: reads one stream of server-sent events and shows each of its fields as a chart or a table.

import { Chart } from "./embed.js";
import { $, bytes, call, duration, el, milliseconds, number, percent, rounded, say, seconds, session, time, unit } from "./operator.js";

const RATES_FOR = 300; // seconds; older rates are dropped
const CTR_ROWS = 2000; // most rows of click rates kept, the latest
const QUICK = 900; // milliseconds between two drawings of the rates; other charts change more slowly
const HIDDEN_FOR = 30_000; // milliseconds in the background until the stream is closed
const SILENT_FOR = 10_000; // milliseconds without an event until it counts as broken

const charts = {};
const last = {}; // field -> its value as shown now, as JSON
const ctr = new Map(); // "t recommender model" -> row
let rates = [];
let mayChange = true; // false for keys of scope reader

// The stream

let source = null;
let silence = 0;
let away = 0;
let attempt = 0;
let again = 0;

function connect() {
  disconnect();
  source = new EventSource("/page/dashboard/events");
  source.addEventListener("state", (event) => {
    attempt = 0;
    status("live", "Live");
    listen();
    try {
      take(JSON.parse(event.data));
    } catch (error) {
      console.error(error);
      say(`An event could not be shown: ${error.message}`);
    }
  });
  source.addEventListener("error", retry);
  listen();
}

function listen() {
  clearTimeout(silence);
  silence = setTimeout(retry, SILENT_FOR);
}

function disconnect() {
  clearTimeout(silence);
  clearTimeout(again);
  source?.close();
  source = null;
}

/** After the stream broke, try again in 1, 2, 4, ... 30 seconds; if the session has ended, show the sign-in form. */
function retry() {
  disconnect();
  const wait = Math.min(30, 2 ** attempt++);
  status("broken", `Connection lost; trying again in ${wait}\u202fs`);
  again = setTimeout(async () => {
    try {
      const now = await call("/page/session");
      if (now.needs_key) location.reload();
      else connect();
    } catch {
      retry();
    }
  }, 1000 * wait);
}

function status(kind, text) {
  const pill = $("stream");
  if (pill.textContent === text) return;
  pill.className = `pill ${kind}`;
  pill.textContent = text;
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(away);
  if ($("board").hidden) return;
  if (document.hidden) {
    away = setTimeout(() => {
      disconnect();
      status("paused", "Paused while hidden");
    }, HIDDEN_FOR);
  } else if (!source) {
    attempt = 0;
    status("", "Connecting …");
    connect();
  }
});

// Showing the fields

function take(state) {
  if (state.rates) showRates(state.rates);
  if (state.ctr) showCtr(state.ctr);
  for (const [field, show] of Object.entries(SHOW)) {
    if (state[field] === undefined) continue;
    const text = JSON.stringify(state[field]);
    if (text === last[field]) continue; // an unchanged table is not drawn again, so it keeps the focus
    last[field] = text;
    show(state[field]);
  }
}

function showRates(points) {
  const from = points.length && rates.length ? rates.at(-1).t : -Infinity;
  rates.push(...points.filter((point) => point.t > from));
  const now = rates.at(-1);
  if (!now) return;
  rates = rates.filter((point) => point.t > now.t - RATES_FOR).slice(-2 * RATES_FOR);
  charts.rates.show(rates);
  const recent = rates.filter((point) => point.t > now.t - 10);
  const mean = (field) => recent.reduce((sum, point) => sum + point[field], 0) / recent.length;
  $("tile-decisions").textContent = unit(mean("decisions"), "/s", mean("decisions") < 100 ? 1 : 0);
  $("tile-rewards").textContent = unit(mean("rewards"), "/s", mean("rewards") < 100 ? 1 : 0);
}

function showCtr(points) {
  for (const point of points) {
    const key = `${point.t} ${point.recommender} ${point.model}`;
    ctr.delete(key);
    ctr.set(key, point);
  }
  for (const key of ctr.keys()) {
    if (ctr.size <= CTR_ROWS) break;
    ctr.delete(key); // the oldest row, because a Map keeps the order of insertion
  }
  charts.ctr.show([...ctr.values()]);
}

const TRENDS = { rising: "↑\u00a0rising", falling: "↓\u00a0falling", open: "too early to say" };

const SHOW = {
  uptime: (uptime) => ($("tile-uptime").textContent = duration(uptime)),

  requests: ({ p50_ms, p99_ms, errors }) => {
    $("tile-p50").textContent = milliseconds(p50_ms);
    $("tile-p99").textContent = milliseconds(p99_ms);
    $("tile-errors").textContent = number(errors);
    $("tile-errors").classList.toggle("bad", errors > 0);
  },

  classes: (classes) => {
    $("chart-classes").hidden = !classes;
    if (!classes) {
      $("classes-model").textContent = "none yet: one LinUCB decides for all users until enough of them have given rewards";
      $("classes-words").replaceChildren();
      return;
    }
    const { model, pi, words, chart } = classes;
    $("classes-model").textContent = `model version ${model}`;
    const rows = pi.map((share, h) => el("li", {}, el("b", {}, `${percent(share)} `), words?.[h] ?? `class ${h + 1}`));
    $("classes-words").replaceChildren(...rows);
    if (!chart) return;
    if (charts.classes) charts.classes.replace(chart);
    else charts.classes = new Chart($("chart-classes"), chart);
  },

  mixture: (mixture) => {
    $("mixture").hidden = !mixture;
    if (!mixture) return;
    if (last.classes === "null") $("classes-model").textContent = "no model version: those of the mixture are below";
    const { name, n_left, n_classes, n_ever, rows } = mixture;
    $("mixture-note").textContent =
      `mixture of ${name}: ${number(n_left)} users have left; ${number(n_classes)} classes now, ${number(n_ever)} ever; the rest of the share is for a class that nobody has been seen of`;
    charts.mixture.show(rows);
  },

  concentration: (rows) => charts.concentration.show(rows),
  users_per_model: (rows) => charts.users_per_model.show(rows),

  models: (models) => {
    const scored = models.filter((model) => model.score != null);
    charts.scores.show(
      scored.map(({ created, version, score, active }) => ({ t: seconds(created), model: version, score, active: +active })),
    );
    const active = models.find((model) => model.active);
    $("tile-model").textContent = active ? `v${active.version}` : "none";
    $("models").replaceChildren(...models.toSorted((a, b) => b.version - a.version).map(modelRow));
  },

  retraining: ({ running, phase, done, total, started, error }) => {
    const bar = $("retraining-progress");
    bar.hidden = !running;
    if (total > 0) Object.assign(bar, { max: total, value: done });
    else bar.removeAttribute("value");
    $("retrain").disabled = running || !mayChange;
    const share = total > 0 ? `, ${percent(done / total)}` : "";
    const since = started ? `, for ${duration(Date.now() / 1000 - seconds(started))}` : "";
    const text = running ? `${phase ?? "running"}${share}${since}` : error ? `Retraining failed: ${error}` : "";
    $("retraining-text").textContent = text;
    $("retraining-text").classList.toggle("error", !running && Boolean(error));
  },

  slowest: (requests) => {
    const rows = requests.map(({ route, ms, at }) => row([route], [milliseconds(ms), "n"], [time(at)]));
    fill("slowest", rows, 3, "No requests yet.");
  },

  trial: (arms) => {
    const rows = arms.map(({ name, share, users, mean, deviation }) =>
      row([name], [percent(share), "n"], [number(users), "n"], [number(mean, 3), "n"], [number(deviation, 3), "n"]),
    );
    fill("trial", rows, 5, "There is no trial: all users have the same recommender.");
  },

  items: (items) => {
    charts.items.show(items);
    const rows = items.map(({ item, kind, effect, rewards, offers, rate, trend }) =>
      row([item], [kind], [number(effect, 3), "n"], [number(rewards), "n"], [number(offers), "n"],
        [rate === null ? "" : number(rate, 3), "n"], [kind === "new" ? TRENDS[trend] : ""]),
    );
    fill("items", rows, 7, "No version has item effects yet.");
  },

  item_rates: (rows) => charts.item_rates.show(rows),

  audit: (entries) => {
    const rows = entries.map(({ time: at, key, address, action, n }) =>
      row([at], [key ?? ""], [address ?? ""], [action], [number(n), "n"]),
    );
    fill("audit", rows, 5, "Nothing yet.");
  },

  store: ({ kind, events, archived, compacted_at, bytes: size, healthy, queue, last_commit_ms, detail }) => {
    $("tile-log").textContent = bytes(size);
    $("tile-store").textContent = healthy ? "healthy" : "failing";
    $("tile-store").className = healthy ? "good" : "bad";
    const facts = [
      ["Kind", kind],
      ["Health", healthy ? "healthy" : "failing"],
      ["Events", number(events)],
      ...(archived ? [["Archived events", number(archived)], ["Archived", time(compacted_at)]] : []),
      ["Size", bytes(size)],
      ["Waiting for a commit", number(queue)],
      ["Last commit took", milliseconds(last_commit_ms)],
      ...(detail ? [["Detail", detail]] : []),
    ];
    $("store").replaceChildren(...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  },
};

function row(...cells) {
  const [[first], ...rest] = cells;
  return el("tr", {}, el("th", { scope: "row" }, first), ...rest.map(([value, kind]) => el("td", { class: kind }, value)));
}

function fill(id, rows, columns, nothing) {
  const empty = el("tr", {}, el("td", { colspan: columns, class: "note" }, nothing));
  $(id).replaceChildren(...(rows.length ? rows : [empty]));
}

function modelRow({ version, status: state, created, n_users, score, reason, active }) {
  const cells = [
    el("th", { scope: "row" }, `v${version}`),
    el("td", {}, active || state === "canary" ? el("span", { class: "pill live" }, active ? "active" : state) : state ?? ""),
    el("td", {}, time(created)),
    el("td", { class: "n" }, number(n_users)),
    el("td", { class: "n" }, rounded(score)),
    el("td", {}, reason ?? ""),
  ];
  const action = el("td", { class: "n" });
  if (mayChange && !active && state !== "damaged") {
    const button = el("button", { class: "quiet", type: "button" }, "Activate ", el("span", { class: "away" }, `version ${version}`));
    button.addEventListener("click", () => activate(version));
    action.append(button);
  }
  return el("tr", { class: active ? "active" : null }, ...cells, action);
}

// Actions

function ask(title, text, yes) {
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  const dialog = $("confirm");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
  });
}

async function attempted(path, body) {
  say("");
  try {
    await call(path, body);
  } catch (error) {
    if (error.status === 401) location.reload();
    else say(error.message);
  }
}

async function activate(version) {
  const now = $("tile-model").textContent;
  const text = `From the next decision on, new users get version ${version} instead of ${now}, and so do all users who are not pinned to a version.`;
  if (await ask(`Activate version ${version}?`, text, `Activate v${version}`)) {
    await attempted("/page/dashboard/activate", { version });
  }
}

$("retrain").addEventListener("click", async () => {
  const text = "A new version is learned from the whole log in the background; the active version stays in use meanwhile.";
  if (!(await ask("Retrain now?", text, "Retrain"))) return;
  SHOW.retraining({ running: true, phase: "requested" }); // until the stream reports the progress
  await attempted("/page/dashboard/retrain", {});
  setTimeout(() => SHOW.retraining(JSON.parse(last.retraining ?? '{"running": false}')), 2000);
});

$("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const user = $("find-user").value.trim();
  if (user) location.assign(`/users/${encodeURIComponent(user)}`);
});

$("sign-out").addEventListener("click", async () => {
  await attempted("/page/logout", {});
  location.reload();
});

async function start() {
  status("", "Waiting for a key");
  const now = await session();
  mayChange = now.role !== "reader";
  $("retrain").hidden = !mayChange;
  $("sign-out").hidden = !now.signed_in;
  status("", "Connecting …");
  const { charts: specs } = await call("/page/dashboard/charts");
  $("board").hidden = false; // before charts are drawn, because they take the width of their container
  for (const [name, spec] of Object.entries(specs)) {
    const holder = $(`chart-${name}`);
    if (holder) charts[name] = new Chart(holder, spec, name === "rates" ? QUICK : undefined);
  }
  for (const [id, columns] of [["trial", 5], ["slowest", 3]]) fill(id, [], columns, "Nothing yet.");
  connect();
}

start().catch((error) => {
  status("broken", "Not connected");
  $("board").hidden = false;
  say(error.message);
});
