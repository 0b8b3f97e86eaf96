export type { Identified } from "./batches.js";
export { Client, type Arms, type ClientOptions, type DecideOptions } from "./client.js";
export { InputError, ServiceError, Unreachable } from "./errors.js";
export { Policy, parseRetryAfter, type PolicyOptions } from "./retries.js";
export * from "./types.js";
