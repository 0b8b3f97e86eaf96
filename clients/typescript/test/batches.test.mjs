// Batches: elements that find the service busy are sent again, and none loses its id.

import assert from "node:assert/strict";
import test from "node:test";

const { Client } = await import(process.env.LCB_CLIENT);

const BUSY = { status: 503, detail: "8 reads wait; try again in 1 s", retry_after: 1 };

const ANSWER = { arm: "a", propensity: 1, distribution: [1], model: 0, policy: "p", recommender: "lcb", reward: 1 };

/** `refuse(n, id)` returns the refusal of an element in request n, an Error, or { whole: response }. */
function connect(refuse = () => undefined, options = {}) {
  const seen = { sent: [], bodies: [], waits: [], now: 0 };
  const client = new Client("http://service/", {
    random: () => 0.5,
    clock: () => seen.now,
    sleep: async (seconds) => void (seen.waits.push(seconds), (seen.now += seconds)),
    fetch: async (_, given) => {
      const body = JSON.parse(given.body);
      const elements = body.decisions ?? body.rewards;
      const n = seen.sent.length;
      seen.bodies.push(body);
      seen.sent.push(elements.map((one) => one.decision_id));
      const outcomes = [];
      for (const one of elements) {
        const refusal = refuse(n, one.decision_id);
        if (refusal instanceof Error) throw refusal;
        if (refusal?.whole) return new Response(JSON.stringify(refusal.whole), { status: refusal.whole.status });
        outcomes.push(refusal ?? { status: 200, answer: { decision_id: one.decision_id, ...ANSWER } });
      }
      return new Response(JSON.stringify({ outcomes }));
    },
    ...options,
  });
  return { client, seen };
}

const make = (n) => Array.from({ length: n }, (_, i) => ({ user: `u${i}`, decisionId: `d${i}` }));
const statuses = (outcomes) => outcomes.map((outcome) => outcome.status);

test("busy elements are sent again with their ids, after the time that they ask for", async () => {
  const busy = (n, id) => (n === 0 && (id === "d1" || id === "d3") ? { ...BUSY, retry_after: Number(id[1]) } : undefined);
  const { client, seen } = connect(busy);
  const found = await client.decideBatch(make(5), { arms: ["a"] });
  assert.deepEqual(seen.sent, [["d0", "d1", "d2", "d3", "d4"], ["d1", "d3"]]);
  assert.deepEqual(seen.bodies.map((body) => body.arms), [[{ id: "a" }], [{ id: "a" }]]);
  assert.deepEqual(seen.waits, [3.05]);
  assert.deepEqual(found, make(5).map(({ decisionId: id }) => ({ status: 200, answer: { decision_id: id, ...ANSWER }, decision_id: id })));
});

test("ids are made before the first attempt and kept", async () => {
  const { client, seen } = connect((n) => (n < 2 ? BUSY : undefined));
  const found = await client.decideBatch([{ user: "ann" }, { user: "ben" }]);
  const ids = found.map((outcome) => outcome.decision_id);
  assert.deepEqual(seen.sent, [ids, ids, ids]);
  assert.equal(new Set(ids).size, 2);
});

test("what is still busy in the end is reported with its id", async () => {
  const { client, seen } = connect((_, id) => (id === "d1" ? { ...BUSY, status: 429 } : undefined), { retries: 2 });
  const found = await client.decideBatch(make(3));
  assert.deepEqual(found[1], { ...BUSY, status: 429, decision_id: "d1" });
  assert.deepEqual(statuses(found), [200, 429, 200]);
  assert.deepEqual(seen.sent, [["d0", "d1", "d2"], ["d1"], ["d1"]]);
});

test("a refusal for another reason is not sent again", async () => {
  const { client, seen } = connect((_, id) => (id === "d1" ? { status: 422, detail: "k is 0", field: "k" } : undefined));
  assert.deepEqual(statuses(await client.decideBatch(make(3))), [200, 422, 200]);
  assert.equal(seen.sent.length, 1);
});

test("busy rewards are sent again", async () => {
  const { client, seen } = connect((n, id) => (n === 0 && id === "b" ? BUSY : undefined));
  const rewards = ["a", "b", "c"].map((id) => ({ decision_id: id, reward: 1, reward_id: `r-${id}` }));
  const found = await client.rewardBatch(rewards);
  assert.deepEqual(seen.bodies[1], { rewards: [rewards[1]] });
  assert.deepEqual(found.map((outcome) => [outcome.status, outcome.decision_id]), [[200, "a"], [200, "b"], [200, "c"]]);
});

test("a part that fails as a whole loses no outcome of those before it", async () => {
  const { client, seen } = connect((_, id) => (Number(id.slice(1)) < 100 ? undefined : new TypeError("gone")), { retries: 1 });
  const found = await client.decideBatch(make(320));
  assert.deepEqual(seen.sent.map((ids) => ids.length), [100, 100, 100]); // the last twenty are not sent
  assert.deepEqual(found.map((outcome) => outcome.decision_id), make(320).map((one) => one.decisionId));
  assert.deepEqual(statuses(found), [...Array(100).fill(200), ...Array(220).fill(503)]);
  assert.match(found[100].detail, /got no answer in 2 attempts/);
  assert.match(found[319].detail, /^not sent: /);
});

test("a part that is refused after some of it was answered keeps these", async () => {
  const { client } = connect((n, id) => (n ? { whole: { status: 401, detail: "revoked" } } : id > "d1" ? BUSY : undefined));
  const found = await client.decideBatch(make(4));
  assert.deepEqual(statuses(found), [200, 200, 401, 401]);
  assert.equal(found[3].detail, "revoked");
});

test("a batch of which nothing was answered throws, and the error has the ids", async () => {
  for (const [refusal, name, status] of [
    [new TypeError("gone"), "Unreachable", 503],
    [{ whole: { status: 503, detail: "starting" } }, "ServiceError", 503],
    [{ whole: { status: 403, detail: "no writer" } }, "ServiceError", 403],
  ]) {
    const { client, seen } = connect(() => refusal, { retries: 1 });
    await assert.rejects(client.decideBatch([{ user: "ann" }, { user: "ben" }]), (error) => {
      assert.equal(error.name, name);
      assert.deepEqual(error.outcomes.map((outcome) => outcome.decision_id), seen.sent[0]);
      assert.deepEqual(statuses(error.outcomes), [status, status]);
      return true;
    });
  }
});

test("a service that is too busy for a whole part is not sent the next", async () => {
  const { client, seen } = connect(() => BUSY, { retries: 1 });
  const found = await client.decideBatch(make(150));
  assert.deepEqual(seen.sent.map((ids) => ids.length), [100, 100]);
  assert.ok(found.every((outcome) => outcome.status === 503 && outcome.retry_after === 1));
  const other = connect((_, id) => (id === "d7" ? BUSY : undefined), { retries: 1 });
  const refused = (await other.client.decideBatch(make(150))).filter((outcome) => outcome.status !== 200);
  assert.deepEqual(refused.map((outcome) => outcome.decision_id), ["d7"]);
});

test("an answer with too few outcomes is no answer of lcb", async () => {
  const { client } = connect(() => ({ whole: { status: 200, outcomes: [] } }));
  await assert.rejects(client.decideBatch(make(2)), /0 outcomes for 2 elements; check the url/);
});

test("nothing is sent if an element cannot be", async () => {
  const { client, seen } = connect();
  assert.deepEqual(await client.decideBatch([]), []);
  await assert.rejects(async () => client.decideBatch([...make(200), { user: "ann", x: [NaN] }]), { name: "InputError" });
  assert.equal(seen.sent.length, 0);
});
