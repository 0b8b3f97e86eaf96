"""Ids of events and names of snapshots; no other module builds or parses them.

decision      <decision>                      sent by the caller or generated; contains neither "/" nor "#"
slot          <decision>, or <decision>/<i>   the decision, or place i of its list; a reward request names it
reward        r/<slot>, r/<slot>#2, ...       #n is the n-th reward event of a slot; it changes the earlier reward
model         model/<version>
canary        canary/<version>                its end, so that replicas write it once
recommender   recommender/<name>
leave         leave/<seq>                     of the user's event before it, so that replicas write it once
mixture       mixture/<seq>                   of the refit that it ends; mixture/<recommender>: from models
items, activate, learning, teachers, erase, audit, refused, key, refit   <kind>/<generated id>
erased event  erased/<seq>

snapshots     user/<name>, and "world" for everything else
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable

from lcb.storage.store.base import USER_SNAPSHOTS

WORLD_SNAPSHOT = "world"
_OF_VISITORS = ("reader-", "study-")
_VISITOR = re.compile(r"(reader|study)-(simulated-)?[0-9a-f]{26,44}")


def slot_id(decision_id: str, i: int) -> str:
    return f"{decision_id}/{i}"


def decision_of_slot(slot_id: str) -> str:
    """
    >>> decision_of_slot("d1/2"), decision_of_slot("d1")
    ('d1', 'd1')
    """
    return slot_id.partition("/")[0]


def reward_id(slot_id: str, n: int = 1) -> str:
    """Return the id of the n-th reward of a slot.

    >>> reward_id("d1/0"), reward_id("d1", 3)
    ('r/d1/0', 'r/d1#3')
    """
    return f"r/{slot_id}" if n == 1 else f"r/{slot_id}#{n}"


def slot_of_reward(id: str) -> str:
    """
    >>> slot_of_reward("r/d1/0#2")
    'd1/0'
    """
    return id.removeprefix("r/").partition("#")[0]


def ranges_of_rewards(decision_id: str) -> list[tuple[str, str]]:
    """Return the first and the last id that rewards of a decision and of its slots may have, by kind of id.

    A number follows "#" and "/", and ":" comes after every digit.

    >>> ranges_of_rewards("d1")
    [('r/d1', 'r/d1'), ('r/d1#', 'r/d1#:'), ('r/d1/', 'r/d1/:')]
    """
    id = reward_id(decision_id)
    return [(id, id), (f"{id}#", f"{id}#:"), (f"{id}/", f"{id}/:")]


def changes_reward(id: str) -> bool:
    """Whether the reward event of this id changes an earlier reward of its slot.

    >>> changes_reward("r/d1"), changes_reward("r/d1#2")
    (False, True)
    """
    return "#" in id


def event_id(kind: str, name: str | int) -> str:
    """Return the id of an event of any other kind.

    >>> event_id("model", 3)
    'model/3'
    """
    return f"{kind}/{name}"


def is_like_visitor(user: str) -> bool:
    """Whether a name begins as those of visitors do."""
    return user.startswith(_OF_VISITORS)


def is_visitor(user: str) -> bool:
    """Whether a user is a visitor of the pages, who has no key.

    >>> is_visitor("study-simulated-0197c2a5b1f000000000000001"), is_visitor("reader-7")
    (True, False)
    """
    return user.startswith(_OF_VISITORS) and _VISITOR.fullmatch(user) is not None


def user_snapshot(name: str) -> str:
    """
    >>> user_of_snapshot(user_snapshot("ann/2"))
    'ann/2'
    """
    return f"{USER_SNAPSHOTS}{name}"


def user_of_snapshot(snapshot: str) -> str:
    return snapshot.removeprefix(USER_SNAPSHOTS)


def make_time_ordered_ids(now: Callable[[], float]) -> Callable[[], str]:
    """Return a function that makes ids of 26 hexadecimal digits; they sort by time, so an index grows at its end."""
    draw, last, begin = random.Random(os.urandom(16)).getrandbits, -1, ""

    def make_id() -> str:
        nonlocal last, begin
        if (millisecond := int(now() * 1000)) != last:
            last, begin = millisecond, f"{millisecond:012x}"
        return f"{begin}{draw(56):014x}"

    return make_id
