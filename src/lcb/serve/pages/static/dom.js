// Creates elements, with h for HTML and s for SVG, and formats numbers and lists as text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

export function percent(share) {
  if (share > 0 && share < 0.01) return "<1 %";
  if (share > 0.99) return ">99 %";
  return `${Math.round(100 * share)} %`;
}

export function chance(p) {
  if (p >= 1) return "certain";
  if (p >= 0.1) return `${Math.round(100 * p)} %`;
  const text = (100 * p).toFixed(p >= 0.001 ? 1 : 2);
  return Number(text) > 0 ? `${text} %` : "less than 0.01 %";
}

export function joinWords(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

export function formatCount(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}
