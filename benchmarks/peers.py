"""Rounds per CPU second of other libraries on the same work, as a multiple of NumPy LinUCB in the same process.

Run by an interpreter that has them; needs nothing of ours.  A library that cannot be imported is named as missing.
One JSON object per line.
"""

from __future__ import annotations

import json
import os
import time
import warnings

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

warnings.filterwarnings("ignore")
SIZES, N_ROUNDS, WIDTH = ((20, 10), (170, 21)), 600, 0.5


def numpy_linucb(d):
    inverse, b, theta = np.eye(d), np.zeros(d), np.zeros(d)

    def choose(x):
        return int((x @ theta + WIDTH * np.sqrt(((x @ inverse) * x).sum(1))).argmax())

    def update(x, arm, reward):
        w = inverse @ x[arm]
        inverse[:] -= np.outer(w, w) / (1 + w @ x[arm])
        b[:] += reward * x[arm]
        theta[:] = inverse @ b

    return choose, update


def coba(d):
    from coba.learners import LinUCBLearner

    learner = LinUCBLearner(alpha=WIDTH, features=["a"], seed=1)

    def choose(x):
        actions = list(map(tuple, x.tolist()))
        return actions.index(learner.predict(None, actions)[0])

    return choose, lambda x, arm, reward: learner.learn(None, tuple(x[arm].tolist()), reward, 1.0)


def vowpal_wabbit(d):
    import vowpalwabbit

    model = vowpalwabbit.Workspace("--quiet --noconstant --cb_explore_adf --epsilon 0.05")
    rng, last = np.random.default_rng(0), {}

    def choose(x):
        last["lines"] = ["| " + " ".join(f"{j}:{v:.6f}" for j, v in enumerate(row)) for row in x.tolist()]
        p = np.asarray(model.predict(last["lines"]), float)
        arm = int(rng.choice(len(p), p=p / p.sum()))
        last["p"] = p[arm]
        return arm

    def update(x, arm, reward):
        lines = list(last["lines"])
        lines[arm] = f"0:{-reward:.6f}:{last['p']:.6f} {lines[arm]}"
        model.learn(lines)

    return choose, update


def mabwiser(d):
    from mabwiser.mab import MAB, LearningPolicy

    model = MAB([0], LearningPolicy.LinUCB(alpha=WIDTH))  # one arm for all: the only way to share the weights
    model.fit(decisions=[0], rewards=[0.0], contexts=np.zeros((1, d)))
    return (
        lambda x: int(np.argmax([row[0] for row in model.predict_expectations(x)])),
        lambda x, arm, reward: model.partial_fit([0], [reward], x[arm : arm + 1]),
    )


def contextualbandits(d):
    from contextualbandits.online import LinUCB

    model = LinUCB(nchoices=2, alpha=WIDTH, fit_intercept=False, use_float=False, random_state=1)
    model.partial_fit(np.zeros((2, d)), np.array([0, 1]), np.zeros(2))
    return (
        lambda x: int(np.argmax(model.decision_function(x)[:, 0])),
        lambda x, arm, reward: model.partial_fit(x[arm : arm + 1], np.array([0]), np.array([reward])),
    )


def river(d):
    from river import linear_model

    model = linear_model.BayesianLinearRegression(alpha=1.0, beta=100.0)
    model.learn_one(dict.fromkeys(range(d), 1e-6), 0.0)

    def choose(x):
        found = [model.predict_one(dict(enumerate(row)), with_dist=True) for row in x.tolist()]
        return int(np.argmax([value.mu + WIDTH * value.sigma for value in found]))

    return choose, lambda x, arm, reward: model.learn_one(dict(enumerate(x[arm].tolist())), reward)


PEERS = {
    "coba LinUCB": coba,
    "Vowpal Wabbit ADF, epsilon": vowpal_wabbit,
    "MABWiser LinUCB, one arm": mabwiser,
    "contextualbandits LinUCB, one arm": contextualbandits,
    "river Bayesian regression as UCB": river,
}


def cpu_seconds(make, x, rewards):
    choose, update = make(x.shape[2])
    before = time.process_time()
    for context, reward in zip(x, rewards):  # noqa: B905
        arm = choose(context)
        update(context, arm, reward[arm])
    return time.process_time() - before


def main():
    for name, make in PEERS.items():
        for n_arms, d in SIZES:
            rng = np.random.default_rng(0)
            x = rng.uniform(-1, 1, (N_ROUNDS, n_arms, d))
            x /= np.linalg.norm(x, axis=2, keepdims=True)
            rewards = x[:, :, 0] + 0.1 * rng.standard_normal((N_ROUNDS, n_arms))
            try:
                make(d)
            except ImportError as error:
                print(json.dumps({"peer": name, "missing": str(error)}))
                break
            ours = min(cpu_seconds(numpy_linucb, x, rewards) for _ in range(5))
            theirs = min(cpu_seconds(make, x, rewards) for _ in range(2))
            print(json.dumps({"peer": name, "n_arms": n_arms, "d": d, "ratio": ours / theirs}), flush=True)


if __name__ == "__main__":
    main()
