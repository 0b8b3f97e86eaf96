"""Rewards of a batch are folded together, each into the state that its user has then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lcb.messages import Arm, DecisionRequest, RewardRequest
from lcb.models import LatentModels
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.decide_many import decide_many, reward_many
from lcb.serve.state.per_user.user_fold import UserFold
from lcb.storage.models.folder import save_models
from support.inside import Inside, fold_log, pack_cached_users, sqlite

RNG = np.random.default_rng(0)
ARMS = [Arm(f"a{i}", x) for i, x in enumerate(RNG.normal(size=(8, 3)).round(3).tolist())]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Inside]:
    models = LatentModels(np.full(4, 0.25), RNG.normal(size=(4, 3)), np.full(4, 0.3))
    save_models(models, tmp_path / "models")
    served = tuple(RecommenderSpec(name, name) for name in ("thompson", "posterior-mean", "learned-classes"))
    with Inside(sqlite(tmp_path / "lcb.db"), Settings(models=str(tmp_path / "models"), recommenders=served)) as inside:
        yield inside


def reward_all(service: Inside) -> None:
    """Decide for 20 users, three times each, and send all rewards at once."""
    ids = []
    for _ in range(3):
        asked = [DecisionRequest(f"u{i}", ARMS) for i in range(20)]
        answers = service.done(decide_many(service.service, asked))
        ids += [json.loads(one)["decision_id"] for one in answers if isinstance(one, bytes)]
    assert len(ids) == 60
    service.done(reward_many(service.service, [RewardRequest(id, float(i % 3 == 0)) for i, id in enumerate(ids)]))


def test_users_have_the_bits_that_one_reward_after_another_gives(service: Inside) -> None:
    reward_all(service)
    users = pack_cached_users(service.service.world)
    again = fold_log(service.store)
    assert users == {name: again.user(name).pack() for name in users}  # type: ignore[union-attr]


def test_most_first_rewards_of_a_batch_are_folded_together(service: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    kept = UserFold.step

    def step(self: UserFold, user, row, body, reward):
        known = self._updates.get(row.seq)
        found.append(known is not None and known[0] is user.state)
        kept(self, user, row, body, reward)

    monkeypatch.setattr(UserFold, "step", step)
    reward_all(service)
    assert 5 <= sum(found) <= 20  # once for each user whose bandit can
