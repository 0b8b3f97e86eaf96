// Every call, against the real service at LCB_URL with an admin key in LCB_KEY.

import assert from "node:assert/strict";
import test from "node:test";

const { Client } = await import(process.env.LCB_CLIENT);
const client = new Client(process.env.LCB_URL, { key: process.env.LCB_KEY });

test("a decision, its reward, and the user they belong to", async () => {
  const arms = [{ id: "10", x: [1, 0] }, { id: "2", x: [0, 1] }];
  const made = await client.decide("ann", { arms, decisionId: "first" });
  assert.equal(made.decision_id, "first");
  assert.equal(made.distribution.length, 2);
  assert.equal(made.propensity, made.distribution[arms.findIndex((arm) => arm.id === made.arm)]);
  assert.deepEqual(await client.decide("ann", { arms, decisionId: "first" }), made);
  assert.deepEqual(await client.reward("first", 1), { decision_id: "first", reward: 1 });
  assert.deepEqual(await client.reward("first", 1), { decision_id: "first", reward: 1 });
  await assert.rejects(client.reward("first", 0), { name: "ServiceError", status: 409 });
  const user = await client.user("ann");
  assert.deepEqual([user.n_decisions, user.n_rewards, user.reward_sum], [1, 1, 1]);
});

test("the catalogue, a list from it, and its rewards", async () => {
  const items = [{ id: "a", x: [1, 0], title: "A" }, { id: "b", x: [0, 1] }, { id: "c", x: [1, 1] }];
  assert.deepEqual(await client.putItems(items, { replace: true }), { n_items: 3, n_features: 2 });
  assert.deepEqual((await client.items()).items.map((item) => item.id), ["a", "b", "c"]);
  const made = await client.decide("bob", { k: 2 });
  assert.equal(made.slots.length, 2);
  await client.reward(made.slots[1].reward_id, 1);
  const shown = made.slots.map((slot) => slot.arm);
  const left = await client.decide("bob", { seen: "exclude", exclude: ["elsewhere"] });
  assert.ok(!shown.includes(left.arm));
  await assert.rejects(client.decide("bob", { exclude: ["a", "b", "c"] }), { status: 422, field: "exclude" });
  await client.putItems([], { remove: ["c"] });
  assert.equal((await client.items()).n_items, 2);
});

test("a batch has an outcome for each element", async () => {
  const arms = [{ id: "10", x: [1, 0] }, { id: "2", x: [0, 1] }];
  const users = Array.from({ length: 101 }, (_, i) => ({ user: `user-${i}`, decisionId: `batch-${i}` }));
  const made = await client.decideBatch([...users, { user: "cy", k: 0 }], { arms });
  assert.equal(made.length, 102);
  assert.deepEqual(made[100].answer.decision_id, "batch-100");
  assert.deepEqual([made[101].status, made[101].field], [422, "k"]);
  assert.deepEqual(await client.decide("user-7", { arms, decisionId: "batch-7" }), made[7].answer);
  const rewards = await client.rewardBatch([{ decision_id: "batch-7", reward: 1 }, { decision_id: "none", reward: 1 }]);
  assert.deepEqual(rewards.map((outcome) => outcome.status), [200, 404]);
});

test("a user named with a slash is asked for and erased", async () => {
  await client.decide("a/b ä", { arms: ["a"] });
  assert.equal((await client.user("a/b ä")).n_decisions, 1);
  assert.ok((await client.erase("a/b ä")).erased >= 1);
  await assert.rejects(client.user("a/b ä"), { status: 404 });
});

test("models, trials and readiness", async () => {
  const models = await client.models();
  assert.equal(models.active, 0);
  assert.deepEqual(models.versions, []);
  await assert.rejects(client.activate(7), { status: 404 });
  assert.ok((await client.trials()).recommenders.length >= 1);
  assert.deepEqual((await client.health()).status, "ok");
});

test("a refusal names the field and says what to do", async () => {
  await assert.rejects(client.decide("ann", { arms: [{ id: "a", x: [1, 0, 0] }] }), (error) => {
    assert.equal(error.status, 422);
    assert.match(error.field, /arms/);
    return true;
  });
});

test("a wrong key is refused", async () => {
  const stranger = new Client(process.env.LCB_URL, { key: "lcb_wrong" });
  await assert.rejects(stranger.models(), { name: "ServiceError", status: 401 });
});
