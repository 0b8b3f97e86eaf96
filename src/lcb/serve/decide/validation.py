"""Checks on requests: unique printable ids, features of bounded size, items with features or categories."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lcb import messages
from lcb.arrays import Floats
from lcb.errors import CategoryError
from lcb.features import FeatureMap
from lcb.serve.errors import Problem
from lcb.serve.event_ids import is_visitor


def check_ids(ids: list[str], field: str = "arms") -> None:
    if len(set(ids)) != len(ids):
        seen: set[str] = set()
        i = next(i for i, id in enumerate(ids) if id in seen or seen.add(id))  # type: ignore[func-returns-value]
        raise Problem(422, f"duplicate id {ids[i]!r}; ids must be unique", field=f"{field}[{i}].id")
    if not "".join(ids).isprintable():
        for i, id in enumerate(ids):
            check_printable(id, f"{field}[{i}].id")


def check_printable(id: str, field: str) -> None:
    if not id.isprintable():
        other = next(c for c in id if not c.isprintable())
        raise Problem(422, f"{field} contains U+{ord(other):04X}, which is not printable; leave it out", field=field)


def check_user(name: str) -> None:
    if not 0 < len(name) <= messages.MOST_TEXT:
        raise Problem(422, f"user has {len(name)} characters; send 1 to {messages.MOST_TEXT}", field="user")
    check_printable(name, "user")


def refuse_visitors(request: messages.DecisionRequest) -> None:
    """Refuse a caller's decision under a name or an id of a visitor, whose visit it would disturb."""
    words = "belongs to a visitor of the pages, for whom only the pages decide"
    if is_visitor(request.user):
        raise Problem(422, f"user {request.user!r} {words}; choose another name", field="user")
    id = request.decision_id
    if id is not None and is_visitor(id.rpartition(".")[0]):
        raise Problem(422, f"decision_id {id!r} {words}; choose another id, or leave it out", field="decision_id")


def refuse_answers_of_visitors(request: messages.RewardRequest) -> None:
    """Refuse a caller's reward for a decision of a visitor, who answers on the pages."""
    id = request.decision_id
    if is_visitor(id.rpartition(".")[0]):
        words = "belongs to a visitor of the pages, who answers there; send rewards of your own decisions"
        raise Problem(422, f"decision_id {id!r} {words}", field="decision_id")


def check_size(context: Floats, field: str, *, of_arm: bool = True, places: Sequence[int] | None = None) -> None:
    """Refuse features that are NaN or too large; `context` is (K, d), `places` are those of its arms in the request."""
    if np.vdot(context, context) <= messages.LARGEST:  # the sum of squares: faster than a look at each, and stricter
        return
    if np.maximum.reduce(np.abs(context), None) <= messages.LARGEST:
        return
    i, j = (int(n) for n in np.argwhere(~(np.abs(context) <= messages.LARGEST))[0])
    place = i if places is None else places[i]
    where = f"{field}[{place}].x[{j}]" if of_arm and field == "arms" else f"{field}[{j}]"
    value = context[i, j]
    words = "not a number" if math.isnan(value) else f"{value:g}"
    most = f"{messages.LARGEST:g}"
    raise Problem(422, f"a feature is {words}; send numbers between -{most} and {most}", field=where)


def read_item(
    i: int, item: messages.ItemRequest, features: FeatureMap | None
) -> tuple[str, bytes, list[str] | None, str | None, str | None]:
    """Return an item as its event stores it: id, features, categories, title, summary; `i` is its place.

    Where the models know items by numbers of their own, x may be these numbers, beside categories; where there are as
    many features, x is features.
    """
    if item.x is None and item.categories is None and features is not None and features.is_learned:
        return item.id, features.of_item(item.id).tobytes(), None, item.title, item.summary
    is_own = item.x is not None and features is not None and len(item.x) == len(features.inputs) != features.n_features
    if (item.x is None) == (item.categories is None) and not is_own:
        has = "neither x nor" if item.x is None else "both x and"
        raise Problem(422, f"item {item.id!r} has {has} categories; give one of them", field=f"items[{i}]")
    if item.x is not None:
        x = np.array(item.x)
        check_size(x[None], f"items[{i}].x", of_arm=False)
        if is_own:
            assert features is not None
            try:
                x = features.of_vector(x, item.categories or ())  # as the models' items had them
            except CategoryError as error:
                raise Problem(422, str(error), field=f"items[{i}].categories[{error.place}]") from None
        return item.id, x.tobytes(), None, item.title, item.summary
    assert item.categories is not None
    if features is None:
        words = "this service has no map from categories to features; send x, or start it with --categories"
        raise Problem(422, f"{words} or with models learned from categories", field=f"items[{i}].categories")
    try:
        x = features.of_names(item.categories)
    except CategoryError as error:
        raise Problem(422, str(error), field=f"items[{i}].categories[{error.place}]") from None
    return item.id, x.tobytes(), item.categories, item.title, item.summary
