/** What was given cannot be sent. */
export class InputError extends Error {
  override name = "InputError";
}

/** The service answered with an error; `field` names the place in the request, if one is to blame. */
export class ServiceError extends Error {
  override name = "ServiceError";
  /** Of a batch: its elements with their ids, each refused as this error says. */
  outcomes?: readonly { status: number; decision_id: string }[];

  constructor(
    readonly status: number,
    message: string,
    readonly field?: string,
  ) {
    super(message);
  }
}

/** No attempt got an answer. */
export class Unreachable extends Error {
  override name = "Unreachable";
  /** Of a batch: its elements with their ids, each refused as this error says. */
  outcomes?: readonly { status: number; decision_id: string }[];

  constructor(
    message: string,
    readonly reason: string,
  ) {
    super(message);
  }
}
