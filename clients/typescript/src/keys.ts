// Objects that callers give: an unknown key is refused, since one that is left out changes what is asked for.

import { InputError } from "./errors.js";

/** The keys of `T`, all of them: the compiler refuses a list that lacks one. */
export type Keys<T> = { readonly [K in keyof Required<T>]: true };

/** Throw if `given` is no object, or has a key that is not among `known`; `what` says what it is. */
export function refuseUnknown(given: unknown, known: object, what: string): void {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    const got = Array.isArray(given) ? "a list" : JSON.stringify(given);
    throw new InputError(`${what}: got ${got}; give an object with some of the keys ${Object.keys(known).join(", ")}`);
  }
  for (const key of Object.keys(given)) {
    if (Object.hasOwn(known, key)) continue;
    const meant = Object.keys(known).find((one) => simplify(one) === simplify(key));
    const wanted = meant ? `write ${meant}` : `there are ${Object.keys(known).join(", ")}`;
    throw new InputError(`${what}: ${JSON.stringify(key)} is not a key; ${wanted}`);
  }
}

/** Return a key without what sets snake case and camel case apart. */
function simplify(key: string): string {
  return key.replaceAll("_", "").toLowerCase();
}
