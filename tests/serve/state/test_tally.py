"""Sums over users are exact: what is erased leaves nothing behind."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lcb.errors import StoreError
from lcb.serve.state.tally import StoredTally, Tally
from support.raw_requests import Local

ARMS = [{"id": "a", "x": [1.0, 0.0]}, {"id": "b", "x": [0.0, 1.0]}]


def serve_user(local: Local, user: str, rewards: list[float]) -> None:
    for i, reward in enumerate(rewards):
        decided = local.send("POST", "/v1/decisions", {"user": user, "arms": ARMS, "decision_id": f"{user}-{i}"})
        assert decided.status == 200
        assert local.send("POST", "/v1/rewards", {"decision_id": f"{user}-{i}", "reward": reward}).status == 200


@pytest.mark.parametrize("restart", [False, True])
def test_an_erased_reward_of_1e9_leaves_no_rounding_behind(tmp_path: Path, restart: bool) -> None:
    kept = {f"u{i}": [0.1 * (i + 1), 0.7] for i in range(4)}
    with Local(str(tmp_path / "lcb.db"), reward_range=(0.0, 1e9)) as local:
        serve_user(local, "u0", kept["u0"])
        serve_user(local, "big", [1e9, 0.3])
        for user in ("u1", "u2", "u3"):
            serve_user(local, user, kept[user])
        if restart:
            local.down()
            local.up()
        assert local.ask("DELETE", "/v1/users/big").status == 200
        local.verify()
        told = local.ask("GET", "/v1/trials").json["recommenders"][0]
        sums = {user: rewards[0] + rewards[1] for user, rewards in kept.items()}
        assert told["reward_sum"] == float(sum(map(Fraction, sums.values())))
        assert told["mean"] == float(sum(Fraction(one / 2) for one in sums.values())) / 4
        assert told["deviation"] == pytest.approx(np.std([one / 2 for one in sums.values()], ddof=1), rel=1e-9)


def test_sums_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(0)
    rates = (rng.normal(size=3000) * 10.0 ** rng.integers(-9, 9, 3000)).tolist()
    stays, goes = rates[:1000], rates[1000:]
    tallies = []
    for order in (rng.permutation(3000), rng.permutation(3000)):
        tally = Tally()
        for i in order.tolist():
            tally.change_rate(0.0, rates[i])
            tally.change_rewards(0.0, rates[i])
        for rate in goes:
            tally.change_rate(rate, 0.0)
            tally.change_rewards(rate, 0.0)
        tallies.append(tally)
    one, other = tallies
    assert one.pack() == other.pack()
    assert one.rate_sum == one.reward_sum == float(sum(map(Fraction, stays)))
    assert one.rate_square_sum == float(sum(Fraction(rate * rate) for rate in stays))
    assert Tally.unpack(one.pack()).pack() == one.pack()


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_stored_sum_that_is_not_finite_is_refused(number: float) -> None:
    """Condensing it would have no end."""
    stored = StoredTally(1, 1, 1, [0.5], [number], [0.25])
    with pytest.raises(StoreError, match="not finite"):
        Tally.unpack(stored)
