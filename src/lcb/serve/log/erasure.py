"""Erasure of a user: their events lose everything personal, and an `erase` event lists the counts to subtract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lcb.serve import events
from lcb.serve.event_ids import event_id
from lcb.serve.state.users import weigh_own
from lcb.serve.state.world import World
from lcb.storage.store.base import NewRow, Rewrite, Row
from lcb.storage.store.chain import digest_rewrite


def build_erasure(
    world: World, rows: list[Row], at: float, new_id: Callable[[], str], by: events.Actor | None = None
) -> tuple[list[Rewrite], NewRow]:
    """Return the replacement of each event of an erased user, and the `erase` event.

    Ids, items and context are dropped.  If the bandit's state is shared by all users, features and reward stay without
    a name, because the shared state is rebuilt from them.  If the user was seated in a mixture, the statistics stay
    with each departure and return; the next refit leaves them out.  What a reward added to
    its item stays too.
    """
    rewrites, history, models = [], [], []
    recommender = ""
    departed: tuple[int, bytes] = (0, b"")  # the departure before the event, and the statistics then
    added: dict[str, tuple[int, float]] = {}  # by item, what the user's rewards have added
    teaching: dict[str, bool] = {}  # by kind, of the first decision and the first reward
    for row, body, user in world.fold.walk(rows):
        recommender = user.recommender
        models.append(user.model)
        shared = world.fold.updates_shared(user, row, body)
        teaching.setdefault(row.kind, world.fold.is_teaching(row, body))
        of = user.recommender if departed[0] else body.recommender
        left: Any
        if row.kind == "decision":
            bare = (
                [msgspec.structs.replace(arm, id="", distribution=None, rest=None) for arm in body.shown]
                if shared
                else []
            )
            left = events.ErasedDecision(of, shared, bare, *departed)
        elif row.kind == "leave":
            departed = (0, b"")
            if user.left == row.seq and user.state is not None and world.fold.is_teaching(row, body):
                departed = row.seq, user.state.tobytes()
            left = events.ErasedLeave(body.at, user.recommender, departed[1])
        else:
            kept = (body.reward, body.propensity, body.x, body.at_random, body.advice, body.before)
            nothing = (0.0, 1.0, b"", False, None, None)
            bare_reward = events.ErasedReward(of, shared, *(kept if shared else nothing))
            left = msgspec.structs.replace(bare_reward, left=departed[0], row=departed[1])
            if world.fold.moves_item(row, body):
                left.item = body.item
                left.residual = world.fold.find_residual(body, added.get(body.item, (0, 0.0)), user)
                added[body.item] = weigh_own(user.residuals, body.item)
        if row.kind != "leave":
            departed = (0, b"")
        history.append((row.seq, user.n_decisions, user.n_rewards, user.reward_sum, user.settled))
        rewrites.append(Rewrite(row.seq, event_id("erased", row.seq), f"erased {row.kind}", events.encode(left)))
    left_digests = [digest_rewrite(one) for one in rewrites]
    counted = teaching.get("decision", True), teaching.get("reward", True)
    about = (recommender, models[-1], history, world.state.n_features, by, left_digests)
    body = events.EraseBody(at, *about, *counted, models)
    return rewrites, NewRow(event_id("erase", new_id()), "erase", None, None, events.encode(body))
