"""Why arms of which some have x and others have none, or x of other lengths, are refused, and which one is to blame.

The arms of the request are looked at once more, so only a request that is refused pays for it.
"""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from lcb import messages
from lcb.serve.decide.validation import check_ids, check_size
from lcb.serve.errors import Problem
from lcb.serve.state.service_state import ServiceState


def build_arms_error(state: ServiceState, request: messages.DecisionRequest) -> Problem:
    """Return the error of such arms; an arm that is wrong by itself comes before one that differs from the others."""
    arms = request.arms or []
    try:
        check_ids([arm.id for arm in arms])
    except Problem as problem:
        return problem
    for i, arm in enumerate(arms):
        if arm.x is None and arm.id not in state.catalogue.items:
            words = f"arm {arm.id!r} has no features and is not in the catalogue; send x, or PUT /v1/items"
            return Problem(422, words, field=f"arms[{i}].x")
    given = {i: arm.x for i, arm in enumerate(arms) if arm.x is not None}
    wrong = _find_wrong_length(given, _count_wanted(state, request))
    if wrong is not None:
        return wrong
    numbers = array("d")
    for x in given.values():
        numbers.extend(x)
    try:
        check_size(np.frombuffer(numbers).reshape(len(given), -1), "arms", places=list(given))
    except Problem as problem:
        return problem
    return _build_mixture_error(sorted(given), [i for i in range(len(arms)) if i not in given])


def _count_wanted(state: ServiceState, request: messages.DecisionRequest) -> int | None:
    """Return how many features an arm of this request must have; None if the service does not know it."""
    if state.n_features is None:
        return None
    n, rest = divmod(state.n_features, 1 + len(request.x or ()))
    return None if rest else n


def _find_wrong_length(given: dict[int, list[float]], wanted: int | None) -> Problem | None:
    """Return the error of the first arm with another number of features than the service has, or than most arms."""
    counts = Counter(len(x) for x in given.values())
    if counts and wanted not in counts and wanted is not None:
        i = next(iter(given))
        words = f"arms[{i}] has {len(given[i])} features, but arms of this service have {wanted}; send {wanted}"
        return Problem(422, words, field=f"arms[{i}].x")
    if len(counts) < 2:
        return None
    usual = counts.most_common(1)[0][0] if wanted is None else wanted
    right = next(i for i, x in given.items() if len(x) == usual)
    wrong = next(i for i, x in given.items() if len(x) != usual)
    words = (
        f"arms[{right}] has {usual} features and arms[{wrong}] has {len(given[wrong])}; send the same number for each"
    )
    return Problem(422, words, field=f"arms[{wrong}].x")


def _build_mixture_error(with_x: list[int], without: list[int]) -> Problem:
    """Return the error of arms with x beside items of the catalogue; to blame is the first of the fewer ones."""
    said = {with_x[0]: "has features", without[0]: "names an item of the catalogue"}
    fewer, more = sorted((with_x, without), key=lambda places: (len(places), -places[0]))
    i, other = fewer[0], more[0]
    words = f"arms[{i}] {said[i]} and arms[{other}] {said[other]}; send all with or all without x"
    return Problem(422, words, field=f"arms[{i}].x")
