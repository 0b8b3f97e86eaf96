"""Drill 13: off-policy estimates from the service's own log agree with the true rewards of the other policies.

In a generated world everything is known: the class of every user and the mean reward of every arm.  The inverse
propensity estimate of a policy, a mean over the log of w r with w = pi(a | context) / propensity, differs from its true
value by a sum of martingale differences, whatever the service had learned by then; it must lie within three standard
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lcb import messages
from lcb.arrays import Floats
from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.decision import Decision
from lcb.models import LatentModels
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.service import Service
from lcb.storage.models.folder import save_models
from lcb.storage.store.base import Store
from support.harness import LONG, classes
from support.inside import Inside, sqlite

N_USERS, N_STEPS = (1000, 50) if LONG else (120, 20)
N_CLASSES, N_FEATURES, N_ARMS, NOISE = 4, 4, 5, 0.3
Policy = Callable[[Floats], Floats]


def world() -> LatentModels:
    return classes(7, N_CLASSES, N_FEATURES)


def policies(models: LatentModels) -> dict[str, Policy]:
    """Return the uniform policy, and the best policy of each class."""

    def best(beta: Floats) -> Policy:
        return lambda context: np.eye(N_ARMS)[int((context @ beta).argmax())]

    of_classes = {f"class {h}": best(beta) for h, beta in enumerate(models.beta)}
    return {"uniform": lambda context: np.full(N_ARMS, 1 / N_ARMS), **of_classes}


def serve(folder: Path, spec: RecommenderSpec, models: LatentModels) -> Inside:
    """Serve interleaved users of all classes; the service has the true models, but not the users' classes."""
    save_models(models, folder / "models")
    given = Settings(recommenders=(spec,), models=str(folder / "models"), reward_range=(-10.0, 10.0), pages=False)
    inside = Inside(sqlite(folder / "lcb.db"), given)
    rng = np.random.default_rng(0)
    service = inside.service
    for _ in range(N_STEPS):
        contexts = rng.normal(size=(N_USERS, N_ARMS, N_FEATURES))
        for block in blocks(N_USERS, 40):
            made = []
            for u in block:
                arms = [messages.Arm(f"a{i}", x) for i, x in enumerate(contexts[u].tolist())]
                made.append(service.decisions.decide(messages.DecisionRequest(f"u{u}", arms)))
            append(service, made)
            rewarded = []
            for u, entry in zip(block, made, strict=True):
                assert not isinstance(entry, bytes)
                mean = contexts[u, entry.body.taken[0].arm] @ models.beta[u % N_CLASSES]
                rewarded.append(
                    service.rewards.reward(messages.RewardRequest(entry.row.id, float(rng.normal(mean, NOISE))))
                )
            append(service, rewarded)
    return inside


def blocks(n: int, size: int) -> Iterator[range]:
    return (range(i, min(n, i + size)) for i in range(0, n, size))


def append(service: Service, entries: list) -> None:
    for row in service.store.append([entry.row for entry in entries], service.world.seq).rows:
        service.applier.apply(row)


def drill(folder: Path, spec: RecommenderSpec) -> None:
    models = world()
    with serve(folder, spec, models) as inside:
        log = list(logged(inside.store))
    assert len(log) == N_USERS * N_STEPS
    for name, policy in policies(models).items():
        off = np.empty(len(log))
        for t, (user, context, arm, propensity, reward) in enumerate(log):
            p = policy(context)
            value = p @ (context @ models.beta[int(user[1:]) % N_CLASSES])
            off[t] = p[arm] / propensity * reward - value
        error = np.sqrt((off**2).sum()) / len(off)
        assert abs(off.mean()) <= 3 * error, f"IPS of {name} is {off.mean() / error:.1f} standard errors off"


def logged(store: Store) -> Iterator[tuple[str, Floats, int, float, float]]:
    """Return user, context, arm, propensity and reward of every decision, as logged."""
    decisions = {}
    for row in store.events(0):
        if row.kind == "decision":
            decisions[row.seq] = row.user, events.decode("decision", row.body)
        elif row.kind == "reward":
            reward = events.decode("reward", row.body)
            user, body = decisions.pop(reward.decision)
            assert user is not None
            context, taken = events.floats(body.x).reshape(N_ARMS, N_FEATURES), body.taken[0]
            yield user, context, taken.arm, taken.propensity, reward.reward


@pytest.mark.parametrize("bandit, settings", [("thompson", {"gamma": 0.2}), ("exp4", {}), ("uniform", {})])
def test_other_policies_can_be_valued_from_the_log(tmp_path: Path, bandit: str, settings: dict[str, float]) -> None:
    drill(tmp_path, RecommenderSpec("lcb", bandit, settings=settings))


def test_a_softmax_logged_as_the_propensity_of_the_best_arm_misleads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(self: GeneralizedThompson, state: Floats, context: Floats, rng: np.random.Generator) -> Decision:
        scores = context @ (self.weights(state) @ self.models.beta)
        p = np.exp(scores - scores.max())
        p /= p.sum()
        arm = int(scores.argmax())
        return Decision(arm, p[arm], context[arm], p)

    monkeypatch.setattr(GeneralizedThompson, "choose", choose)
    with pytest.raises(AssertionError, match="standard errors off"):
        drill(tmp_path, RecommenderSpec("lcb"))
