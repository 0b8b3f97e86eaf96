// Retry rules and requests, with a service made of canned answers.

import assert from "node:assert/strict";
import test from "node:test";

const { Client, InputError, Policy, ServiceError, Unreachable, parseRetryAfter } = await import(process.env.LCB_CLIENT);

const DECISION = { arm: "a", propensity: 1, distribution: [1], model: 0, policy: "thompson", recommender: "lcb" };
const MODELS = { active: 0, versions: [], retraining: { running: false } };
const USER = { user: "ann", n_decisions: 0, n_rewards: 0, reward_sum: 0 };

function connect(answers, options = {}) {
  const seen = { requests: [], waits: [], now: 0 };
  const client = new Client("http://service/", {
    random: () => 0.5,
    clock: () => seen.now,
    sleep: async (seconds) => void (seen.waits.push(seconds), (seen.now += seconds)),
    fetch: async (url, given) => {
      seen.requests.push({ url, ...given, body: given.body && JSON.parse(given.body) });
      const answer = answers[Math.min(seen.requests.length, answers.length) - 1];
      if (answer instanceof Error) throw answer;
      return new Response(JSON.stringify(answer.json ?? {}), { status: answer.status ?? 200, headers: answer.headers });
    },
    ...options,
  });
  return { client, seen };
}

test("an attempt that gets 503 is repeated with the same id, after a pause", async () => {
  const { client, seen } = connect([{ status: 503 }, { status: 502 }, { json: { decision_id: "d", ...DECISION } }]);
  const made = await client.decide("ann", { arms: ["a"], decisionId: "d" });
  assert.deepEqual(made, { decision_id: "d", ...DECISION });
  assert.deepEqual(seen.waits, [0.05, 0.1]);
  const ids = seen.requests.map((request) => request.body.decision_id);
  assert.deepEqual(ids, ["d", "d", "d"]);
});

test("an id that the caller does not give is made once", async () => {
  const { client, seen } = connect([{ status: 503 }], { retries: 1 });
  await assert.rejects(client.decide("ann"), ServiceError);
  const ids = seen.requests.map((request) => request.body.decision_id);
  assert.equal(ids.length, 2);
  assert.equal(new Set(ids).size, 1);
  assert.match(ids[0], /^[A-Za-z0-9_.:-]{1,64}$/);
});

test("Retry-After is waited for, in seconds or until a date", async () => {
  const { client, seen } = connect([{ status: 429, headers: { "retry-after": "3" } }, { json: MODELS }]);
  await client.models();
  assert.deepEqual(seen.waits, [3.05]);
  assert.equal(parseRetryAfter("yesterday-ish"), 0);
  const seconds = parseRetryAfter(new Date(Date.now() + 60_000).toUTCString());
  assert.ok(seconds > 50 && seconds <= 60);
});

test("attempts end with the number of retries, and the error is the service's", async () => {
  const problem = { status: 503, json: { detail: "the store is full; free some space", status: 503 } };
  const { client, seen } = connect([problem], { retries: 2 });
  await assert.rejects(client.models(), { name: "ServiceError", status: 503, message: problem.json.detail });
  assert.equal(seen.requests.length, 3);
});

test("attempts end before the deadline would pass", async () => {
  const { client, seen } = connect([{ status: 503, headers: { "retry-after": "4" } }], { deadline: 10 });
  await assert.rejects(client.models(), ServiceError);
  assert.equal(seen.requests.length, 3);
});

test("the whole deadline is used", async () => {
  const { client, seen } = connect([{ status: 503 }], { deadline: 10 });
  await assert.rejects(client.models(), ServiceError);
  assert.ok(seen.now > 9.8 && seen.now < 10, String(seen.now));
});

test("a refusal is not repeated and names its field", async () => {
  const { client, seen } = connect([{ status: 422, json: { detail: "k is 0; give 1 or more", field: "k" } }]);
  await assert.rejects(client.decide("ann", { k: 0 }), { name: "ServiceError", status: 422, field: "k" });
  assert.equal(seen.requests.length, 1);
});

test("an erasure whose first answer was lost is done", async () => {
  const lost = connect([{ status: 504 }, { status: 404, json: { detail: "no user" } }]);
  assert.deepEqual(await lost.client.erase("ann"), { erased: 0 });
  const unknown = connect([{ status: 429 }, { status: 404, json: { detail: "no user" } }]);
  await assert.rejects(unknown.client.erase("ann"), { status: 404 });
});

test("no answer at all is Unreachable, with the reason", async () => {
  const refused = Object.assign(new TypeError("fetch failed"), {
    cause: Object.assign(new Error("connect refused"), { code: "ECONNREFUSED" }),
  });
  const { client, seen } = connect([refused], { retries: 1 });
  await assert.rejects(client.models(), { name: "Unreachable", reason: "connect refused (ECONNREFUSED)" });
  assert.equal(seen.requests.length, 2);
  assert.ok(Unreachable.prototype instanceof Error);
});

test("an attempt ends after its timeout", async () => {
  const hang = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const client = new Client("http://service", { fetch: hang, timeout: 0.02, retries: 0 });
  await assert.rejects(client.models(), /no answer in 0\.020 s/);
});

test("readiness is an answer also at 503", async () => {
  const { client } = connect([{ status: 503, json: { status: "draining" } }]);
  assert.deepEqual(await client.health(), { status: "draining" });
});

test("what cannot be sent is refused before it is sent", async () => {
  const { client, seen } = connect([{}]);
  await assert.rejects(async () => client.reward("d", NaN), InputError);
  await assert.rejects(async () => client.decide("ann", { arms: "a" }), InputError);
  await assert.rejects(async () => client.user("\ud800"), InputError);
  for (const wrong of [{ timeout: 0 }, { deadline: Infinity }, { retries: -1 }]) {
    assert.throws(() => new Policy(wrong), InputError);
  }
  assert.throws(() => new Client("ftp://service"), InputError);
  assert.throws(() => new Client("http://service", { key: "two words" }), InputError);
  assert.equal(seen.requests.length, 0);
});

test("a user's name is one step of the path", async () => {
  const { client, seen } = connect([{ json: USER }]);
  for (const user of ["a/b", "..", "ä?#"]) await client.user(user);
  const paths = seen.requests.map((request) => request.url);
  assert.deepEqual(paths, ["a%2Fb", "%2E%2E", "%C3%A4%3F%23"].map((name) => `http://service/v1/users/${name}`));
});

test("the key is sent as a bearer token", async () => {
  const { client, seen } = connect([{ json: { items: [], n_items: 0 } }], { key: "lcb_secret" });
  await client.items();
  assert.equal(seen.requests[0].headers.authorization, "Bearer lcb_secret");
});
