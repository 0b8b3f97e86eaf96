"""What a request may hold: ids that can be printed, vectors of one size, numbers that are not too large."""

from __future__ import annotations

import math

import numpy as np

from lcb import messages
from lcb.errors import CategoryError
from lcb.events import Floats
from lcb.features import FeatureMap
from lcb.serve.errors import Problem


def check_ids(ids: list[str], field: str = "arms") -> None:
    if len(set(ids)) != len(ids):
        seen: set[str] = set()
        i = next(i for i, id in enumerate(ids) if id in seen or seen.add(id))  # type: ignore[func-returns-value]
        raise Problem(422, f"{ids[i]!r} is there twice; ids name one each", field=f"{field}[{i}].id")
    if not "".join(ids).isprintable():
        for i, id in enumerate(ids):
            check_printable(id, f"{field}[{i}].id")


def check_printable(id: str, field: str) -> None:
    if not id.isprintable():
        other = next(c for c in id if not c.isprintable())
        raise Problem(422, f"{field} has U+{ord(other):04X}; ids are printable text, take it out", field=field)


def check_user(name: str) -> None:
    """Refuse what no user is called."""
    if not 0 < len(name) <= messages.MOST_TEXT:
        words = f"a user of {len(name)} characters; send 1 to {messages.MOST_TEXT}"
        raise Problem(422, words, field="user")
    check_printable(name, "user")


def vectors(arms: list[messages.Arm]) -> Floats:
    try:
        context = np.array([arm.x for arm in arms], np.float64)
    except (ValueError, TypeError):
        n = len(arms[0].x or ())
        i = next(i for i, arm in enumerate(arms) if arm.x is None or len(arm.x) != n)
        came = "none" if arms[i].x is None else f"{len(arms[i].x or ())}"
        raise Problem(
            422, f"arms[0] has {n} features and arms[{i}] has {came}; send as many for each", field=f"arms[{i}].x"
        ) from None
    check_size(context, "arms")
    return context


def check_size(context: Floats, field: str, *, of_arm: bool = True) -> None:
    if np.maximum.reduce(np.abs(context), None) <= messages.LARGEST:
        return
    i, j = (int(n) for n in np.argwhere(~(np.abs(context) <= messages.LARGEST))[0])
    where = f"{field}[{i}].x[{j}]" if of_arm and field == "arms" else f"{field}[{j}]"
    value = context[i, j]
    words = "not a number" if math.isnan(value) else f"{value:g}"
    raise Problem(422, f"a feature is {words}; features are at most {messages.LARGEST:g} in size", field=where)


def item_kept(
    i: int, item: messages.ItemRequest, features: FeatureMap | None
) -> tuple[str, bytes, list[str] | None, str | None, str | None]:
    """An item as the log keeps it, its features made of categories where it has these; `i` is its place."""
    if (item.x is None) == (item.categories is None):
        has = "neither x nor" if item.x is None else "both x and"
        raise Problem(422, f"item {item.id!r} has {has} categories; give one of them", field=f"items[{i}]")
    if item.x is not None:
        x = np.array(item.x)
        check_size(x[None], f"items[{i}].x", of_arm=False)
        return item.id, x.tobytes(), None, item.title, item.summary
    assert item.categories is not None
    if features is None:
        raise Problem(
            422, "this service has no map from categories to features; send x, or start it with --categories, "
            "or with models learned from categories", field=f"items[{i}].categories",
        )  # fmt: skip
    try:
        x = features.of_names(item.categories, convention="share")
    except CategoryError as error:
        raise Problem(422, str(error), field=f"items[{i}].categories[{error.place}]") from None
    return item.id, x.tobytes(), item.categories, item.title, item.summary
