"""Drill 37: the log of a new service supports estimates of any policy.

LinTS, left alone, soon stops showing the arms that it thinks little of; an estimate of the uniform policy from its log
is then far from the truth.  The share of uniform decisions (`uniform`, 0.01 in new services) keeps every arm shown.
The world is known: each arm has a click rate.  The control sets uniform = 0 and must be refused an interval.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lcb import messages
from lcb.bandits.registry import BANDITS
from lcb.bandits.uniform import Uniform
from lcb.evaluate.offline.logged_events import read_events
from lcb.evaluate.offline.off_policy import WeightedEvents, weigh_events
from lcb.event_log import EventLog
from lcb.learners import fit
from lcb.models import LatentModels
from lcb.recommenders.pooled import Pooled
from lcb.serve.audit.export import Exported, export
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import UNIFORM, RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage.logs.log import open_log
from lcb.storage.models.folder import save_models
from support.harness import LONG, classes
from support.inside import Inside, sqlite

RATES = np.array([0.1, 0.15, 0.05, 0.1, 0.6, 0.65])  # of six arms; the uniform policy has their mean
N_USERS, N_STEPS = (300, 200) if LONG else (40, 100)
N_AT_ONCE = 20


def serve(folder: Path, spec: RecommenderSpec) -> tuple[Exported, WeightedEvents, set[str]]:
    """Serve users who click by `RATES`; return the export, its IPS weights for the uniform policy, the arms shown."""
    categories = tuple(f"c{i}" for i in range(6))
    given = Settings(recommenders=(spec,), categories=categories, pages=False)
    rng = np.random.default_rng(5)
    with Inside(sqlite(folder / "lcb.db"), given) as inside:
        service = inside.service
        inside.items(*({"id": name, "categories": [name]} for name in categories))
        for _ in range(N_STEPS):
            for start in range(0, N_USERS, N_AT_ONCE):
                users = range(start, start + N_AT_ONCE)
                made = [service.decisions.decide(messages.DecisionRequest(f"u{u}")) for u in users]
                append(inside, made)
                clicks = rng.random(N_AT_ONCE) < RATES[[entry.body.taken[0].arm for entry in made]]
                append(
                    inside,
                    [
                        service.rewards.reward(messages.RewardRequest(entry.row.id, float(click)))
                        for entry, click in zip(made, clicks, strict=True)
                    ],
                )
        exported = export(inside.store, folder / "exported")
        report = verify(inside.store)
        assert report.n_differences == 0, report.differences
    logged = read_events(open_log(folder / "exported"))
    found = weigh_events(
        Pooled(Uniform()), logged, np.eye(6), theta=np.zeros(6), rng=np.random.default_rng(0), learn=False
    )
    return exported, found, set(logged.arm.tolist())


def append(inside: Inside, entries: list) -> None:
    for row in inside.store.append([entry.row for entry in entries], inside.service.world.seq).rows:
        inside.service.applier.apply(row)


def test_every_arm_is_shown_and_the_uniform_policy_can_be_estimated(tmp_path: Path) -> None:
    exported, found, shown = serve(tmp_path, RecommenderSpec("lints", "lints", "everyone"))
    assert shown == set(range(6))
    assert exported.uniform.missing == 0
    assert exported.uniform.is_sufficient, exported.uniform.shortfall
    assert found.support.is_sufficient, found.support.shortfall
    value, error = found.estimate("ips")
    assert abs(value - RATES.mean()) < 3 * error


def test_control_without_a_uniform_share_the_estimate_is_wrong_and_refused(tmp_path: Path) -> None:
    exported, found, _ = serve(tmp_path, RecommenderSpec("lints", "lints", "everyone", uniform=0.0))
    value, error = found.estimate("ips")
    assert abs(value - RATES.mean()) > 3 * error
    assert not found.support.is_sufficient
    assert "never shows" in exported.uniform.shortfall


def learn_mixture() -> LatentModels:
    """Models of 4 features, which the bandit `mixture` can go on from."""
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(20), 5), rng.normal(size=(100, 4))
    return fit(EventLog.from_rows(user, x, x[:, 0] * (-1.0) ** user), rng=rng, learner="mixture").models


@pytest.mark.parametrize("bandit", BANDITS)
def test_with_any_bandit_every_arm_keeps_the_uniform_share_of_its_chance(tmp_path: Path, bandit: str) -> None:
    """Also during warm-up, and for the slots of a list; the log recomputes bit for bit."""
    models = classes(7, 3, 4).with_covariance(np.tile(np.eye(4), (3, 1, 1)))
    if bandit == "mixture":
        models = learn_mixture()
    fixed = BANDITS[bandit].traits.fixed_arms
    save_models(models, tmp_path / "models")
    for n, folder in enumerate([tmp_path / "models", None]):
        given = Settings(
            recommenders=(RecommenderSpec("lcb", bandit),), models=None if folder is None else str(folder), pages=False,
            reward_range=(0.0, 1.0),
        )  # fmt: skip
        rng = np.random.default_rng(3)
        with Inside(sqlite(tmp_path / f"{n}.db"), given) as inside:
            service = inside.service
            for t in range(30):
                context = np.eye(4) if fixed else rng.normal(size=(4, 4))
                arms = [messages.Arm(f"a{i}", x) for i, x in enumerate(context.tolist())]
                made = service.decisions.decide(messages.DecisionRequest(f"u{t % 3}", arms, k=None if fixed else 2))
                for place, taken in enumerate(made.body.taken):
                    p = taken.full_distribution(4)
                    left = np.delete(p, [one.arm for one in made.body.taken[:place]])
                    assert left.min() >= UNIFORM / len(left) * (1 - 1e-12)
                    assert p.sum() == pytest.approx(1, abs=1e-12)
                    assert p[taken.arm] == taken.propensity
                append(inside, [made])
                name = made.row.id if fixed else f"{made.row.id}/1"
                append(inside, [service.rewards.reward(messages.RewardRequest(name, float(t % 2)))])
            report = verify(inside.store)
            assert report.n_differences == 0, report.differences
