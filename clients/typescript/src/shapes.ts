// The shape of answers: a proxy, or another program at the url, may send JSON that is not the service's.

type Test = (value: unknown) => boolean;

/** The fields of a plain object that callers rely on; others may be there. */
export type Shape = Readonly<Record<string, Test>>;

const isText: Test = (value) => typeof value === "string";
const isNumber: Test = Number.isFinite;
const isList: Test = Array.isArray;
const listOf = (test: Test): Test => (value) => Array.isArray(value) && value.every(test);
const orNull = (test: Test): Test => (value) => value === null || test(value);
/** Null, or not there at all. */
const orNone = (test: Test): Test => (value) => value === null || value === undefined || test(value);
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const SLOT: Shape = { arm: isText, propensity: isNumber, reward_id: isText };
export const DECISION: Shape = {
  decision_id: isText,
  arm: isText,
  propensity: orNull(isNumber),
  distribution: listOf(isNumber),
  model: isNumber,
  policy: isText,
  recommender: isText,
  slots: orNone(listOf((slot) => findFault(slot, SLOT) === null)),
  would: orNone(isText),
};
export const REWARD: Shape = { decision_id: isText, reward: isNumber };
export const OUTCOMES: Shape = { outcomes: isList };
export const OUTCOME: Shape = {
  status: isNumber,
  answer: orNone(isObject),
  detail: orNone(isText),
  field: orNone(isText),
  retry_after: orNone(isNumber),
};
export const ITEMS: Shape = { n_items: isNumber, n_features: orNull(isNumber) };
export const CATALOGUE: Shape = { items: listOf(isObject), n_items: isNumber };
export const USER: Shape = { user: isText, n_decisions: isNumber, n_rewards: isNumber, reward_sum: isNumber };
export const ERASURE: Shape = { erased: isNumber };
export const MODELS: Shape = { active: isNumber, versions: listOf(isObject), retraining: isObject };
export const RETRAINING: Shape = { running: (value) => typeof value === "boolean" };
export const ACTIVATION: Shape = { active: isNumber };
export const TRIALS: Shape = { recommenders: listOf(isObject), differences: listOf(isObject) };
export const HEALTH: Shape = { status: isText };

/** Say what of a shape `value` lacks; null if nothing. */
export function findFault(value: unknown, shape: Shape): string | null {
  if (!isObject(value)) return "it is no object";
  for (const [name, test] of Object.entries(shape)) {
    const field = Object.hasOwn(value, name) ? value[name] : undefined;
    if (!test(field)) return field === undefined ? `it has no ${name}` : `its ${name} is ${quote(field)}`;
  }
  return null;
}

/** Return a value for an error; what is in lists and objects is left out, since it may be large. */
export function quote(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (isObject(value)) return "an object";
  return (JSON.stringify(value) ?? "undefined").slice(0, 80);
}
