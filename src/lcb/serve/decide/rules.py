"""Rules of a request: which arms a decision may show.

    exclude     not these ids
    seen        not what this user was shown, or took, before
    at_most     in a list, not more than so many arms of one category

The bandit chooses among the arms that are left, so propensities are those after the rules.  A list ends early when
`at_most` leaves no arm for its next slot; which slot that is depends on the draw, and refusing such lists would change
the probabilities of the others.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lcb.arrays import pack_bools, unpack_bools
from lcb.messages import DecisionRequest
from lcb.serve.errors import Problem
from lcb.serve.events import RulesBody
from lcb.serve.state.world import World

Bools = NDArray[np.bool_]
RULES = ("exclude", "seen", "at_most")  # the last fields of a request


class NoArmLeft(Problem):
    """The rules leave no arm."""


class Rules(Struct):
    """The rules of one decision; nothing here changes when the state does."""

    k: int | None
    excluded: Bools  # (K,)
    seen: str | None
    at_most: int | None
    left: NDArray[np.intp]  # the arms of the first slot
    categories: list[tuple[str, ...]] | None  # of every arm, if `at_most` is given

    def narrow(self, left: NDArray[np.intp], taken: Counter[str], arm: int) -> NDArray[np.intp]:
        """Return the arms of the next slot after `arm` was chosen; `taken` counts the categories of the list."""
        left = left[left != arm]
        if self.categories is None or self.at_most is None:
            return left
        taken.update(self.categories[arm])
        full = {category for category, n in taken.items() if n >= self.at_most}
        keep = [full.isdisjoint(self.categories[i]) for i in left.tolist()] if full else None
        return left if keep is None else left[np.array(keep, bool)]

    def record(self, left: list[NDArray[np.intp]]) -> RulesBody:
        """Return what the log keeps; `left` are the arms that each slot could show."""
        return RulesBody(self.k, pack_bools(self.excluded), self.seen, self.at_most, [self._pack(one) for one in left])

    def _pack(self, left: NDArray[np.intp]) -> bytes:
        chosen = np.zeros(len(self.excluded), bool)
        chosen[left] = True
        return pack_bools(chosen)


def read_rules(world: World, request: DecisionRequest, ids: list[str]) -> Rules:
    """Return the rules of a request; Problem 422 if they leave no arm."""
    out = frozenset(request.exclude or ())
    excluded = np.array([id in out for id in ids], bool)
    return apply_rules(world, request.user, ids, request.k, excluded, request.seen, request.at_most)


def rebuild_rules(world: World, user: str, ids: list[str], body: RulesBody) -> Rules:
    """Return the rules of a decision of the log, as of the state of `world`."""
    return apply_rules(world, user, ids, body.k, unpack_bools(body.excluded, len(ids)), body.seen, body.at_most)


def apply_rules(
    world: World, user: str, ids: list[str], k: int | None, excluded: Bools, seen: str | None, at_most: int | None
) -> Rules:
    if at_most is not None and k is None:
        words = "at_most is for lists, and no list was asked for; send k, or leave at_most out"
        raise Problem(422, words, field="at_most")
    out = excluded
    if seen is not None:
        past = world.seen.get(user, world.seq).find(seen)
        out = excluded | np.array([id in past for id in ids], bool)
    left = np.flatnonzero(~out)
    if not len(left):
        raise _build_empty_error(len(ids), int(excluded.sum()), int(out.sum() - excluded.sum()), seen)
    return Rules(k, excluded, seen, at_most, left, None if at_most is None else _find_categories(world, ids))


def _find_categories(world: World, ids: list[str]) -> list[tuple[str, ...]]:
    items, found = world.state.catalogue.items, []
    for id in ids:
        item = items.get(id)
        if item is None or not item.categories:
            why = "is not in the catalogue" if item is None else "has no categories there"
            words = f"at_most counts the categories of the catalogue, and arm {id!r} {why}"
            raise Problem(422, f"{words}; PUT /v1/items with categories, or leave at_most out", field="at_most")
        found.append(item.categories)
    return found


def _build_empty_error(n_arms: int, n_excluded: int, n_seen: int, seen: str | None) -> NoArmLeft:
    parts = [f"exclude rules out {n_excluded}"] if n_excluded else []
    parts += [f"seen rules out {n_seen} more" if parts else f"seen rules out {n_seen}"] if n_seen else []
    came = "1 arm came" if n_arms == 1 else f"{n_arms:,} arms came"
    words = f"{came}, {' and '.join(parts)}, and none is left; send other arms, or decide without the rule"
    return NoArmLeft(422, words, field="exclude" if seen is None or not n_seen else "seen")
