"""A mixture goes on after its log was compacted: users who have left stay seated, and refits use their base."""

from __future__ import annotations

import numpy as np

from lcb.serve.audit.verify import verify
from lcb.serve.learn.refit import _read_statistics
from lcb.serve.retain.compact import compact
from lcb.serve.retain.whole_log import open_restored
from support.mixture_service import MixtureInside


def test_refits_after_a_compaction_use_what_left_users_have_in_the_base(tmp_path):
    with MixtureInside(tmp_path) as inside:
        for user in range(6):
            inside.visit(user)
        inside.leave_all()
        inside.refit()
        seats = list(inside.mixture.seats)
        before = dict(_read_statistics(inside.store, inside.store.head(), seats, lambda *step: None))
        compact(inside.store, tmp_path / "archive", 0.0, now=lambda: inside.wall + 1, sleep=lambda seconds: None)
        after = dict(_read_statistics(inside.store, inside.store.head(), seats, lambda *step: None))
        assert before.keys() == after.keys()
        assert len(before) == 6
        for seq, sums in before.items():
            np.testing.assert_allclose(after[seq], sums, rtol=1e-12)
        inside.crash()
        inside.visit(1)  # comes back
        inside.visit(9)
        inside.leave_all()
        inside.refit()
        inside.visit(2)
        assert verify(inside.store).differences == []
        with open_restored(inside.store, tmp_path / "archive") as whole:
            assert verify(whole, whole=True).differences == []
