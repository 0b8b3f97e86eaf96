// The client: one method for each call of the API, over `fetch`.

import { MOST_BYTES, readAnswer } from "./answers.js";
import { type Identified, sendBatch } from "./batches.js";
import { InputError } from "./errors.js";
import { type Keys, refuseUnknown } from "./keys.js";
import { buildError, type Call, encode, type Lost, readReply, type Reply, type Sending } from "./replies.js";
import { AGAIN, LIMITS, Policy, type PolicyOptions } from "./retries.js";
import * as shapes from "./shapes.js";
import type * as types from "./types.js";

/** Ids of items of the catalogue, or ids with their features; `distribution` of the answer has the same order. */
export type Arms = readonly (string | { readonly id: string; readonly x: readonly number[] })[];

export interface ClientOptions extends PolicyOptions {
  /** Sent as a bearer token; a service without keys needs none. */
  key?: string;
  fetch?: typeof fetch;
  /** Wait for this many seconds. */
  sleep?: (seconds: number) => Promise<void>;
  random?: () => number;
  /** The time in seconds; only differences count. */
  clock?: () => number;
  newId?: () => string;
}

export interface DecideOptions {
  /** Without arms the whole catalogue is offered. */
  arms?: Arms;
  /** Features of the user. */
  x?: readonly number[];
  /** Ask for a list of k arms. */
  k?: number;
  /** An arm that the caller chose itself (shadow mode). */
  chosen?: string;
  chosenPropensity?: number;
  /** Ids that must not be shown. */
  exclude?: readonly string[];
  /** Nothing that this user was shown before, or nothing that this user took. */
  seen?: "exclude" | "exclude-taken";
  /** In a list, at most so many arms of one category. */
  atMost?: number;
  /** The idempotency key; a new one by default, the same for all attempts. */
  decisionId?: string;
}

const CLIENT: Keys<ClientOptions> = {
  key: true, fetch: true, sleep: true, random: true, clock: true, newId: true, ...LIMITS,
};
const DECIDE: Keys<DecideOptions> = {
  arms: true, x: true, k: true, chosen: true, chosenPropensity: true, exclude: true, seen: true, atMost: true, decisionId: true,
};
const REWARD: Keys<types.RewardRequest> = { decision_id: true, reward: true, reward_id: true };
const ARM = { id: true, x: true };

/**
 * A connection to the service at `url`.
 *
 * An attempt that gets no whole answer within `timeout` seconds, or status 429, 502, 503 or 504, is repeated until
 * `deadline` seconds have passed, or up to `retries` times. Repeating is safe: the service knows a decision by its id.
 */
export class Client {
  /** Bytes of an answer that are read at most; a larger one is a ServiceError. */
  static mostBytes = MOST_BYTES;
  readonly policy: Policy;
  private readonly url: string;
  private readonly headers: Record<string, string>;
  private readonly fetch: typeof fetch;
  private readonly sending: Sending;
  private readonly newId: () => string;

