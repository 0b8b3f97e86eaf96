// Shared by the operator's pages: session, requests, numbers as text, creation of elements.

export const $ = (id) => document.getElementById(id);

/** Create an element with attributes and children; text is never parsed as HTML. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** Return the server's answer to a request, parsed from JSON; throws an Error with the problem's `status` and detail. */
export async function call(path, body) {
  const options = { headers: { accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw Object.assign(new Error("The server does not answer; is it running?"), { status: 0 });
  }
  const text = await answer.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    content = { detail: text.slice(0, 200) };
  }
  if (answer.ok) return content;
  const why = content?.detail || content?.title || `The server answered ${answer.status}.`;
  throw Object.assign(new Error(why), { status: answer.status });
}

/** Show the sign-in form until a key is accepted; resolves immediately if no key is needed. */
export async function session() {
  const now = await call("/page/session");
  if (!now.needs_key) return now;
  $("login").hidden = false;
  $("key").focus();
  await new Promise((accepted) => {
    $("login-form").addEventListener("submit", async function submit(event) {
      event.preventDefault();
      $("login-error").textContent = "";
      try {
        await call("/page/login", { key: $("key").value.trim() });
      } catch (error) {
        $("login-error").textContent = error.status === 401 ? "This key is unknown or was revoked." : error.message;
        $("key").select();
        return;
      }
      this.removeEventListener("submit", submit);
      this.reset();
      accepted();
    });
  });
  $("login").hidden = true;
  return await call("/page/session");
}

export function say(text) {
  $("message").textContent = text;
  $("message").hidden = !text;
}

// Numbers as text; an unknown number is a dash.

const GAP = "\u202f"; // narrow no-break space between a number and its unit
const UNKNOWN = "–";
const signed = (text) => text.replace("-", "−");
const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, digits = 0) {
  if (!known(value)) return UNKNOWN;
  return signed(value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
}

export const rounded = (value) => (known(value) ? signed(value.toLocaleString("en", { maximumSignificantDigits: 3 })) : UNKNOWN);
export const unit = (value, name, digits = 0) => (known(value) ? `${number(value, digits)}${GAP}${name}` : UNKNOWN);

/** Format a share as in the charts: only 0 is shown as 0 %, only 1 as 100 %. */
export function percent(share) {
  if (!known(share)) return UNKNOWN;
  const text = 0 < share && share < 0.01 ? "<1" : 0.99 < share && share < 1 ? ">99" : number(100 * share);
  return `${text}${GAP}%`;
}

export const milliseconds = (value) => (known(value) ? `${rounded(value)}${GAP}ms` : UNKNOWN);

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const power = Math.min(Math.max(Math.floor(Math.log10(Math.max(value, 1)) / 3), 0), 4);
  return `${rounded(value / 1000 ** power)}${GAP}${["B", "kB", "MB", "GB", "TB"][power]}`;
}

export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  if (first === -1) return `0${GAP}s`;
  const [size, name] = parts[first];
  const rest = parts[first + 1] && Math.floor((seconds % size) / parts[first + 1][0]);
  const tail = rest ? ` ${rest}${GAP}${parts[first + 1][1]}` : "";
  return `${Math.floor(seconds / size)}${GAP}${name}${tail}`;
}

/** Return seconds since 1970 from a number of seconds or an ISO date. */
export const seconds = (at) => (typeof at === "number" ? at : Date.parse(at) / 1000);

/** Return a <time> element in the local time zone, without the date if it is today. */
export function time(at) {
  const when = new Date(1000 * seconds(at));
  if (at == null || Number.isNaN(when.getTime())) return UNKNOWN;
  const clock = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const today = when.toDateString() === new Date().toDateString();
  const day = today ? "" : `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })} `;
  return el("time", { datetime: when.toISOString() }, day + clock);
}
