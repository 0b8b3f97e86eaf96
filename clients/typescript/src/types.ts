// Written by scripts/write-typescript-types from /openapi.json; the check compares.

export interface ActivateAnswer {
  active: number;
}

/** Why this version is activated; the log keeps the reason. */
export interface ActivateRequest {
  reason?: string;
}

/** An arm: an id with its features, or the id alone for an item of the catalogue. */
export interface Arm {
  /** Any printable text of at most 256 characters. */
  id: string;
  x?: number[] | null;
}

/** The arm to show; `distribution` holds the probability of every arm, in the order of the request. */
export interface DecisionAnswer {
  decision_id: string;
  arm: string;
  propensity: number | null;
  distribution: number[];
  model: number;
  policy: string;
  recommender: string;
  slots?: Slot[] | null;
  would?: string | null;
}

/** The answer of one decision of a batch (`status` 200), or why it was refused. */
export interface DecisionOutcome {
  status: number;
  answer?: DecisionAnswer | null;
  detail?: string | null;
  field?: string | null;
  retry_after?: number | null;
}

/** The user and the arms to choose from; without `arms`, every item of the catalogue. */
export interface DecisionRequest {
  /** Any printable text of at most 256 characters. */
  user: string;
  arms?: Arm[] | null;
  /** Features of the user, crossed with those of the arms. */
  x?: number[] | null;
  /** Length of the list: one arm per slot. */
  k?: number | null;
  /** At most 64 letters, digits and _ . : - . The idempotency key, and the seed of the draw. */
  decision_id?: string | null;
  /** Shadow mode: the arm that the caller chose; the service logs its own choice. */
  chosen?: string | null;
  chosen_propensity?: number | null;
  /** Ids of arms that must not be shown. */
  exclude?: string[] | null;
  /** `exclude`: nothing that this user was shown before; `exclude-taken`: nothing that this user took, which is what has a reward above 0. */
  seen?: "exclude" | "exclude-taken" | null;
  /** Arms of one category in a list; categories are the catalogue's. */
  at_most?: number | null;
}

/** The outcomes of a batch of decisions, in the order of the request. */
export interface DecisionsAnswer {
  outcomes: DecisionOutcome[];
}

/**
 * Decisions to make together; each is answered as if it had been sent alone at the same moment.
 *
 * `arms` are the arms of all decisions that send none.
 */
export interface DecisionsRequest {
  decisions: DecisionRequest[];
  arms?: Arm[] | null;
}

/** The number of events that were erased. */
export interface EraseAnswer {
  erased: number;
}

/** `status` is ok, loading, draining or trouble; `detail` says more. */
export interface Health {
  status: string;
  detail?: string;
}

/** One item of the catalogue, with the features or the categories it was sent with. */
export interface Item {
  id: string;
  x?: number[] | null;
  categories?: string[] | null;
  title?: string | null;
  summary?: string | null;
}

/** One item of the catalogue: features, or categories that the service turns into features. */
export interface ItemRequest {
  /** Any printable text of at most 256 characters. */
  id: string;
  x?: number[] | null;
  categories?: string[] | null;
  title?: string | null;
  summary?: string | null;
}

export interface ItemsAnswer {
  n_items: number;
  n_features: number | null;
}

export interface ItemsList {
  items: Item[];
  n_items: number;
}

/** Items to add or change; `replace` removes all others. */
export interface ItemsRequest {
  items: ItemRequest[];
  replace?: boolean;
  remove?: string[];
}

/** One model version, its scores and how it was learned. */
export interface ModelAnswer {
  version: number;
  active: boolean;
  status: "active" | "kept" | "aside" | "canary" | "withdrawn" | "damaged";
  n_classes: number;
  n_features: number;
  n_users: number;
  created: string;
  score: number | null;
  baseline: number | null;
  reason: string;
  provenance: Record<string, unknown>;
}

export interface ModelsAnswer {
  active: number;
  versions: ModelAnswer[];
  retraining: RetrainingAnswer;
}

/** An error (RFC 9457): `detail` says what is wrong and what to do next, `field` names the place in the request. */
export interface ProblemAnswer {
  type: string;
  title: string;
  status: number;
  detail: string;
  field?: string | null;
}

/** Mean reward per decision of the users of `of` minus that of the users of `to`, with Welch's 95 % interval. */
export interface RecommenderDifference {
  of: string;
  to: string;
  mean: number;
  low: number;
  high: number;
}

/**
 * Progress of learning in the background.
 *
 * `error` is from the last run that failed, `note` says why the last run could not start. `n_started` are the users to learn from, `next_at` is their number at which the next run starts by itself, null if none will.
 */
export interface RetrainingAnswer {
  running: boolean;
  phase?: string;
  done?: number;
  total?: number;
  started?: string | null;
  error?: string | null;
  n_failed?: number;
  note?: string | null;
  n_started?: number;
  next_at?: number | null;
}

/** `reward` is the stored reward: with `sum` or `first`, not always the one that was sent. */
export interface RewardAnswer {
  decision_id: string;
  reward: number;
}

/** The answer of one reward of a batch (`status` 200), or why it was refused. */
export interface RewardOutcome {
  status: number;
  answer?: RewardAnswer | null;
  detail?: string | null;
  field?: string | null;
  retry_after?: number | null;
}

/** The reward of a decision; it may come late, out of order, and more than once. */
export interface RewardRequest {
  /** A decision_id, or the reward_id of a slot. */
  decision_id: string;
  reward: number;
  /** With `rewards = sum`: the id of this contribution. */
  reward_id?: string | null;
}

/** The outcomes of a batch of rewards, in the order of the request. */
export interface RewardsAnswer {
  outcomes: RewardOutcome[];
}

/** Rewards to report together. */
export interface RewardsRequest {
  rewards: RewardRequest[];
}

/** One place in a list of arms; `propensity` is the arm's probability given the slots above. */
export interface Slot {
  arm: string;
  propensity: number;
  reward_id: string;
}

/** `why` says why there are no differences, if the rewards cannot tell. */
export interface TrialAnswer {
  recommenders: TrialRecommender[];
  differences: RecommenderDifference[];
  why?: string | null;
}

/** `mean` and `deviation` over users of the reward per decision, as in the paper's user study. */
export interface TrialRecommender {
  name: string;
  bandit: string;
  share: number;
  n_users: number;
  n_decisions: number;
  n_rewards: number;
  reward_sum: number;
  mean: number | null;
  deviation: number | null;
}

/** The state of one user; `posterior` holds the probability of each class. */
export interface UserAnswer {
  user: string;
  recommender: string;
  model: number;
  policy: string;
  n_decisions: number;
  n_rewards: number;
  reward_sum: number;
  posterior: number[] | null;
  seq: number;
}
