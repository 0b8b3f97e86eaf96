"""The log as a table that `lcb learn` and `lcb evaluate` read: one row for each slot of each decision.

    user, item, reward, propensity, x       who, what was shown, what came of it, how probable it was, its features
    decision_id, slot, seq, time            which decision, and when
    arm, n_arms                             its place among those on offer, and how many these were
    recommender, model, policy              who chose
    would                                   shadow mode: what we would have shown

Rows are sorted by user, then seq.  Beside the table lie the items of the catalogue with their categories and titles,
in the form of an imported log.  Users are read one after another: memory grows with items, never with events.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lcb.errors import InputError, OutputError
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.state.catalogue import Catalogue
from lcb.serve.state.reward_slots import open_slots
from lcb.serve.state.service_state import policy_name
from lcb.storage.files import made_folder
from lcb.storage.importing.writing import check_place
from lcb.storage.logs.files import STAMP, LogFiles
from lcb.storage.store.base import Row, Store

_GROUP = 65_536  # rows held at a time
_SCHEMA = pa.schema(
    [
        ("user", pa.string()), ("item", pa.string()), ("reward", pa.float64()), ("propensity", pa.float64()),
        ("x", pa.list_(pa.float64())), ("decision_id", pa.string()), ("slot", pa.int32()), ("seq", pa.int64()),
        ("time", pa.timestamp("us", "UTC")), ("arm", pa.int32()), ("n_arms", pa.int32()),
        ("recommender", pa.string()), ("model", pa.int32()), ("policy", pa.string()), ("would", pa.string()),
    ]
)  # fmt: skip


@dataclass
class Exported:
    """What was written."""

    files: list[str] = field(default_factory=list)
    upto: int = 0
    n_rows: int = 0
    n_users: int = 0
    n_items: int = 0
    n_open: int = 0  # slots that no reward has come for
    n_below: int = 0  # slots below the first of a list: their propensity is given the slots above
    n_some: int = 0  # slots of decisions that did not have all items on offer
    n_unknown: int = 0  # slots whose propensity the caller did not say


def export(
    store: Store, out: str | os.PathLike[str], *, missing: float | str | None = "leave out",
    only_known: bool = False, progress: Progress = silent,
) -> Exported:  # fmt: skip
    """Write the log up to its head; `out` is a .parquet file or a folder, as `lcb import` has it.

    Slots without a reward are left out, or have the reward `missing` (None: none, which `lcb learn` refuses).  With
    `only_known`, so are those that the caller chose without saying how probable that was.
    """
    files = LogFiles.named(out)
    check_place(files, [Path(store.url)])
    upto = store.head()
    about = _About(store, upto)
    about.only_known = only_known
    done = Exported(upto=upto)
    with made_folder(files.events.parent):
        beside = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in _three(files)}
        try:
            shown = _write_events(store, about, beside[files.events], missing, done, progress)
            if not done.n_rows:
                reason = f"{done.n_open:,} decisions wait for their rewards" if done.n_open else "it has no decisions"
                raise InputError(f"{store.url} has nothing to export: {reason}; see lcb log show {store.url}")
            _write_items(about, beside, files, shown)
            done.n_items = len({*about.catalogue.items, *shown})
            done.n_some = sum(n for n_arms, n in about.offered.items() if n_arms < done.n_items)
            for path in _three(files):
                if beside[path].exists():
                    os.replace(beside[path], path)
                    done.files.append(str(path))
                else:
                    path.unlink(missing_ok=True)
        except (OSError, pa.ArrowException) as error:
            words = getattr(error, "strerror", None) or error
            raise OutputError(f"{out} could not be written ({words}); make room, or give another place") from None
        finally:
            for path in beside.values():
                path.unlink(missing_ok=True)
    return done


def _three(files: LogFiles) -> tuple[Path, Path, Path]:
    return files.items, files.categories, files.events


class _About:
    """What the events of the service say, and what is counted on the way."""

    def __init__(self, store: Store, upto: int) -> None:
        self.catalogue = Catalogue()
        self.specs: dict[str, RecommenderSpec] = {}
        self.offered: Counter[int] = Counter()
        self.categories: tuple[str, ...] = ()
        seed = b""
        for row in store.events_of_service(upto):
            if row.kind == "items":
                self.catalogue.apply(events.decode(row.kind, row.body))
            elif row.kind == "recommender":
                spec = RecommenderSpec.from_json(events.decode(row.kind, row.body).spec)
                self.specs[spec.name] = spec
            elif row.kind == "service":
                body = events.decode(row.kind, row.body)
                seed = body.seed
                if body.feature_map is not None:
                    self.categories = tuple(msgspec.json.decode(body.feature_map)["categories"])
        self.only_known = False
        self.stamp = hashlib.sha256(seed + str(upto).encode()).hexdigest()[:32].encode()

    def policy(self, recommender: str, model: int) -> str:
        return policy_name(self.specs[recommender], model)


def _write_events(
    store: Store, about: _About, path: Path, missing: float | str | None, done: Exported, progress: Progress
) -> set[str]:
    shown: set[str] = set()
    schema = _SCHEMA.with_metadata({STAMP: about.stamp})
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        for name in _users(store):
            n_before = done.n_rows
            for values in _rows(store.events_of(name, 0, done.upto), about, missing, done):
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
                shown.add(values[1])
                done.n_rows += 1
                if len(columns["user"]) == _GROUP:
                    _flush(writer, schema, columns)
            done.n_users += done.n_rows > n_before
            if done.n_users % 256 == 0:
                progress("users exported", done.n_users, None)
        _flush(writer, schema, columns)
    return shown


def _flush(writer: Any, schema: Any, columns: dict[str, list[Any]]) -> None:
    if not columns["user"]:
        return
    x = columns["x"]
    starts = np.concatenate([[0], np.cumsum([len(one) // 8 for one in x])]).astype(np.int32)
    made = {"x": pa.ListArray.from_arrays(pa.array(starts), pa.array(np.frombuffer(b"".join(x), np.float64)))}
    arrays = [made.get(one.name) for one in schema]
    for i, one in enumerate(schema):
        if arrays[i] is None:
            arrays[i] = pa.array(columns[one.name], one.type)
    writer.write_table(pa.table(arrays, schema=schema))
    for column in columns.values():
        column.clear()


def _users(store: Store) -> Iterator[str]:
    after = ""
    while names := store.users(after):
        yield from names
        after = names[-1]


def _rows(rows: list[Row], about: _About, missing: float | str | None, done: Exported) -> Iterator[tuple[Any, ...]]:
    """The slots of one user; what counts for each is known when all events have been looked at."""
    slots: dict[str, Any] = {}
    decisions: list[tuple[Row, events.DecisionBody, list[str]]] = []
    for row in rows:
        body = events.decode(row.kind, row.body)
        if row.kind == "decision":
            opened = open_slots(row, body)
            slots.update(opened)
            decisions.append((row, body, list(opened)))
        else:
            slots[slot_of_reward(row.id)].apply(body)
    for row, body, ids in decisions:
        model = row.model or 0
        for i, id in enumerate(ids):
            slot = slots[id]
            done.n_open += slot.reward is None
            reward = missing if slot.reward is None else slot.reward
            if reward == "leave out" or (about.only_known and not body.own):
                continue
            done.n_below += i > 0
            done.n_unknown += not body.own
            about.offered[body.n_arms] += 1
            yield (
                row.user, slot.arm.id, reward, slot.arm.propensity if body.own else None, slot.arm.x, row.id, i,
                row.seq, int(body.at * 1e6), slot.arm.arm, body.n_arms, body.recommender, model,
                about.policy(body.recommender, model), None if body.chosen is None else body.taken[0].id,
            )  # fmt: skip


def _write_items(about: _About, beside: dict[Path, Path], files: LogFiles, shown: set[str]) -> None:
    """The catalogue, and what was shown that is not in it; nothing where there is no catalogue."""
    known = about.catalogue.items
    if not known:
        return
    names = [*known, *sorted(shown - known.keys())]
    met = {name for item in known.values() for name in item.categories or ()}
    categories = list(about.categories) if met <= set(about.categories) else sorted(met)
    columns: dict[str, Any] = {"item": pa.array(names, pa.string())}
    if categories:
        place = {name: j for j, name in enumerate(categories)}
        lists = [[place[one] for one in known[name].categories or ()] if name in known else [] for name in names]
        columns["categories"] = pa.array(lists, pa.list_(pa.int32()))
        beside[files.categories].write_text(json.dumps(categories, indent=0, ensure_ascii=False) + "\n", "utf-8")
    if any(item.title for item in known.values()):
        columns["title"] = pa.array([known[name].title if name in known else None for name in names], pa.string())
    table = pa.table(columns).replace_schema_metadata({STAMP: about.stamp})
    pq.write_table(table, beside[files.items], compression="zstd")
