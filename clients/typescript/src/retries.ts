// Retry rules, the same as those of the Python client: when a call is sent again, and after which pause.
//
// The pause after attempt n, counted from 0, is uniform on [0, min(pause * 2^n, longestPause)], plus Retry-After.  It is
// at most half of the time that is left, so that the last attempt ends with the deadline and not long before it.

import { InputError } from "./errors.js";
import { type Keys, refuseUnknown } from "./keys.js";

/** Statuses after which a call is sent again. */
export const AGAIN: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Limits of a call, in seconds. */
export interface PolicyOptions {
  /** of one attempt */
  timeout?: number;
  /** number of further attempts; null: as many as the deadline allows */
  retries?: number | null;
  /** of all attempts and pauses together */
  deadline?: number;
  pause?: number;
  longestPause?: number;
}

export const LIMITS: Keys<PolicyOptions> = { timeout: true, retries: true, deadline: true, pause: true, longestPause: true };

export class Policy {
  readonly timeout: number;
  readonly retries: number | null;
  readonly deadline: number;
  readonly pause: number;
  readonly longestPause: number;

  constructor(options: PolicyOptions = {}) {
    refuseUnknown(options, LIMITS, "the options of Policy");
    const { timeout = 2, retries = null, deadline = 10, pause = 0.1, longestPause = 2 } = options;
    for (const [name, seconds] of Object.entries({ timeout, deadline, pause, longestPause })) {
      if (!(seconds > 0 && seconds < Infinity)) {
        throw new InputError(`${name}=${seconds}; give a number of seconds above 0`);
      }
    }
    if (retries !== null && !(Number.isInteger(retries) && retries >= 0)) {
      throw new InputError(`retries=${retries}; give 0 or more, or null for as many as the deadline allows`);
    }
    this.timeout = timeout;
    this.retries = retries;
    this.deadline = deadline;
    this.pause = pause;
    this.longestPause = longestPause;
  }

  /** Return the seconds to wait after attempt `n`, counted from 0, with `left` seconds left; null to give up. */
  wait(n: number, retryAfter: string | null, left: number, random: () => number): number | null {
    const asked = parseRetryAfter(retryAfter);
    left -= asked;
    if (left < this.pause || (this.retries !== null && n >= this.retries)) return null;
    return asked + Math.min(random() * Math.min(this.pause * 2 ** n, this.longestPause), left / 2);
  }
}

/** Return the seconds that Retry-After asks to wait; it holds a number of seconds or a date. */
export function parseRetryAfter(retryAfter: string | null): number {
  if (retryAfter === null) return 0;
  if (/^\s*\d+\s*$/.test(retryAfter)) return Number(retryAfter);
  const at = Date.parse(retryAfter);
  return Number.isNaN(at) ? 0 : Math.max(0, (at - Date.now()) / 1000);
}
