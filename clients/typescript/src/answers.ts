// What an attempt reads of an answer: its status, the headers that count, and its text up to a limit.

import type { Reply } from "./replies.js";

/** Bytes of an answer that are read at most. */
export const MOST_BYTES = 64 * 2 ** 20;

/** Read an answer; `wrong` of the reply says why its body was not read, if so. */
export async function readAnswer(answer: Response, most: number): Promise<Reply> {
  const status = answer.status;
  const retryAfter = answer.headers.get("retry-after");
  if (answer.type === "opaqueredirect" || answer.redirected || (status >= 300 && status < 400)) {
    await answer.body?.cancel();
    const location = answer.headers.get("location"); // browsers hide the status and the place
    const redirect = location === null ? "a redirect" : `a redirect to ${JSON.stringify(location.slice(0, 200))}`;
    return { status: status || 302, text: "", retryAfter, redirect };
  }
  const text = await readText(answer, most);
  if (text !== null) return { status, text, retryAfter };
  return { status, text: "", retryAfter, wrong: `an answer of more than ${most / 2 ** 20} MB, the most that is read` };
}

/** Return the text of the body; null if it has more bytes than `most`, of which no more are read. */
async function readText(answer: Response, most: number): Promise<string | null> {
  if (answer.body === null) return "";
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  const pieces: string[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > most) {
      await reader.cancel();
      return null;
    }
    pieces.push(decoder.decode(value, { stream: true }));
  }
  pieces.push(decoder.decode());
  return pieces.join("");
}
