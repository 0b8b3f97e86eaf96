"""Turns a change of the catalogue into an event to append."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from lcb import messages
from lcb.features import FeatureMap
from lcb.serve import events
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.validation import check_ids, check_printable, read_item
from lcb.serve.errors import Problem
from lcb.serve.event_ids import event_id
from lcb.serve.state.service_state import ServiceState
from lcb.storage.store.base import NewRow

StoredItem = tuple[str, bytes, list[str] | None, str | None, str | None]  # id, features, categories, title, summary


def read_items(request: messages.ItemsRequest, features: FeatureMap | None) -> list[StoredItem]:
    """Return the items of a request as their event stores them; categories become features."""
    check_ids([item.id for item in request.items], "items")
    for i, id in enumerate(request.remove):
        check_printable(id, f"remove[{i}]")
    return [read_item(i, item, features) for i, item in enumerate(request.items)]


def build_items_event(
    state: ServiceState,
    request: messages.ItemsRequest,
    now: Callable[[], float],
    new_id: Callable[[], str],
    items: list[StoredItem] | None = None,
) -> Entry:
    """Return the event that adds, changes and removes items; `items` is what `read_items` returns."""
    if items is None:
        items = read_items(request, state.feature_map)
    sizes = [len(x) // 8 for _, x, *_ in items]
    wanted = state.n_features or (Counter(sizes).most_common(1)[0][0] if sizes else None)
    for i, size in enumerate(sizes):
        if size != wanted and state.n_features is None:
            other = items[sizes.index(wanted)][0] if wanted is not None else ""
            words = f"item {items[i][0]!r} has {size} features and item {other!r} has {wanted}"
            raise Problem(422, f"{words}; send the same number for each", field=f"items[{i}].x")
        if size != wanted:
            own = state.feature_map.inputs if state.feature_map is not None else ()
            also = f", or the {len(own)} numbers of the item's own" if own else ""
            words = f"item {items[i][0]!r} has {size} features, but this service has {wanted}; send {wanted}{also}"
            raise Problem(422, words, field=f"items[{i}].x")
    kept = set() if request.replace else set(state.catalogue.items)
    n = len((kept - set(request.remove)) | {id for id, *_ in items})
    if n > messages.MOST_ITEMS:
        words = f"the catalogue would have {n:,} items, at most {messages.MOST_ITEMS:,} are allowed"
        raise Problem(422, f"{words}; remove some, or send arms with each request", field="items")
    body = events.ItemsBody(now(), items, request.remove, request.replace)
    row = NewRow(event_id("items", new_id()), "items", None, None, events.encode(body))
    answer = msgspec.json.encode(messages.ItemsAnswer(n, wanted))
    return Entry(row, body, answer, key=row.id, fixes_n_features=state.n_features is None)
