// Requests as data, and how their replies are read.

import { InputError, ServiceError, Unreachable } from "./errors.js";
import type { Policy } from "./retries.js";
import { findFault, quote, type Shape } from "./shapes.js";

export interface Call<Answer> {
  method: string;
  path: string;
  body?: unknown;
  /** What the answer has to have. */
  shape: Shape;
  /** The decision_id that the answer has to have. */
  id?: string;
  /** An error status whose body is nevertheless an answer. */
  also?: number;
  /** If a repeated request gets this status, an earlier attempt succeeded and its answer was lost. */
  done?: { status: number; answer: Answer };
}

export interface Reply {
  status: number;
  text: string;
  retryAfter: string | null;
  /** Where a redirect, which is not followed, leads to. */
  redirect?: string;
  /** Why the body was not read. */
  wrong?: string;
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
  if (reply.wrong !== undefined) throw refuse(call, reply, reply.wrong);
  let answer: unknown;
  let fault: string | null;
  try {
    answer = JSON.parse(reply.text);
    fault = findFault(answer, call.shape);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    fault = "it is no JSON";
  }
  if (fault !== null) {
    const got = `${JSON.stringify(reply.text.slice(0, 60))} (${fault})`;
    throw new ServiceError(reply.status, `${call.method} ${call.path} got an answer that is not lcb's: ${got}; check the url`);
  }
  if (call.id !== undefined) checkId(call, reply, answer as { decision_id: string }, call.id);
  return answer as Answer;
}

/** Throw if an answer is that of another request than the one with this id. */
export function checkId(call: Call<unknown>, reply: Reply, answer: { decision_id: string }, id: string): void {
  if (answer.decision_id === id) return;
  throw refuse(call, reply, `the answer of another request (decision_id ${quote(answer.decision_id)}, asked for ${quote(id)})`);
}

/** Return the error of a reply that the service cannot have sent. */
export function refuse(call: Call<unknown>, reply: Reply, what: string): ServiceError {
  return new ServiceError(reply.status, `${call.method} ${call.path} got ${what}; check the proxy in between`);
}

/** Return the error in a problem+json reply; the error of a proxy is quoted. */
function readProblem(reply: Reply): ServiceError {
  const { status, redirect, wrong } = reply;
  if (wrong !== undefined) return new ServiceError(status, `status ${status} came with ${wrong}; check the proxy in between`);
  if (redirect !== undefined) {
    const words = `got ${redirect} (status ${status}), and redirects are not followed`;
    return new ServiceError(status, `${words}; give the url of the service itself`);
  }
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
