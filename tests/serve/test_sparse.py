"""Distributions over many arms are stored in few bytes and come back bit for bit; those stored whole still verify."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lcb.serve import events, sparse
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.storage.store.open_store import open_store
from support.inside import Inside

N_ARMS = 300


@pytest.mark.parametrize("n_arms", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("n_others", [0, 1, 21, 22, 64, 333, 334, 1000])
def test_what_was_packed_comes_back_bit_for_bit(n_arms: int, n_others: int, rng: np.random.Generator) -> None:
    p = np.full(n_arms, 1e-5)
    p[rng.permutation(n_arms)[:n_others]] = rng.random(min(n_arms, n_others))
    data, rest = sparse.pack_distribution(p)
    assert sparse.unpack_distribution(data, rest, n_arms).tobytes() == p.tobytes()
    assert len(data) <= 8 * n_arms
    assert (rest is None) == (n_arms < 64 or 3 * n_others > n_arms)


def serve_some(path: Path) -> list[events.DecisionBody]:
    spec = RecommenderSpec("default", "linucb", uniform=0.1)
    with Inside(lambda: open_store(str(path)), Settings(recommenders=(spec,))) as inside:
        arms = [{"id": f"a{i}", "x": [float(i % 7), float(i % 3)]} for i in range(N_ARMS)]
        for user in ("ann", "bob"):
            inside.decide(user, arms=arms)
            inside.decide(user, arms=arms, k=3)
        bodies = [events.decode(row.kind, row.body) for row in inside.store.events(0) if row.kind == "decision"]
        assert verify(inside.store).differences == []
    return bodies


def test_a_decision_among_many_arms_is_small_and_verifies(tmp_path: Path) -> None:
    for body in serve_some(tmp_path / "new.db"):
        for arm in body.taken:
            assert arm.rest is not None
            assert len(arm.distribution or b"") < N_ARMS
            assert arm.full_distribution(N_ARMS).sum() == pytest.approx(1)
            assert arm.full_distribution(N_ARMS)[arm.arm] == arm.propensity


def test_distributions_that_were_stored_whole_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sparse, "FEWEST_ARMS", 10_000)
        bodies = serve_some(tmp_path / "old.db")
    assert all(arm.rest is None and len(arm.distribution or b"") == 8 * N_ARMS for b in bodies for arm in b.taken)
    store = open_store(str(tmp_path / "old.db"))
    assert verify(store).differences == []
    store.close()
