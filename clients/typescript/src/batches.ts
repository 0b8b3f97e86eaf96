// Batches, under the same rules as in the Python client.
//
// Elements for which the service is busy are sent again under the rules of retries.ts, with the ids of the first attempt.
// The next part is sent after that, unless nothing of this one was answered.  What has failed in the end is an outcome as
// well, with the id under which it can be sent again.

import { ServiceError, Unreachable } from "./errors.js";
import { buildError, type Call, checkId, encode, readReply, refuse, type Reply, type Sending } from "./replies.js";
import { AGAIN } from "./retries.js";
import { findFault, OUTCOME, OUTCOMES, quote, type Shape } from "./shapes.js";

const MOST_IN_BATCH = 100;

/** An outcome with the id of its decision, as it was sent. */
export type Identified<Outcome> = Outcome & { decision_id: string };

interface Outcome {
  status: number;
  detail?: string | null;
  field?: string | null;
  retry_after?: number | null;
  answer?: { decision_id: string } | null;
}

/** `before` is what a body has before its elements, `answer` the shape of their answers. */
interface Batch {
  path: string;
  before: string;
  elements: readonly { readonly decision_id: string }[];
  answer: Shape;
}

/** Send a batch in parts, each with the retries and the deadline of one call; return the outcomes in order. */
export async function sendBatch<O extends Outcome>(sending: Sending, batch: Batch): Promise<Identified<O>[]> {
  const ids = batch.elements.map((element) => element.decision_id);
  const encoded = batch.elements.map(encode);
  const found: (Identified<Outcome> | undefined)[] = ids.map(() => undefined);
  let answered = false;
  for (let start = 0; start < ids.length; start += MOST_IN_BATCH) {
    const part = ids.slice(start, start + MOST_IN_BATCH).map((_, i) => start + i);
    let error: ServiceError | Unreachable | undefined;
    try {
      await sendPart(sending, batch, encoded, ids, part, found);
    } catch (failed) {
      if (!(failed instanceof ServiceError || failed instanceof Unreachable)) throw failed;
      error = failed;
    }
    const busy = part.filter((i) => isBusy(found[i]));
    answered ||= busy.length < part.length;
    if (error !== undefined) for (const i of busy) found[i] = { ...buildRefusal(error), decision_id: ids[i]! };
    if (error === undefined && busy.length < part.length) continue;
    const { status, detail, retry_after } = found[part[part.length - 1]!]!;
    for (let i = start + part.length; i < ids.length; i++) {
      found[i] = { status, detail: `not sent: ${detail}`, ...(retry_after ? { retry_after } : {}), decision_id: ids[i]! };
    }
    if (error !== undefined && !answered) {
      error.outcomes = found as Identified<Outcome>[];
      throw error;
    }
    break;
  }
  return found as Identified<O>[];
}

/** Send a part until none of it is busy, or it is time to give up; throw if an attempt failed as a whole. */
async function sendPart(
  { policy, clock, random, sleep, attempt }: Sending,
  { path, before, answer }: Batch,
  encoded: readonly string[],
  ids: readonly string[],
  part: readonly number[],
  found: (Identified<Outcome> | undefined)[],
): Promise<void> {
  const call: Call<{ outcomes: Outcome[] }> = { method: "POST", path, shape: OUTCOMES };
  const began = clock();
  const end = began + policy.deadline;
  let left = part;
  for (let n = 0; ; n++) {
    const body = `${before}${left.map((i) => encoded[i]).join(",")}]}`;
    const outcome = await attempt(call, body, Math.min(policy.timeout, Math.max(end - clock(), 0.001)));
    const replied = "status" in outcome;
    const answered = replied && !AGAIN.has(outcome.status);
    let retryAfter = replied ? outcome.retryAfter : null;
    if (answered) {
      const outcomes = readOutcomes(call, outcome, left.map((i) => ids[i]!), answer);
      left.forEach((i, n) => (found[i] = { ...outcomes[n]!, decision_id: ids[i]! }));
      left = left.filter((i) => isBusy(found[i]));
      if (left.length === 0) return;
      retryAfter = String(Math.max(...left.map((i) => found[i]?.retry_after ?? 0)));
    }
    const wait = policy.wait(n, retryAfter, end - clock(), random);
    if (wait === null) {
      if (answered) return;
      throw buildError(call, outcome, n + 1, clock() - began);
    }
    await sleep(wait);
  }
}

/** Return the outcomes of the elements with these ids; throw if they are not theirs. */
function readOutcomes(call: Call<{ outcomes: Outcome[] }>, reply: Reply, ids: readonly string[], shape: Shape): Outcome[] {
  const { outcomes } = readReply(call, reply, false);
  const [got, n] = [outcomes.length, ids.length];
  if (got !== n) {
    throw new ServiceError(reply.status, `${call.method} ${call.path} got ${got} outcomes for ${n} elements; check the url`);
  }
  outcomes.forEach((one, i) => {
    const fault = findFault(one, OUTCOME);
    if (fault !== null) throw refuse(call, reply, `outcome ${i} that is not lcb's: ${quote(one)} (${fault})`);
    const { status, answer } = one;
    if (answer !== null && answer !== undefined) {
      const lack = findFault(answer, shape);
      if (lack !== null) throw refuse(call, reply, `an answer in outcome ${i} that is not lcb's: ${quote(answer)} (${lack})`);
      checkId(call, reply, answer, ids[i]!);
    } else if (status < 400) {
      throw refuse(call, reply, `no answer for ${quote(ids[i])} in an outcome with status ${status}`);
    }
  });
  return outcomes;
}

/** Whether an element has no outcome yet, or one after which the same element may succeed later. */
function isBusy(outcome: Outcome | undefined): boolean {
  return outcome === undefined || AGAIN.has(outcome.status);
}

/** Return the outcome of an element whose request failed as a whole; an answer that cannot be lcb's is 502. */
function buildRefusal(error: ServiceError | Unreachable): Outcome {
  if (error instanceof Unreachable) return { status: 503, detail: error.message };
  const status = error.status >= 400 ? error.status : 502;
  return { status, detail: error.message, ...(error.field === undefined ? {} : { field: error.field }) };
}
