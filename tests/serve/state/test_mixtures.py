"""A mixture in the service: departures, returns, refits and erasures are folds of the log."""

from __future__ import annotations

import numpy as np
import pytest

from lcb.messages import Arm, DecisionRequest
from lcb.serve import events
from lcb.serve.audit.checks.snapshots import compare_worlds
from lcb.serve.audit.verify import verify
from lcb.serve.decide.drawing import CommonDraws, begin_draw
from lcb.serve.decide_many import decide_many
from lcb.serve.learn.departures import Departures
from support.inside import fold_log, pack_cached_users
from support.mixture_service import MixtureInside, settings


@pytest.fixture
def inside(tmp_path):
    with MixtureInside(tmp_path) as one:
        yield one


def check(inside: MixtureInside) -> None:
    """The state in memory is the fold of the log, and every decision recomputes."""
    assert compare_worlds(inside.service.world, fold_log(inside.store)) == []
    inside.store.append([], inside.service.world.seq, inside.service.build_snapshots())
    report = verify(inside.store, live=pack_cached_users(inside.service.world))
    assert report.differences == []
    assert report.n_snapshots > 0


def statistics(inside: MixtureInside, users: list[int]) -> np.ndarray:
    return np.sum([inside.service.world.user(f"u{i}").state for i in users], axis=0)


def test_it_serves_from_the_first_decision_and_seats_users_who_leave(inside):
    inside.visit(0)
    assert inside.service.world.mixtures.mixtures == {}
    assert inside.leave_all() == 1
    assert inside.mixture.n_left == 1
    for i in range(1, 9):
        inside.visit(i)
    inside.leave_all()
    inside.refit()
    assert sorted(inside.mixture.shares().values()) == pytest.approx([0.4, 0.5], abs=0.06)
    view = inside.service.world.mixtures.view("mix")
    means = view.bandit.models.beta[np.argsort(view.bandit.models.pi)[-2:]]
    np.testing.assert_allclose(means[np.argsort(means[:, 0])], [[0, 1, 0.3], [1, 0, 0.3]], atol=0.15)
    check(inside)


def test_everything_that_happens_during_a_refit_is_on_top_of_it(inside):
    for i in range(8):
        inside.visit(i)
    inside.leave_all()

    def meanwhile() -> None:
        inside.visit(3, 1)  # comes back
        inside.visit(8)
        inside.pass_time(700)
        inside.leave_all()  # both leave
        inside.visit(4, 1)  # and this one stays

    inside.refit(meanwhile)
    mixture = inside.mixture
    seated = [i for i in range(9) if i != 4]
    for sample in mixture.samples:
        sums = sample.sums.sum(axis=0)
        weights = sum(np.exp((seat.left - mixture.clock) / 2000) for seat in mixture.seats.values())
        assert sums[-1] == pytest.approx(4 * weights, rel=0.1)  # four or five rewards each
        assert sample.counts.sum() == len(seated)
    assert len(mixture.seats) == len(seated)
    check(inside)


def test_who_comes_back_is_out_of_the_class_before_the_next_decision(tmp_path):
    with MixtureInside(tmp_path, settings(memory=None, share_memory=None)) as inside:
        for i in range(6):
            inside.visit(i)
        inside.leave_all()
        inside.refit()
        user, world = inside.service.world.user("u2"), inside.service.world
        alone = world.state.bandit("mix", 0)[0]
        before = world.mixtures.bandit(user, alone)  # for the next decision
        assert before.models.n_classes <= sum(len(one.occupied) + 1 for one in inside.mixture.samples)
        inside.decide_for(2)
        after = world.mixtures.bandit(world.user("u2"), alone)
        np.testing.assert_array_equal(before.models.beta, after.models.beta)
        for sample in inside.mixture.samples:
            np.testing.assert_allclose(sample.sums.sum(axis=0), statistics(inside, [0, 1, 3, 4, 5]), atol=1e-9)
        check(inside)


@pytest.mark.parametrize("names", [["u2", "u0", "u1", "new", "u3"], ["u0", "u2", "new", "u1", "u3"]])
def test_each_decision_of_a_batch_is_made_without_its_own_user_alone(tmp_path, names):
    """Users who have left are in the classes for the others of the batch, whoever of them comes first."""
    with MixtureInside(tmp_path, settings(memory=None, share_memory=None)) as inside:
        for i in range(4):
            inside.visit(i, 1)
        inside.leave_all()
        inside.visit(2, 1)  # is back
        world, context = inside.service.world, inside.rng.normal(size=(60, 3))
        arms = [Arm(f"a{i}", x.tolist()) for i, x in enumerate(context)]
        together = CommonDraws(world, [one.id for one in arms], 3, None)
        for name in names:
            user = world.user(name) or world.fold.start("mix", 0, 0)
            alone = begin_draw(world, user, 0, together.ids, 3)
            np.testing.assert_array_equal(together.begin(user, 0).bandit.models.beta, alone.bandit.models.beta)
        asked = [DecisionRequest(name, arms) for name in names]
        assert all(isinstance(one, bytes) for one in inside.done(decide_many(inside.service, asked)))
        check(inside)


