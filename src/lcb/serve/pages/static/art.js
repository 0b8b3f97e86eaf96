// Draws a picture for each article from its categories and its id, so that there is no file to load.

import { s } from "./dom.js";

const RING = "M12 3a9 9 0 1 0 .01 0z";
const KNOWN = {
  arts: [20, "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 8a1.2 1.2 0 1 0 .01 0z"],
  books: [50, "M12 6c-2-1.5-5-2-8-1.5V18c3-.5 6 0 8 1.5 2-1.5 5-2 8-1.5V4.5C17 4 14 4.5 12 6zM12 6v13.5"],
  business: [215, "M4 20h16M6 20v-5h3v5M11 20V10h3v10M16 20V5h3v15"],
  cities: [255, "M3 20h18M5 20V9h5v11M10 20V4h5v16M15 20v-8h4v8M12 8h1M12 12h1M7 13h1M7 16h1"],
  climate: [170, `${RING}M3.5 9h17M3.5 15h17M12 3c-5 5-5 13 0 18M12 3c5 5 5 13 0 18`],
  education: [95, "M2 9l10-5 10 5-10 5zM6 11.5V16c3 3 9 3 12 0v-4.5M22 9v6"],
  film: [305, "M4 10h16v10H4zM4 10l-.8-3L18.7 3l.8 3zM8 6l2 2.4M13 4.6l2 2.4"],
  food: [60, "M4 12h16a8 8 0 0 1-16 0zM9 8.5c0-2 1.5-2 1.5-4M14 8.5c0-2 1.5-2 1.5-4M8 20h8"],
  football: [145, `${RING}M12 8l3.8 2.8-1.5 4.4H9.7l-1.5-4.4zM12 8V3.2M15.8 10.8l4.8-1.6M14.3 15.2l2.9 4M9.7 15.2l-2.9 4M8.2 10.8L3.4 9.2`],
  gardening: [130, "M12 21V11M12 13c0-5-3-7-8-7 0 5 3 7 8 7zM12 11c0-4 3-6 8-6 0 4-3 6-8 6z"],
  health: [5, "M12 20C5 15 3 11.5 3 8.5A4.5 4.5 0 0 1 12 7a4.5 4.5 0 0 1 9 1.5c0 3-2 6.5-9 11.5z"],
  history: [75, "M6 3h12M6 21h12M7 3c0 5 5 6 5 9s-5 4-5 9M17 3c0 5-5 6-5 9s5 4 5 9M9.5 18h5"],
  law: [280, "M12 4v16M7 20h10M5 7h14M5 7l-3 7a3 3 0 0 0 6 0zM19 7l-3 7a3 3 0 0 0 6 0z"],
  music: [335, "M9 18V6l11-2v12M9 18a3 3 0 1 1-6 0 3 3 0 0 1 6 0zM20 16a3 3 0 1 1-6 0 3 3 0 0 1 6 0z"],
  politics: [265, "M4 12h16v8H4zM8 12V4h8v8M10 8l1.5 1.5 3-3M9 16h6"],
  science: [190, "M10 3h4M10.5 3v6L5 19a1.5 1.5 0 0 0 1.3 2h11.4A1.5 1.5 0 0 0 19 19l-5.5-10V3M7.5 15h9"],
  technology: [225, "M7 7h10v10H7zM10 10h4v4h-4zM9 7V3M15 7V3M9 21v-4M15 21v-4M7 9H3M7 15H3M21 9h-4M21 15h-4"],
  tennis: [118, `${RING}M5.5 6c4 3 4 9 0 12M18.5 6c-4 3-4 9 0 12`],
  theatre: [350, "M5 4c4.5 1.5 9.5 1.5 14 0v8c0 5-3.5 8-7 9-3.5-1-7-4-7-9zM8.5 10h2M13.5 10h2M8.5 14c2 2.5 5 2.5 7 0"],
  travel: [200, "M4 8h16v12H4zM9 8V4h6v4M8 8v12M16 8v12"],
  weather: [240, "M6.5 20a4 4 0 0 1 .5-8 5 5 0 0 1 9.5 1 3.5 3.5 0 0 1 0 7zM14 7a3.6 3.6 0 1 1 5 5M16.500 3V2M21 5l.8-.8M22 10h1"],
};

function numbers(text) {
  let seed = 2166136261;
  for (const letter of text) seed = Math.imul(seed ^ letter.codePointAt(0), 16777619);
  return () => {
    seed = Math.imul(seed ^ (seed >>> 15), 2246822519) + 0x9e3779b9;
    return ((seed ^ (seed >>> 13)) >>> 0) / 2 ** 32;
  };
}

export const hue = (category) => KNOWN[category]?.[0] ?? Math.floor(360 * numbers(category ?? "")());
const shape = (category) => KNOWN[category]?.[1] ?? `${RING}M8 12h8M12 8v8`;

export function glyph(category) {
  return s("svg", { class: "glyph", viewBox: "0 0 24 24", "aria-hidden": "true", "--hue": hue(category) }, s("path", { d: shape(category) }));
}

export function picture(item) {
  const next = numbers(item.id);
  const [first, second] = [item.categories[0], item.categories[1] ?? item.categories[0]];
  const height = 150 + 60 * next();
  const [a, b, c] = [next(), next(), next()].map((u) => height - 50 + 100 * u);
  const hills = `M0 ${height}C160 ${a} 240 ${b} 400 ${c}S600 ${a} 800 ${height}V320H0z`;
  const near = `M0 ${c + 70}C200 ${b + 40} 420 ${a + 110} 800 ${b + 60}V320H0z`;
  const size = item.categories.length > 2 ? 132 : item.categories.length > 1 ? 156 : 184;
  const space = item.categories.length > 2 ? 190 : 230;
  const glyphs = item.categories.map((category, i) => {
    const x = 400 + space * (i - (item.categories.length - 1) / 2) - size / 2;
    const y = 160 - size / 2 + 24 * (next() - 0.5);
    const turn = item.categories.length > 1 ? 10 * (next() - 0.5) : 0;
    const place = `translate(${x} ${y}) rotate(${turn} ${size / 2} ${size / 2}) scale(${size / 24})`;
    return s("path", { class: "art-glyph", d: shape(category), transform: place, "--hue": hue(category) });
  });
  return s(
    "svg",
    { class: "art", viewBox: "0 0 800 320", preserveAspectRatio: "xMidYMid slice", "aria-hidden": "true", "--hue": hue(first), "--second": hue(second) },
    s("rect", { class: "art-sky", width: 800, height: 320 }),
    s("circle", { class: "art-sun", cx: 90 + 620 * next(), cy: 60 + 50 * next(), r: 50 + 50 * next() }),
    s("path", { class: "art-far", d: hills }),
    s("path", { class: "art-near", d: near }),
    glyphs,
  );
}
