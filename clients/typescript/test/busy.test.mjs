// A real service at LCB_URL, where only 60 events may wait for the store.

import assert from "node:assert/strict";
import test from "node:test";

const { Client } = await import(process.env.LCB_CLIENT);

test("a batch larger than what may wait for the store is answered as a whole", async () => {
  const client = new Client(process.env.LCB_URL);
  const arms = [{ id: "a", x: [1, 0] }, { id: "b", x: [0, 1] }];
  await client.decide("first", { arms });
  const made = await client.decideBatch(Array.from({ length: 100 }, (_, i) => ({ user: `u${i}` })), { arms });
  assert.deepEqual(new Set(made.map((outcome) => outcome.status)), new Set([200]));
  const ids = made.map((outcome) => outcome.decision_id);
  assert.deepEqual(ids, made.map((outcome) => outcome.answer.decision_id));
  const rewarded = await client.rewardBatch(ids.map((id) => ({ decision_id: id, reward: 1 })));
  assert.deepEqual(rewarded.map((outcome) => [outcome.status, outcome.decision_id]), ids.map((id) => [200, id]));
});