@pytest.mark.parametrize("bounded", [True, False])
def test_one_user_with_very_many_rewards_counts_as_one_with_a_hundred(tmp_path, monkeypatch, bounded):
    """Also when they come back, are refitted and erased; in a log of an earlier version every reward counts."""
    whole = events.ServiceBody
    with_rule = {"counts_users": bounded}
    monkeypatch.setattr(events, "ServiceBody", lambda *all, **more: whole(*all, **more | with_rule))
    with MixtureInside(tmp_path, settings(memory=None, share_memory=None)) as inside:
        for i in range(6):
            inside.visit(i)
        inside.visit("busy", 130)
        inside.leave_all()
        inside.refit()
        for sample in inside.mixture.samples:
            assert sample.sums[:, -1].sum() == pytest.approx(24 + (100 if bounded else 130))
        check(inside)
        inside.decide_for("busy")
        for sample in inside.mixture.samples:
            np.testing.assert_allclose(sample.sums.sum(axis=0), statistics(inside, [*range(6)]), atol=1e-9)
        inside.leave_all()
        inside.erase("busy")
        check(inside)


def test_a_departure_is_void_if_the_user_came_back_before_it_was_stored(inside):
    inside.visit(0)
    inside.pass_time(700)
    task = inside.ask(Departures(inside.service, lambda: None).write_due())
    waiting = inside.begin_decide("u0", arms=[{"id": "a", "x": [1.0, 0.0, 0.0]}])
    inside.service.journal.step(most=1, wait=False)  # the departure is stored first; then the decision
    inside.ended(task)
    inside.ended(waiting)
    assert inside.mixture.seats == {}
    inside.visit(1)
    seq = next(iter(inside.service.world.mixtures.present))
    late = events.LeaveBody(inside.wall, "mix", seq - 1)  # as if built before the last event
    inside.append("leave/late", "leave", late, user="u1")
    assert inside.mixture.seats == {}
    assert inside.service.world.user("u1").left == 0
    assert inside.leave_all() == 2
    assert len(inside.mixture.seats) == 2
    check(inside)


def test_a_late_or_changed_reward_takes_the_user_out_and_counts_once(tmp_path):
    with MixtureInside(tmp_path, settings(memory=None, share_memory=None)) as inside:
        late = inside.decide_for(0)
        changed = inside.decide_for(0)
        inside.reward(*changed)
        inside.visit(1)
        inside.leave_all()
        inside.reward(*late)
        assert len(inside.mixture.seats) == 1
        inside.leave_all()
        inside.reward(changed[0], 0.25)
        inside.leave_all()
        (sample,) = inside.mixture.samples
        np.testing.assert_allclose(sample.sums.sum(axis=0), statistics(inside, [0, 1]), atol=1e-9)
        check(inside)


def test_erasing_a_person_takes_them_out_at_the_next_refit_and_decisions_recompute(tmp_path):
    with MixtureInside(tmp_path, settings(memory=None, share_memory=None)) as inside:
        for i in range(6):
            inside.visit(i)
        inside.leave_all()
        inside.visit(2, 1)
        inside.leave_all()
        inside.refit()
        inside.visit("Klara", 3)
        inside.leave_all()
        inside.visit("Klara", 1)
        inside.visit(0, 1)
        inside.leave_all()
        before = inside.mixture.samples[-1].sums.sum(axis=0)
        inside.erase("Klara")
        np.testing.assert_array_equal(inside.mixture.samples[-1].sums.sum(axis=0), before)
        check(inside)
        assert b"Klara" not in b"".join(row.body + row.id.encode() for row in inside.store.events(0))
        assert b"Klara" not in inside.service.world.snapshot().body
        inside.visit(7, 1)
        inside.leave_all()
        inside.refit()
        for sample in inside.mixture.samples:
            np.testing.assert_allclose(sample.sums.sum(axis=0), statistics(inside, [*range(6), 7]), atol=1e-9)
        inside.crash()
        check(inside)


def test_a_restart_at_any_point_goes_on_with_the_same_mixture(tmp_path):
    with MixtureInside(tmp_path, settings(cached_bytes=3000)) as inside:  # users are evicted and read again
        for i in range(20):
            inside.visit(i % 14, 2)
            if i % 3 == 2:
                inside.leave_all()
            if i % 7 == 6:
                inside.refit(inside.crash if i == 13 else lambda: None)
            if i % 5 == 4:
                inside.stop()
                inside.start()
        check(inside)


def test_a_result_is_void_if_another_refit_has_begun(inside):
    for i in range(4):
        inside.visit(i)
    inside.leave_all()
    inside.refit(lambda: inside.refit() and None)
    assert len(inside.service.world.mixtures.history["mix"]) == 1
    check(inside)


def test_days_are_those_of_the_departures(tmp_path):
    given = settings(memory=10.0, share_memory=2.0, forget_per="day")
    with MixtureInside(tmp_path, given) as inside:
        inside.visit(0)
        inside.leave_all()
        inside.pass_time(10 * 86_400.0)
        inside.visit(1)
        inside.leave_all()
        (sample,) = inside.mixture.samples
        assert sample.size.sum() == pytest.approx(1 + np.exp(-1), rel=1e-3)
        assert sample.recent.sum() == pytest.approx(1 + np.exp(-5), rel=1e-3)
        inside.refit()
        assert inside.mixture.weight == pytest.approx(1 + np.exp(-1), rel=1e-3)
        assert inside.mixture.samples[0].size.sum() == pytest.approx(1 + np.exp(-1), rel=1e-3)
        check(inside)
