// Keys that the client does not know are refused, not left out; nothing is sent.

import assert from "node:assert/strict";
import test from "node:test";

const { Client, Policy } = await import(process.env.LCB_CLIENT);

function connect() {
  const sent = [];
  const fetch = async (_, given) => {
    const body = JSON.parse(given.body);
    sent.push(body);
    const outcomes = (body.decisions ?? body.rewards ?? []).map(() => ({ status: 200 }));
    return new Response(JSON.stringify({ outcomes }));
  };
  return { client: new Client("http://service", { fetch }), sent };
}

const calls = {
  decide: ["the options of decide", (client, key) => client.decide("ann", { [key]: "1" })],
  decideBatch: ["decisions[1]", (client, key) => client.decideBatch([{ user: "ann" }, { user: "ben", [key]: "1" }])],
};
for (const [name, [what, ask]] of Object.entries(calls)) {
  for (const [key, wanted] of [
    ["decision_id", "write decisionId"],
    ["decisionID", "write decisionId"],
    ["chosen_propensity", "write chosenPropensity"],
    ["at_most", "write atMost"],
    ["arm", "there are "],
    ["toString", "there are "],
  ]) {
    test(`${name} refuses ${key}`, async () => {
      const { client, sent } = connect();
      await assert.rejects(async () => ask(client, key), (error) => {
        assert.equal(error.name, "InputError");
        assert.ok(error.message.startsWith(`${what}: "${key}" is not a key; ${wanted}`), error.message);
        return true;
      });
      assert.deepEqual(sent, []);
    });
  }
}

for (const [name, words, ask] of [
  ["rewards in camel case", 'rewards[0]: "decisionId" is not a key; write decision_id', (client) => client.rewardBatch([{ decisionId: "d", reward: 1 }])],
  ["options of decideBatch", 'the options of decideBatch: "arm" is not', (client) => client.decideBatch([{ user: "ann" }], { arm: ["a"] })],
  ["options of putItems", 'the options of putItems: "replaceAll" is not', (client) => client.putItems([], { replaceAll: true })],
  ["arms in place of options", "the options of decide: got a list; give an object", (client) => client.decide("ann", ["a"])],
  ["other names of features", 'arms[1]: "features" is not a key; there are id, x', (client) => client.decide("ann", { arms: ["a", { id: "b", features: [1] }] })],
  ["an arm without features", "arms[0] has no x; give its features, or the id alone as text", (client) => client.decide("ann", { arms: [{ id: "b" }] })],
  ["a decision that is none", 'decisions[0]: got "ann"; give an object', (client) => client.decideBatch(["ann"])],
]) {
  test(`${name} are refused`, async () => {
    const { client, sent } = connect();
    await assert.rejects(async () => ask(client), (error) => {
      assert.equal(error.name, "InputError");
      assert.ok(error.message.startsWith(words), error.message);
      return true;
    });
    assert.deepEqual(sent, []);
  });
}

test("options of a client and of a policy are known ones", () => {
  assert.throws(() => new Client("http://service", { retires: 3 }), { name: "InputError", message: /"retires" is not a key/ });
  assert.throws(() => new Client("http://service", { new_id: () => "1" }), { name: "InputError", message: /write newId/ });
  assert.throws(() => new Policy({ longest_pause: 1 }), { name: "InputError", message: /write longestPause/ });
});

test("every known key is taken", async () => {
  const { client, sent } = connect();
  const refusal = /not lcb's|no answer for/; // what comes is no answer
  const given = { arms: [{ id: "a", x: [1] }], x: [1], k: 1, chosen: "a", chosenPropensity: 1, exclude: [], seen: "exclude", atMost: 1, decisionId: "d" };
  await assert.rejects(client.decide("ann", given), refusal);
  await assert.rejects(client.decideBatch([{ user: "ann", ...given }]), refusal);
  const wanted = {
    user: "ann", arms: [{ id: "a", x: [1] }], x: [1], k: 1, decision_id: "d", chosen: "a", chosen_propensity: 1,
    exclude: [], seen: "exclude", at_most: 1,
  };
  assert.deepEqual(sent, [wanted, { decisions: [wanted] }]);
});
