// Requests as data, and how their replies are read.

import { InputError, ServiceError, Unreachable } from "./errors.js";
import type { Policy } from "./retries.js";

export interface Call<Answer> {
  method: string;
  path: string;
  body?: unknown;
  /** An error status whose body is nevertheless an answer. */
  also?: number;
  /** If a repeated request gets this status, an earlier attempt succeeded and its answer was lost. */
  done?: { status: number; answer: Answer };
}

export interface Reply {
  status: number;
  text: string;
  retryAfter: string | null;
}

/** No answer came; `sent` if the service may have received the request. */
export interface Lost {
  reason: string;
  sent: boolean;
}

/** How a client sends: the limits, the clock and one attempt of a call. */
export interface Sending {
  policy: Policy;
  clock: () => number;
  random: () => number;
  sleep: (seconds: number) => Promise<void>;
  attempt: (call: Call<unknown>, body: string | undefined, seconds: number) => Promise<Reply | Lost>;
}

export function readReply<Answer>(call: Call<Answer>, reply: Reply, again: boolean): Answer {
  if (again && call.done !== undefined && reply.status === call.done.status) return call.done.answer;
  if ((reply.status < 200 || reply.status >= 300) && reply.status !== call.also) throw readProblem(reply);
  try {
    return JSON.parse(reply.text) as Answer;
  } catch {
    const got = JSON.stringify(reply.text.slice(0, 60));
    throw new ServiceError(reply.status, `${call.method} ${call.path} got an answer that is not lcb's: ${got}; check the url`);
  }
}

/** Return the error in a problem+json reply; the error of a proxy is quoted. */
function readProblem(reply: Reply): ServiceError {
  try {
    const problem: unknown = JSON.parse(reply.text);
    if (problem !== null && typeof problem === "object" && "detail" in problem) {
      const { detail, field } = problem as { detail: unknown; field?: string };
      return new ServiceError(reply.status, String(detail), field);
    }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  const got = JSON.stringify(reply.text.slice(0, 60));
  return new ServiceError(reply.status, `status ${reply.status} without problem+json: ${got}; check the url`);
}

/** Return the error of a call that is given up after this outcome. */
export function buildError(call: Call<unknown>, outcome: Reply | Lost, tries: number, seconds: number): ServiceError | Unreachable {
  if ("status" in outcome) return readProblem(outcome);
  const many = tries === 1 ? "1 attempt" : `${tries} attempts`;
  const message =
    `${call.method} ${call.path} got no answer in ${many} and ${seconds.toPrecision(2)} s (${outcome.reason}); ` +
    "check that the service runs there, or raise timeout and deadline";
  return new Unreachable(message, outcome.reason);
}

/** Return the body as JSON; JSON.stringify would turn numbers that are not finite into null. */
export function encode(body: unknown): string {
  return JSON.stringify(body, (name, value: unknown) => {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new InputError(`${name || "a number"} is ${value}; send finite numbers`);
    }
    return value;
  });
}
