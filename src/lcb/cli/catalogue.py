"""The items of an imported log as the first catalogue of a service, with the features of its models."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import typer

from lcb.errors import InputError
from lcb.words import format_count


def read_catalogue(path: str, models: str | None) -> tuple[bytes, tuple[str, ...]]:
    """Return the items of a log as a JSON body of PUT /v1/items, and the categories.

    With `models` learned from the log, an item has the categories that their feature map knows.  Where a log has no
    categories each item is a category of its own, or has the factors that were learned for it.  Items that the models
    do not know are left out; the most frequent are kept if there are more than a catalogue can hold.
    """
    from lcb.messages import MOST_ITEMS
    from lcb.storage.logs.log import open_log
    from lcb.storage.models.folder import load_feature_map

    log = open_log(path, with_offers=False)
    features = None if models is None else load_feature_map(models)
    by_id = features is not None and features.is_learned
    has_arms = not by_id and (log.categories or log.item_features is None)
    names, member = log.arms() if has_arms else ((), log.item_categories)
    if models is not None and features is None:
        raise InputError(
            f"items {path} is a log, but {models} was learned from features without a map from items; learn models "
            f"from the log: lcb learn {path} --out models"
        )
    known = names if features is None else features.categories
    often = np.argsort(-np.bincount(log.item, minlength=log.n_items), kind="stable")
    items: list[dict[str, Any]] = []
    inputs = None if features is None or not features.inputs else log.item_features
    if features is not None and features.inputs and log.inputs != features.inputs:
        raise InputError(
            f"{models} knows items by {len(features.inputs)} numbers of their own, those of {path} have "
            f"{len(log.inputs)} or other ones; learn models from this log: lcb learn {path} --out models"
        )
    for i in often.tolist():
        places = () if by_id else member.indices[member.indptr[i] : member.indptr[i + 1]]
        own = [names[c] for c in places if names[c] in known]
        if len(items) == MOST_ITEMS or not (own or inputs is not None or by_id):
            continue
        title = None if log.titles is None else log.titles[i].as_py()
        what: dict[str, Any] = {} if by_id else {"categories": own}
        if inputs is not None and features is not None:
            what = {"x": features.of_vector(inputs[i], own).tolist()}
        items.append({"id": str(log.items[i].as_py()), **what, **({"title": title} if title else {})})
    if not items:
        raise InputError(
            f"no item of {path} has a category that {models} knows; learn models from this log: "
            f"lcb learn {path} --out models"
        )
    if len(items) < log.n_items:
        typer.echo(
            f"note: {len(items):,} of {format_count(log.n_items, 'item')} of {path} are in the catalogue; the others "
            f"have no category of the models, or are beyond {MOST_ITEMS:,}",
            err=True,
        )
    return json.dumps({"items": items}).encode(), tuple(known)
