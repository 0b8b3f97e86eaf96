// A chart of lcb.charts in the page: its view is built once, new rows replace the old; dark if the browser prefers dark.

import { CHARTS } from "./palette.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const SURFACE = channels(CHARTS.dark.surface); // background of dark charts
const DARK = Object.fromEntries(Object.entries(CHARTS.light).map(([name, light]) => [light, CHARTS.dark[name]]));
const OPTIONS = {
  ast: true, // Vega interprets expressions: the page needs no exception in its content security policy
  defaultStyle: false, // styles are in dashboard.css: no unsafe-inline
  tooltip: { disableDefaultStyle: true },
  actions: false,
  renderer: "canvas",
  logLevel: 1, // errors
};
const PAUSE = 5000; // milliseconds between two drawings of a chart, unless the chart has its own pause
const KEPT = 200; // removed rows that Vega may keep in memory; its default of 10,000 costs 50 MB in a live chart
const RENEW = 300; // updates after which a new view is built, to free memory that Vega does not release
const BESIDE = 440; // pixels; a chart at least as wide has its labels beside it

let vega = null;
let tries = 0;

/** Load Vega; after a failure the next call tries another URL, because browsers remember a failed import. */
function loadVega() {
  vega ??= import(tries ? `./vega.js?${tries}` : "./vega.js").catch((error) => {
    vega = null;
    tries += 1;
    throw error;
  });
  return vega;
}

loadVega().catch(() => {}); // the first drawing reports the error

/**
 * The chart in `holder`.  `show(rows)` replaces its rows and may be called often: the chart is drawn only while it is
 * visible, and at most once per `pause` milliseconds.  A chart whose specification contains its rows needs no `show`.
 */
export class Chart {
  constructor(holder, spec, pause = PAUSE) {
    Object.assign(this, { holder, spec, pause, rows: [], result: null, key: "", updates: 0 });
    Object.assign(this, { near: true, changed: true, drawing: false, drawn: -Infinity, timer: 0 });
    this.live = spec.data?.name === "table";
    this.again = () => this.replace(this.spec);
    dark.addEventListener("change", this.again);
    new IntersectionObserver((entries) => {
      this.near = entries.at(-1).isIntersecting;
      this.plan();
    }, { rootMargin: "300px" }).observe(holder);
    new ResizeObserver(() => {
      if (this.live && this.result && this.key !== this.shape()) this.now();
    }).observe(holder);
    this.plan();
  }

  /** Draw another specification in the same place. */
  replace(spec) {
    this.spec = spec;
    this.updates = RENEW;
    this.now();
  }

  /** Draw without waiting for the pause to end. */
  now() {
    this.changed = true;
    this.drawn = -Infinity;
    if (!this.drawing) {
      clearTimeout(this.timer);
      this.timer = 0;
    }
    this.plan();
  }

  show(rows) {
    this.rows = rows;
    this.changed = true;
    this.plan();
  }

  plan() {
    this.holder.classList.toggle("empty", this.live && !this.rows.length && !this.result);
    if (this.timer || !this.changed || !this.near || (this.live && !this.rows.length && !this.result)) return;
    const wait = Math.max(0, this.drawn + this.pause - performance.now());
    this.timer = setTimeout(async () => {
      this.changed = false;
      this.drawing = true;
      try {
        await this.draw();
      } catch (error) {
        console.error(error);
      }
      this.drawn = performance.now();
      this.drawing = false;
      this.timer = 0;
      this.plan(); // draw again if rows arrived meanwhile
    }, wait);
  }

  async draw() {
    const rows = this.rows.map((row) => ({ ...row })); // copies, because Vega changes the rows
    const fresh = !this.result || this.updates >= RENEW;
    if (fresh) await this.embed(rows);
    if (!this.live) return;
    const { view } = this.result;
    if (!fresh) view.data("table", rows);
    this.updates += 1;
    const key = this.shape();
    if (key !== this.key) {
      if ("beside" in view.getState().signals) view.signal("beside", this.holder.clientWidth >= BESIDE);
      view.resize(); // labels or width have changed
    }
    this.key = key;
    await view.runAsync();
  }

  /** Draw a new view behind the visible one, then replace that one. */
  async embed(rows) {
    const spec = dark.matches ? toDark(this.spec) : structuredClone(this.spec);
    if (this.live) spec.data.values = rows;
    const { vegaEmbed } = await this.library();
    const place = document.createElement("div");
    place.className = "coming";
    this.holder.append(place);
    const result = await vegaEmbed(place, spec, OPTIONS);
    result.view.cleanThreshold = KEPT;
    this.result?.finalize();
    this.holder.replaceChildren(place);
    place.classList.remove("coming");
    Object.assign(this, { result, updates: 0, key: "" });
  }

  async library() {
    try {
      return await loadVega();
    } catch (error) {
      this.changed = true; // try again at the next drawing
      throw error;
    }
  }

  /** A key that changes when the labels need another layout. */
  shape() {
    const names = new Set(this.rows.map((row) => `${row.recommender ?? ""} ${row.model ?? ""}`));
    return [this.holder.clientWidth >= BESIDE, ...[...names].sort()].join();
  }
}

/** Return the specification in dark colours; rows and the colour scales of quantities are not changed. */
function toDark(spec) {
  const walk = (part, key) => {
    if (Array.isArray(part)) return part.map((item) => walk(item, key));
    if (typeof part === "string") return DARK[part] ?? (/^#[0-9a-f]{6}$/i.test(part) ? lighten(part) : part);
    if (part === null || typeof part !== "object") return part;
    if (key === "datasets" || (part.type === "quantitative" && key === "color")) return structuredClone(part);
    return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, walk(value, name)]));
  };
  const made = walk(spec, "");
  const legend = { ...made.config.legend, labelColor: CHARTS.dark.ink, titleColor: CHARTS.dark.ink };
  return { ...made, config: { ...made.config, legend, background: null } };
}

/** Mix a colour with white until its contrast to the dark surface is at least 4.5. */
function lighten(hex) {
  const colour = channels(hex);
  let mixed = colour;
  for (let share = 0.1; (luminance(mixed) + 0.05) / (luminance(SURFACE) + 0.05) < 4.5; share += 0.1) {
    mixed = colour.map((channel) => Math.round(channel + share * (255 - channel)));
  }
  return `#${mixed.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

function channels(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function luminance(colour) {
  const [r, g, b] = colour.map((channel) => (channel / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
