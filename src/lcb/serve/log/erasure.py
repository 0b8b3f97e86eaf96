"""Erasure of a user: their events lose everything personal, and an `erase` event lists the counts to subtract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lcb.serve import events
from lcb.serve.event_ids import event_id
from lcb.serve.state.world import World
from lcb.storage.store.base import NewRow, Rewrite, Row
from lcb.storage.store.chain import digest_rewrite


def build_erasure(
    world: World, rows: list[Row], at: float, new_id: Callable[[], str], by: events.Actor | None = None
) -> tuple[list[Rewrite], NewRow]:
    """Return the replacement of each event of an erased user, and the `erase` event.

    Ids, items and context are dropped.  If the bandit's state is shared by all users, features and reward stay without
    a name, because the shared state is rebuilt from them.
    """
    rewrites, history = [], []
    recommender, model = "", 0
    for row, body, user in world.fold.walk(rows):
        recommender, model = user.recommender, user.model
        shared = world.fold.updates_shared(user, row, body)
        left: Any
        if row.kind == "decision":
            bare = [msgspec.structs.replace(arm, id="", distribution=None) for arm in body.shown] if shared else []
            left = events.ErasedDecision(body.recommender, shared, bare)
        else:
            kept = (body.reward, body.propensity, body.x, body.at_random, body.advice, body.before)
            nothing = (0.0, 1.0, b"", False, None, None)
            left = events.ErasedReward(body.recommender, shared, *(kept if shared else nothing))
        history.append((row.seq, user.n_decisions, user.n_rewards, user.reward_sum, user.settled))
        rewrites.append(Rewrite(row.seq, event_id("erased", row.seq), f"erased {row.kind}", events.encode(left)))
    left_digests = [digest_rewrite(one) for one in rewrites]
    body = events.EraseBody(at, recommender, model, history, world.state.n_features, by, left_digests)
    return rewrites, NewRow(event_id("erase", new_id()), "erase", None, None, events.encode(body))
