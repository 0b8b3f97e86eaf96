"""`lcb.evaluate_log`: evaluates algorithms on a log of any form, with sizes and readings found by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lcb.errors import InputError
from lcb.evaluate.items.evaluate_items import ITEM_ALGORITHMS, ItemPlan, evaluate_items
from lcb.evaluate.items.labels import read_item_labels
from lcb.evaluate.offline.evaluate_log import evaluate_log as evaluate_source
from lcb.evaluate.offline.labels import Reading, default_reading
from lcb.evaluate.offline.log_sources import Method, open_source
from lcb.evaluate.offline.outcomes import ESTIMATORS, Evaluation
from lcb.evaluate.offline.split import Plan, choose_sizes
from lcb.progress import Progress, silent
from lcb.storage.importing.open_any import open_any
from lcb.storage.importing.table_source import Columns

DEFAULT_ALGORITHMS = ("lcb-auto", "lcb", "lcb-mean", "linucb-population", "linucb-individual", "random")


def evaluate_log(
    log: Any,
    algorithms: Sequence[str] | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    reward: str | None = None,
    rating: str | None = None,
    order: str | None = None,
    propensity: str | None = None,
    categories: str | None = None,
    item_features: str | Sequence[str] = (),
    arms: Literal["categories", "items"] = "categories",
    reading: Reading | None = None,
    like: float | None = None,
    method: Method = "filled",
    features: str | None = None,
    n_steps: int = 20,
    n_classes: int | None = None,
    n_train_users: int | None = None,
    n_test_users: int | None = None,
    n_seeds: int = 3,
    seed: int = 0,
    n_workers: int | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Estimate from a log how algorithms would serve new users, as `lcb evaluate` does.

    `log` is a DataFrame (pandas, polars, pyarrow, DuckDB), a dictionary of columns, the path of a table or of an
    imported log, or a `Log`.  `user`, `item`, `reward`, ... name the columns of a table; those with the usual names are
    found, and `item_features` the columns with the items' own numbers, such as an embedding.  The other arguments are
    the options of `lcb evaluate`; with `arms="items"` the arms are the items that a test user has labels for.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> likes = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> user, item = np.repeat(np.arange(120), 12), rng.integers(0, 2, 1440)
    >>> visits = {"visitor": user, "article": item, "clicked": rng.random(1440) < likes[user % 2, item]}
    >>> columns = {"user": "visitor", "item": "article", "reward": "clicked"}
    >>> found = evaluate_log(visits, ["lcb-mean"], **columns, n_steps=6, n_seeds=1, n_workers=1)
    >>> [one.algorithm for one in found.outcomes], found.answer.percent > 10
    (['lcb-mean', 'linucb-population'], True)
    """
    columns = Columns(user, item, reward, rating, order, propensity, categories)
    numbers = (item_features,) if isinstance(item_features, str) else tuple(item_features)
    with_offers = reading != "labels" if arms == "items" else method in (*ESTIMATORS, "replay")
    opened = open_any(log, columns, item_features=numbers, with_offers=with_offers, progress=progress)
    chosen = reading or default_reading(opened, like)
    if arms == "items":
        if method != "filled":
            raise InputError(f"method {method} with arms items, which is a method of its own; leave it out")
        items_plan = ItemPlan(
            n_steps, n_train_users, n_test_users, n_classes, features, algorithms or tuple(ITEM_ALGORITHMS)
        )
        labels = read_item_labels(opened, chosen, like, seed)
        return evaluate_items(labels, items_plan, n_seeds=n_seeds, seed=seed, n_workers=n_workers, progress=progress)
    source = open_source(opened, method, chosen, like)
    n_train, n_test = choose_sizes(source.n_events, n_steps, n_train_users, n_test_users)
    plan = Plan(n_train, n_test, n_steps, n_classes, features, fixes_classes=n_classes is not None)
    names = DEFAULT_ALGORITHMS if algorithms is None else algorithms
    return evaluate_source(source, names, plan, n_seeds=n_seeds, seed=seed, n_workers=n_workers, progress=progress)
