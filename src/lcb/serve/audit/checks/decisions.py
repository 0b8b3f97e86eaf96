"""Recomputes a decision of the log with the code that made it."""

from __future__ import annotations

import math

import msgspec

from lcb.arrays import Floats
from lcb.errors import LCBError, StoreUnavailable
from lcb.features import cross
from lcb.serve import events
from lcb.serve.audit.report import Report
from lcb.serve.decide.drawing import begin_draw, draw_arms, draw_under_rules, record_callers_arm
from lcb.serve.decide.rules import rebuild_rules
from lcb.serve.errors import Problem
from lcb.serve.state.canary import Verdict
from lcb.serve.state.users import UserGone
from lcb.serve.state.world import World
from lcb.storage.store.base import Row

_LAST_BITS = 1e-12


def check_decision(world: World, row: Row, body: events.DecisionBody, report: Report) -> None:
    """Recompute a decision and report what differs; `world` is the state that the decision was made from."""
    report.n_decisions += 1
    if row.user is None:
        report.add(row.seq, "user", None, "a user, because it is a decision")
        return
    try:
        ids, context = rebuild_context(world, body)
        user = world.user(row.user)
        if user is None:
            model = world.state.model_for_newcomers(body.recommender, row.user)
            user = world.fold.start(body.recommender, model, 0, context.shape[1])
        else:
            model = world.state.model_for(user)
        served = (user.recommender, model)
        if (body.recommender, row.model) != served:
            report.add(row.seq, "recommender and model", (body.recommender, row.model), served)
            return
        draw = begin_draw(world, user, served[1], ids, context.shape[1])
        if body.rules is None:
            taken = draw_arms(draw, ids, context, row.id, len(body.taken) if body.listed else None)
        else:
            rules = rebuild_rules(world, row.user, ids, body.rules)
            taken, again = draw_under_rules(draw, ids, context, row.id, rules)
            _check_rules(row.seq, body, len(taken), again, report)
        if body.chosen is not None:
            callers = record_callers_arm(draw, ids, context, body.chosen.id, body.chosen.propensity)
            _check_taken(world, row.seq, body.n_arms, body.chosen, callers, report)
    except StoreUnavailable:
        raise
    except (Problem, LCBError, KeyError, ValueError, IndexError, UserGone) as error:
        report.add(row.seq, "the decision", "in the log", f"cannot be recomputed ({error})")
        return
    for stored, redrawn in zip(body.taken, taken, strict=False):
        _check_taken(world, row.seq, body.n_arms, stored, redrawn, report)


def check_canary(world: World, row: Row, body: events.CanaryBody, report: Report) -> None:
    """Compare the verdict on a canary with that of the replayed log.

    If a user whom it counted was erased since, the log no longer has what it rests on.
    """
    try:
        canary, stored = world.state.canary, msgspec.msgpack.decode(body.verdict, type=Verdict)
    except (msgspec.DecodeError, ValueError) as error:
        report.add(row.seq, "the verdict on a canary", f"unreadable ({error})", "a readable verdict")
        return
    if canary is None or canary.version != body.version:  # void
        return
    if (stored.promoted, stored.version) != (body.promoted, body.version):
        report.add(row.seq, "what was done with a canary", (body.version, body.promoted), stored)
    if world.erased_at > stored.seq or any(canary.since < seq <= stored.seq for seq in world.erased):
        return
    again = world.canary.verdict
    if again is not None and not stored.ranked:  # of an earlier version, which compared mean rates
        again = msgspec.structs.replace(
            again, ranked=False, low=stored.low, high=stored.high, promoted=not stored.high < 0
        )
    if again is None or not _are_close(stored, again):
        report.add(row.seq, "the verdict on a canary", stored, again)


def _are_close(one: Verdict, other: Verdict) -> bool:
    pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    return all(a == b if isinstance(a, int) else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in pairs)


def rebuild_context(world: World, body: events.DecisionBody) -> tuple[list[str], Floats]:
    if body.arms is None:
        ids, context = world.state.catalogue.ids, world.state.catalogue.matrix()
    else:
        ids = body.arms
        context = world.state.catalogue.x(ids) if body.x is None else events.floats(body.x).reshape(len(ids), -1)
    if len(ids) != body.n_arms:
        raise ValueError(f"{len(ids)} arms, not {body.n_arms}")
    return ids, context if body.user_x is None else cross(context, events.floats(body.user_x))


def _check_rules(seq: int, body: events.DecisionBody, n_slots: int, again: events.RulesBody, report: Report) -> None:
    """Compare the arms that the rules left for each slot, and the length of the list."""
    assert body.rules is not None
    if len(body.taken) != n_slots:
        report.add(seq, "slots of the list", len(body.taken), n_slots)
    elif events.encode(body.rules) != events.encode(again):
        stored, wanted = ([one.hex() for one in rules.left] for rules in (body.rules, again))
        report.add(seq, "the arms that the rules left", stored, wanted)


def _check_taken(
    world: World, seq: int, n_arms: int, stored: events.ChosenArm, again: events.ChosenArm, report: Report
) -> None:
    if stored.rest is None and again.rest is not None:  # distributions over many arms were stored whole before
        again.distribution, again.rest = again.full_distribution(n_arms).tobytes(), None
    if stored.mean is not None and again.mean is not None and math.isclose(stored.mean, again.mean, rel_tol=_LAST_BITS):
        # In older logs the last bit depended on where arrays lay in memory (decision 26).  Nothing rests on that bit:
        # the residual of the reward is taken from the mean that was logged, which the chain covers.
        again.mean = stored.mean
    if stored == again or events.encode(stored) == events.encode(again):  # only bytes tell that NaN is NaN again
        return
    assert world.state.settings is not None
    if not world.state.settings.exact and _are_nearly_equal(stored, again, n_arms):
        return
    for name in stored.__struct_fields__:
        one, other = getattr(stored, name), getattr(again, name)
        if one != other:
            if stored.rest is None and isinstance(one, bytes) and isinstance(other, bytes):
                one, other = events.floats(one).tolist(), events.floats(other).tolist()
            report.add(seq, {"id": "item"}.get(name, name), one, other)
            return


def _are_nearly_equal(stored: events.ChosenArm, again: events.ChosenArm, n_arms: int) -> bool:
    """Whether the same arm was taken with the same probabilities, but for their last bits.

    In older logs these depend on what the process had compiled (decision 35); the chain covers what was stored.
    """
    given = (stored.propensity, *stored.full_distribution(n_arms).tolist())
    found = (again.propensity, *again.full_distribution(n_arms).tolist())
    beside = msgspec.structs.replace(
        again, propensity=stored.propensity, distribution=stored.distribution, rest=stored.rest
    )
    return beside == stored and all(math.isclose(*both, rel_tol=_LAST_BITS) for both in zip(given, found, strict=True))