  constructor(url: string, options: ClientOptions = {}) {
    refuseUnknown(options, CLIENT, "the options of Client");
    const { key, fetch: given, sleep, random, clock, newId, ...limits } = options;
    this.policy = new Policy(limits);
    this.url = checkUrl(url);
    this.headers = { "content-type": "application/json" };
    if (key !== undefined) this.headers["authorization"] = `Bearer ${checkKey(key)}`;
    this.fetch = given ?? ((...asked) => fetch(...asked));
    this.sending = {
      policy: this.policy,
      sleep: sleep ?? ((seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))),
      random: random ?? Math.random,
      clock: clock ?? (() => performance.now() / 1000),
      attempt: (...given) => this.attempt(...given),
    };
    this.newId = newId ?? createId;
  }

  /** Ask which arm to show. */
  decide(user: string, options: DecideOptions = {}): Promise<types.DecisionAnswer> {
    const body = this.buildDecision(user, options, "the options of decide");
    const answer = { shape: shapes.DECISION, id: body.decision_id };
    return this.send({ method: "POST", path: "/v1/decisions", body, ...answer });
  }

  /**
   * Ask for many decisions at once; return their outcomes in order. `arms` are the arms of all that have none of their
   * own. An outcome has `status` 200 and the `answer`, or the status and `detail` of a refusal, and in both cases the
   * `decision_id`. Elements that find the service busy (429, 502, 503, 504) are sent again as single decisions are, with the
   * same ids. An outcome that has such a status in the end may be sent again later, with its id; one without any answer
   * has 503. If nothing of the batch was answered, the error is thrown, and its `outcomes` have the ids.
   */
  async decideBatch(
    decisions: readonly (DecideOptions & { user: string })[],
    options: { arms?: Arms } = {},
  ): Promise<Identified<types.DecisionOutcome>[]> {
    refuseUnknown(options, { arms: true }, "the options of decideBatch");
    const arms = options.arms === undefined ? "" : `"arms":${encode(convertArms(options.arms))},`;
    const elements = decisions.map((one, i) => {
      refuseUnknown(one, { user: true, ...DECIDE }, `decisions[${i}]`);
      const { user, ...rest } = one;
      return this.buildDecision(user, rest, `decisions[${i}]`);
    });
    const before = `{${arms}"decisions":[`;
    return sendBatch(this.sending, { path: "/v1/decisions:batch", before, elements, answer: shapes.DECISION });
  }

  /** Send many rewards at once, under the rules of `decideBatch`; return their outcomes in order. */
  async rewardBatch(rewards: readonly types.RewardRequest[]): Promise<Identified<types.RewardOutcome>[]> {
    rewards.forEach((one, i) => refuseUnknown(one, REWARD, `rewards[${i}]`));
    const batch = { before: '{"rewards":[', elements: rewards, answer: shapes.REWARD };
    return sendBatch(this.sending, { path: "/v1/rewards:batch", ...batch });
  }

  private buildDecision(user: string, options: DecideOptions, what: string) {
    refuseUnknown(options, DECIDE, what);
    return {
      user,
      arms: options.arms === undefined ? undefined : convertArms(options.arms),
      x: options.x,
      k: options.k,
      decision_id: options.decisionId ?? this.newId(),
      chosen: options.chosen,
      chosen_propensity: options.chosenPropensity,
      exclude: options.exclude,
      seen: options.seen,
      at_most: options.atMost,
    };
  }

  /** Send the reward of a decision, or of a slot by its reward_id; sending it again changes nothing. */
  reward(decisionId: string, reward: number, rewardId?: string): Promise<types.RewardAnswer> {
    const body = { decision_id: decisionId, reward, reward_id: rewardId };
    return this.send({ method: "POST", path: "/v1/rewards", body, shape: shapes.REWARD, id: decisionId });
  }

  /** Add or change items of the catalogue; `replace` removes all others. */
  putItems(
    items: readonly types.ItemRequest[],
    options: { replace?: boolean; remove?: readonly string[] } = {},
  ): Promise<types.ItemsAnswer> {
    refuseUnknown(options, { replace: true, remove: true }, "the options of putItems");
    const body = { items, replace: options.replace ?? false, remove: options.remove ?? [] };
    return this.send({ method: "PUT", path: "/v1/items", body, shape: shapes.ITEMS });
  }

  /** Return the catalogue. */
  items(): Promise<types.ItemsList> {
    return this.send({ method: "GET", path: "/v1/items", shape: shapes.CATALOGUE });
  }

  /** Return the state of one user. */
  user(user: string): Promise<types.UserAnswer> {
    return this.send({ method: "GET", path: `/v1/users/${quoteUser(user)}`, shape: shapes.USER });
  }

  /** Erase a user: their events lose everything personal. */
  erase(user: string): Promise<types.EraseAnswer> {
    const done = { status: 404, answer: { erased: 0 } };
    return this.send({ method: "DELETE", path: `/v1/users/${quoteUser(user)}`, shape: shapes.ERASURE, done });
  }

  /** Return the model versions and the progress of learning the next. */
  models(): Promise<types.ModelsAnswer> {
    return this.send({ method: "GET", path: "/v1/models", shape: shapes.MODELS });
  }

  /** Start learning a version from the whole log, in the background. */
  retrain(): Promise<types.RetrainingAnswer> {
    return this.send({ method: "POST", path: "/v1/models/retrain", shape: shapes.RETRAINING });
  }

  /** Serve new users with this version; the log keeps the reason. */
  activate(version: number, reason?: string): Promise<types.ActivateAnswer> {
    if (!Number.isInteger(version)) throw new InputError(`version=${version}; versions are whole numbers`);
    return this.send({ method: "POST", path: `/v1/models/${version}/activate`, body: { reason }, shape: shapes.ACTIVATION });
  }

  /** Return the results of the recommenders side by side. */
  trials(): Promise<types.TrialAnswer> {
    return this.send({ method: "GET", path: "/v1/trials", shape: shapes.TRIALS });
  }

  /** Return whether the service is ready: it answers and can write. */
  health(): Promise<types.Health> {
    return this.send({ method: "GET", path: "/readyz", shape: shapes.HEALTH, also: 503 });
  }

  private async send<Answer>(call: Call<Answer>): Promise<Answer> {
    const { policy, clock, random, sleep, attempt } = this.sending;
    const body = call.body === undefined ? undefined : encode(call.body);
    const began = clock();
    const end = began + policy.deadline;
    let unsure = false; // whether an earlier attempt may have been carried out
    for (let n = 0; ; n++) {
      const outcome = await attempt(call, body, Math.min(policy.timeout, Math.max(end - clock(), 0.001)));
      const replied = "status" in outcome;
      if (replied && (!AGAIN.has(outcome.status) || outcome.status === call.also)) {
        return readReply(call, outcome, unsure);
      }
      unsure ||= replied ? outcome.status !== 429 : outcome.sent;
      const wait = policy.wait(n, replied ? outcome.retryAfter : null, end - clock(), random);
      if (wait === null) throw buildError(call, outcome, n + 1, clock() - began);
      await sleep(wait);
    }
  }

  private async attempt(call: Call<unknown>, body: string | undefined, seconds: number): Promise<Reply | Lost> {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), seconds * 1000);
    try {
      const given: RequestInit = { method: call.method, headers: this.headers, redirect: "manual", signal: stop.signal };
      if (body !== undefined) given.body = body;
      return await readAnswer(await this.fetch(this.url + call.path, given), Client.mostBytes);
    } catch (error) {
      if (stop.signal.aborted) return { reason: `no answer in ${seconds.toPrecision(2)} s`, sent: true };
      const { message, code } = findCause(error);
      return { reason: code ? `${message} (${code})` : message, sent: code !== "ECONNREFUSED" && code !== "ENOTFOUND" };
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Return the text and the code of the error under an error of `fetch`. */
function findCause(error: unknown): { message: string; code?: string } {
  const cause = error instanceof Error && "cause" in error && error.cause instanceof Error ? error.cause : error;
  const code = cause instanceof Error ? (cause as { code?: unknown }).code : undefined;
  const message = cause instanceof Error ? cause.message || cause.name : String(cause);
  return typeof code === "string" ? { message, code } : { message };
}

function convertArms(arms: Arms): types.Arm[] {
  if (!Array.isArray(arms)) {
    throw new InputError(`arms is ${JSON.stringify(arms)}; give a list of ids, or of ids with features`);
  }
  return (arms as Arms).map((arm, i) => {
    if (typeof arm === "string") return { id: arm };
    refuseUnknown(arm, ARM, `arms[${i}]`);
    if (arm.x === undefined) throw new InputError(`arms[${i}] has no x; give its features, or the id alone as text`);
    return { id: arm.id, x: [...arm.x] };
  });
}

/** Quote a user for a path; `.` and `..` are quoted too, since they would be resolved as steps of the path. */
function quoteUser(user: string): string {
  let quoted: string;
  try {
    quoted = encodeURIComponent(user);
  } catch {
    throw new InputError(`user ${JSON.stringify(user)} cannot be sent; send plain text`);
  }
  return quoted === "." || quoted === ".." ? quoted.replaceAll(".", "%2E") : quoted;
}

function checkUrl(url: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new InputError(`url ${JSON.stringify(url)} is not a URL; give one such as http://127.0.0.1:8000`);
  }
  if (parsed.protocol !== "http:" && parsed.protocol !== "https:") {
    throw new InputError(`url ${JSON.stringify(url)} is not of http or https; give one such as http://127.0.0.1:8000`);
  }
  return url.replace(/\/+$/, "");
}

function checkKey(key: string): string {
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new InputError("the key has characters that no key has; give it as `lcb keys create` printed it");
  }
  return key;
}

// Node 18 has no global crypto; the name is a variable so that bundlers for browsers do not look for it
const nodeCrypto = "node:crypto";
const { webcrypto } = globalThis.crypto ? { webcrypto: globalThis.crypto } : ((await import(nodeCrypto)) as { webcrypto: Crypto });

function createId(): string {
  return webcrypto.randomUUID();
}
