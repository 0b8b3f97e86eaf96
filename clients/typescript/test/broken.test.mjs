// Answers that the service cannot have sent are refused, and none takes more time or memory than allowed.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";

const { Client } = await import(process.env.LCB_CLIENT);

const DECISION = {
  decision_id: "d", arm: "a", propensity: 0.5, distribution: [0.5, 0.5], model: 1, policy: "thompson", recommender: "lcb",
};

/** A client of a service that answers everything with this JSON. */
function connect(json, status = 200) {
  return new Client("http://service", { fetch: async () => new Response(JSON.stringify(json), { status }), retries: 0 });
}

/** Run `use` with the url of a real server and the requests that came. */
async function serve(answer, use) {
  const seen = [];
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    answer(request, response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`http://127.0.0.1:${server.address().port}`, seen);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

const without = (name) => Object.fromEntries(Object.entries(DECISION).filter(([key]) => key !== name));
for (const [what, json, words] of [
  ["null", null, /it is no object/],
  ["a list", [], /it is no object/],
  ["a text", "a", /it is no object/],
  ["an empty object", {}, /it has no decision_id/],
  ["one without an arm", without("arm"), /it has no arm/],
  ["one without a distribution", without("distribution"), /it has no distribution/],
  ["an arm that is no text", { ...DECISION, arm: 3 }, /its arm is 3/],
  ["a probability as text", { ...DECISION, propensity: "0.5" }, /its propensity is "0.5"/],
  ["slots that are null", { ...DECISION, slots: [null] }, /its slots is a list/],
  ["slots without a reward_id", { ...DECISION, slots: [{ arm: "a", propensity: 1 }] }, /its slots is a list/],
]) {
  test(`a decision is not ${what}`, async () => {
    await assert.rejects(connect(json).decide("ann", { decisionId: "d" }), (error) => {
      assert.equal(error.name, "ServiceError");
      assert.match(error.message, /^POST \/v1\/decisions got an answer that is not lcb's: .*; check the url$/);
      assert.match(error.message, words);
      return true;
    });
  });
}

test("a right answer passes, also with fields of a later version", async () => {
  const slots = [{ arm: "a", propensity: 0.5, reward_id: "d/0" }];
  for (const answer of [DECISION, { ...DECISION, slots, would: null, later: 1 }, { ...DECISION, propensity: null }]) {
    assert.deepEqual(await connect(answer).decide("ann", { decisionId: "d" }), answer);
  }
});

test("no call takes null or an object of something else for its answer", async () => {
  const calls = [
    (client) => client.reward("d", 1), (client) => client.putItems([]), (client) => client.items(), (client) => client.user("ann"),
    (client) => client.erase("ann"), (client) => client.models(), (client) => client.retrain(), (client) => client.activate(1),
    (client) => client.trials(), (client) => client.health(), (client) => client.decideBatch([{ user: "ann" }]),
    (client) => client.rewardBatch([{ decision_id: "d", reward: 1 }]),
  ];
  for (const call of calls) {
    for (const json of [null, [], { hello: "world" }]) {
      await assert.rejects(call(connect(json)), { name: "ServiceError", message: /not lcb's.*check the url/ });
    }
  }
});

test("the answer of another request is refused", async () => {
  await assert.rejects(connect(DECISION).decide("ann", { decisionId: "mine" }), {
    name: "ServiceError",
    message: 'POST /v1/decisions got the answer of another request (decision_id "d", asked for "mine"); check the proxy in between',
  });
  await assert.rejects(connect({ decision_id: "d", reward: 1 }).reward("d/0", 1), /decision_id "d", asked for "d\/0"/);
});

const outcome = (id) => ({ status: 200, answer: { ...DECISION, reward: 1, decision_id: id } });
for (const [what, outcomes, words] of [
  ["in another order", [outcome("b"), outcome("a")], /another request \(decision_id "b", asked for "a"\)/],
  ["of another", [outcome("a"), outcome("c")], /another request \(decision_id "c", asked for "b"\)/],
  ["that are null", [outcome("a"), null], /outcome 1 that is not lcb's: null/],
  ["without a status", [outcome("a"), {}], /outcome 1 that is not lcb's: an object \(it has no status\)/],
  ["without an answer", [outcome("a"), { status: 200 }], /no answer for "b" in an outcome with status 200/],
  ["with a part of an answer", [outcome("a"), { status: 200, answer: { decision_id: "b" } }], /an answer in outcome 1 .*it has no/],
  ["that are no list", { length: 2 }, /its outcomes is an object/],
]) {
  test(`outcomes ${what} are refused`, async () => {
    const client = connect({ outcomes });
    for (const ask of [
      () => client.decideBatch([{ user: "ann", decisionId: "a" }, { user: "ben", decisionId: "b" }]),
      () => client.rewardBatch([{ decision_id: "a", reward: 1 }, { decision_id: "b", reward: 1 }]),
    ]) {
      await assert.rejects(ask, (error) => {
        assert.equal(error.name, "ServiceError");
        assert.match(error.message, words);
        assert.deepEqual(error.outcomes.map((one) => [one.status, one.decision_id]), [[502, "a"], [502, "b"]]);
        return true;
      });
    }
  });
}

for (const status of [301, 302, 303, 307, 308]) {
  test(`a redirect with status ${status} is not followed`, async () => {
    const elsewhere = (_, response) => response.end(JSON.stringify(DECISION));
    await serve(elsewhere, (other, asked) =>
      serve((_, response) => response.writeHead(status, { location: `${other}/v1/x` }).end(), async (url, seen) => {
        const client = new Client(url);
        await assert.rejects(client.decide("ann", { decisionId: "d" }), {
          name: "ServiceError",
          status,
          message: `got a redirect to "${other}/v1/x" (status ${status}), and redirects are not followed; give the url of the service itself`,
        });
        await assert.rejects(client.decideBatch([{ user: "ann" }]), /redirects are not followed/);
        assert.equal(seen.length, 2);
        assert.deepEqual(asked, []);
      }),
    );
  });
}

test("a redirect whose place the browser hides is refused too", async () => {
  const hidden = { type: "opaqueredirect", status: 0, redirected: false, body: null, headers: new Headers() };
  const client = new Client("http://service", { fetch: async () => hidden });
  await assert.rejects(client.models(), /^ServiceError: got a redirect \(status 302\), and redirects are not followed/);
});

test("an answer that drips ends with the time of the attempt", async () => {
  const drip = (_, response) => {
    response.writeHead(200);
    const timer = setInterval(() => response.write(" "), 20);
    response.on("close", () => clearInterval(timer));
  };
  await serve(drip, async (url, seen) => {
    const began = performance.now();
    await assert.rejects(new Client(url, { timeout: 0.3, retries: 0 }).models(), /no answer in 0\.30 s/);
    assert.ok(performance.now() - began < 3000);
    assert.equal(seen.length, 1);
  });
});

test("an answer is read up to a limit", async () => {
  assert.equal(Client.mostBytes, 64 * 2 ** 20);
  let sent = 0;
  const flood = (_, response) => {
    const piece = Buffer.alloc(65536, " ");
    const more = () => {
      while (!response.destroyed && response.write(piece)) sent += piece.length;
    };
    response.on("drain", more);
    more();
  };
  await serve(flood, async (url, seen) => {
    Client.mostBytes = 2 ** 20;
    try {
      await assert.rejects(new Client(url, { timeout: 20, deadline: 20 }).models(), {
        name: "ServiceError",
        message: "GET /v1/models got an answer of more than 1 MB, the most that is read; check the proxy in between",
      });
    } finally {
      Client.mostBytes = 64 * 2 ** 20;
    }
    assert.equal(seen.length, 1);
    assert.ok(sent < 2 ** 26, `${sent} bytes`);
  });
});
