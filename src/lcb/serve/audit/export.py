"""Exports the log as a table that `lcb learn` and `lcb evaluate` read: one row per slot of each decision.

    user, item, reward, propensity, x       the user, the item shown, its reward, probability and features
    decision_id, slot, seq, time            the decision
    arm, n_arms                             the index of the item among the arms, and the number of arms
    offered                                 the ids of the arms that the slot could show; null: the whole catalogue,
                                            the same as at the end of the log
    distribution                            the probability of each of them; null if the caller chose
    recommender, model, policy              what made the decision
    would                                   shadow mode: the item that the service would have shown

Rows are sorted by user, then seq.  The items of the catalogue, with categories and titles, are written beside the table
in the format of an imported log; the map from categories to `x` is kept in the metadata of the table.  Users are read
one after another: memory grows with items, not with events.
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

from lcb.arrays import Floats
from lcb.errors import InputError, OutputError
from lcb.evaluate.offline.support import Support, SupportSums
from lcb.features import is_learned
from lcb.messages import LEAST_PROBABILITY
from lcb.progress import Progress, silent
from lcb.serve import events
from lcb.serve.audit.catalogue_history import CatalogueHistory
from lcb.serve.audit.checks.users import list_users
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.event_ids import slot_of_reward
from lcb.serve.read_event import read_event, reading_within
from lcb.serve.state.catalogue import Catalogue
from lcb.serve.state.reward_slots import open_slots
from lcb.serve.state.service_state import policy_name
from lcb.storage.files import create_folder, create_private, name_temporary
from lcb.storage.importing.writing import check_place
from lcb.storage.logs.files import FEATURE_MAP, STAMP, LogFiles
from lcb.storage.store.base import Row, Store
from lcb.words import format_count

_GROUP = 65_536  # rows held at a time, at most
_GROUP_BYTES = 64 << 20  # and about so many bytes of features, offers and distributions
_SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("item", pa.string()),
        ("reward", pa.float64()),
        ("propensity", pa.float64()),
        ("x", pa.list_(pa.float64())),
        ("decision_id", pa.string()),
        ("slot", pa.int32()),
        ("seq", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("arm", pa.int32()),
        ("n_arms", pa.int32()),
        ("offered", pa.list_(pa.string())),
        ("distribution", pa.list_(pa.float64())),
        ("recommender", pa.string()),
        ("model", pa.int32()),
        ("policy", pa.string()),
        ("would", pa.string()),
    ]
)
_X, _N_ARMS, _OFFERED = (_SCHEMA.get_field_index(name) for name in ("x", "n_arms", "offered"))
_ARM_BYTES = 64  # of an arm on offer: its id and its probability, as Python holds them and as Arrow does


@dataclass
class Exported:
    """The result of an export."""

    files: list[str] = field(default_factory=list)
    upto: int = 0
    n_rows: int = 0
    n_users: int = 0
    n_items: int = 0
    n_open: int = 0  # slots without a reward
    n_below: int = 0  # slots after the first of a list; their propensity is conditional on the slots above
    n_some: int = 0  # slots of decisions that did not offer all items
    n_unknown: int = 0  # slots whose propensity the caller did not send, or one that is too small to be used
    n_ruled_out: int = 0  # left out: the caller has shown an arm that the rules of the request rule out
    uniform: Support | None = None  # how much of the uniform policy the exported decisions support


def export(
    store: Store,
    out: str | os.PathLike[str],
    *,
    missing: float | str | None = "leave out",
    only_known: bool = False,
    recommender: str | None = None,
    since: float | None = None,
    progress: Progress = silent,
) -> Exported:
    """Write the log up to its head; `out` is a .parquet file or a folder, as for `lcb import`.

    Slots without a reward are left out, or get the reward `missing` (None: null, which `lcb learn` refuses).
    `only_known` leaves out slots whose arm the caller chose without sending a propensity; `recommender` and `since`
    (seconds since 1970) keep only decisions of that recommender and from that time on.
    """
    files = LogFiles.at(out)
    check_place(files, [Path(store.url)])
    upto = store.head()
    context = _Context(store, upto, only_known, recommender, since)
    if recommender is not None and recommender not in context.specs:
        known = ", ".join(context.specs) or "none"
        raise InputError(f"{store.url} has no recommender {recommender!r}; it has {known}")
    done = Exported(upto=upto)
    with create_folder(files.events.parent):
        beside = {path: name_temporary(path) for path in _list_paths(files)}
        try:
            for path in beside.values():  # left by an export that was killed
                path.unlink(missing_ok=True)
            named = _write_events(store, context, beside[files.events], missing, done, progress)
            if not done.n_rows:
                left = "" if recommender is None and since is None else " of this recommender and time"
                reason = (
                    f"{format_count(done.n_open, 'decision', 'have')} no reward yet"
                    if done.n_open
                    else f"no decisions{left}"
                )
                raise InputError(f"{store.url} has nothing to export: {reason}; see lcb log show {store.url}")
            done.uniform = context.uniform.support()
            _write_items(context, beside, files, named)
            done.n_items = len({*context.catalogue.items, *named})
            done.n_some = sum(n for n_arms, n in context.offered.items() if n_arms < done.n_items)
            for path in _list_paths(files):
                if beside[path].exists():
                    os.replace(beside[path], path)
                    done.files.append(str(path))
                else:
                    path.unlink(missing_ok=True)
        except (OSError, pa.ArrowException) as error:
            words = getattr(error, "strerror", None) or error
            raise OutputError(f"{out} could not be written ({words}); free some space, or give another path") from None
        finally:
            for path in beside.values():
                path.unlink(missing_ok=True)
    return done


def _list_paths(files: LogFiles) -> tuple[Path, Path, Path]:
    return files.items, files.categories, files.events


class _Context:
    """The catalogue, recommenders and categories of the log, and counts made during the export."""

    def __init__(self, store: Store, upto: int, only_known: bool, recommender: str | None, since: float | None) -> None:
        self.only_known, self.recommender, self.since = only_known, recommender, since
        self.feature_map: bytes | None = None
        self.catalogue = Catalogue()
        self.history = CatalogueHistory()
        self.specs: dict[str, RecommenderSpec] = {}
        self.offered: Counter[int] = Counter()
        self.uniform = SupportSums()
        self.categories: tuple[str, ...] = ()
        seed = b""
        for row in store.events_of_service(upto):
            with reading_within(row):
                seed = self._take(row, read_event(row)) or seed
        self.stamp = hashlib.sha256(seed + str(upto).encode()).hexdigest()[:32].encode()

    def _take(self, row: Row, body: Any) -> bytes | None:
        """Take what an event of the service says; returns the seed of the log from the event that has it."""
        if row.kind == "items":
            self.catalogue.apply(body)
            self.history.apply(row.seq, body)
        elif row.kind == "recommender":
            spec = RecommenderSpec.from_json(body.spec)
            self.specs[spec.name] = spec
        elif row.kind == "service":
            self.feature_map = body.feature_map
            kept = {} if body.feature_map is None else msgspec.json.decode(body.feature_map)
            if kept and not is_learned(kept["spec"]):
                self.categories = tuple(kept["categories"])
            seed: bytes = body.seed
            return seed
        return None


def _write_events(
    store: Store, context: _Context, path: Path, missing: float | str | None, done: Exported, progress: Progress
) -> set[str]:
    named: set[str] = set()  # shown or on offer
    kept = {} if context.feature_map is None else {FEATURE_MAP: context.feature_map}
    schema = _SCHEMA.with_metadata({STAMP: context.stamp, **kept})
    create_private(path)
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        n_bytes = 0
        for name in list_users(store):
            n_before = done.n_rows
            for values in _build_rows(store.events_of(name, 0, done.upto), context, missing, done):
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
                named.update((values[1], *(values[_OFFERED] or ())))
                done.n_rows += 1
                n_bytes += len(values[_X]) + _ARM_BYTES * values[_N_ARMS]
                if len(columns["user"]) == _GROUP or n_bytes > _GROUP_BYTES:
                    _flush(writer, schema, columns)
                    n_bytes = 0
            done.n_users += done.n_rows > n_before
            if done.n_users % 256 == 0:
                progress("users exported", done.n_users, None)
        _flush(writer, schema, columns)
    return named


def _flush(writer: Any, schema: Any, columns: dict[str, list[Any]]) -> None:
    if not columns["user"]:
        return
    starts = np.concatenate([[0], np.cumsum([len(x) // 8 for x in columns["x"]])]).astype(np.int32)
    x = pa.ListArray.from_arrays(pa.array(starts), pa.array(np.frombuffer(b"".join(columns["x"]), np.float64)))
    arrays = [x if one.name == "x" else pa.array(columns[one.name], one.type) for one in schema]
    writer.write_table(pa.table(arrays, schema=schema))
    for column in columns.values():
        column.clear()


def _build_rows(
    rows: list[Row], context: _Context, missing: float | str | None, done: Exported
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one user; the final reward of a slot is known only after all events are read."""
    slots: dict[str, Any] = {}
    decisions: list[tuple[Row, events.DecisionBody, list[str]]] = []
    for row in rows:
        body = read_event(row)
        if row.kind == "decision":
            opened = open_slots(row, body)
            slots.update(opened)
            decisions.append((row, body, list(opened)))
        elif row.kind == "reward" and (slot := slots.get(slot_of_reward(row.id))) is not None:  # else it is archived
            slot.apply(body)
    exported: list[events.DecisionBody] = []
    for row, body, ids in decisions:
        if context.recommender not in (None, body.recommender) or body.at < (context.since or body.at):
            continue
        model = row.model or 0
        for i, id in enumerate(ids):
            slot = slots[id]
            done.n_open += slot.reward is None
            reward = missing if slot.reward is None else slot.reward
            known = body.own and slot.arm.propensity >= LEAST_PROBABILITY
            if reward == "leave out" or (context.only_known and not known):
                continue
            if _is_ruled_out(body):
                done.n_ruled_out += 1
                continue
            done.n_below += i > 0
            done.n_unknown += not known
            context.offered[_count_offered(body)] += 1
            if i == 0 and known:
                exported.append(body)
            yield (
                row.user,
                slot.arm.id,
                reward,
                slot.arm.propensity if known else None,
                slot.arm.x,
                row.id,
                i,
                row.seq,
                int(body.at * 1e6),
                slot.arm.arm,
                body.n_arms,
                *_find_offer(context.history, body, i),
                body.recommender,
                model,
                policy_name(context.specs[body.recommender], model),
                None if body.chosen is None else body.taken[0].id,
            )
    _add_support(context.uniform, exported)


def _find_offer(history: CatalogueHistory, body: events.DecisionBody, slot: int) -> tuple[list[str] | None, Any]:
    """Return the ids of the arms that a slot could show, and their probabilities."""
    arms = body.arms if body.arms is not None or history.is_final(body.seen) else history.ids_at(body.seen)
    p = None if body.chosen is not None else body.taken[slot].full_distribution(body.n_arms)
    if not slot and body.rules is None:
        return arms, p
    left = body.on_offer(slot)
    if body.rules is not None and len(left) == body.n_arms:
        return arms, p
    ids = history.final_ids if arms is None else arms
    return [ids[i] for i in left], None if p is None else p[left]


def _is_ruled_out(body: events.DecisionBody) -> bool:
    """Whether the caller has shown an arm that the rules rule out; refused now, and in older logs."""
    return body.chosen is not None and body.rules is not None and body.chosen.arm not in body.on_offer()


def _count_offered(body: events.DecisionBody) -> int:
    return body.n_arms if body.rules is None else len(body.on_offer())


def _find_distribution(body: events.DecisionBody) -> Floats:
    """Return the probabilities of the arms that the first slot could show."""
    p = body.taken[0].full_distribution(body.n_arms)
    return p if body.rules is None else p[body.on_offer()]


def _add_support(uniform: SupportSums, decisions: list[events.DecisionBody]) -> None:
    """Add the decisions of one user to the support of the uniform policy; of lists, the first slot counts."""
    weight = np.array([1 / _count_offered(body) / body.shown[0].propensity for body in decisions])
    whole = [one for one in decisions if one.chosen is None]  # a caller in shadow mode sends only one propensity
    missing = np.array([(_find_distribution(one) == 0).mean() for one in whole])
    uniform.add_user(weight, missing)


def _write_items(context: _Context, beside: dict[Path, Path], files: LogFiles, named: set[str]) -> None:
    """Write the items of the catalogue, then those that were shown or on offer and are not in it."""
    known = context.catalogue.items
    names = [*known, *sorted(named - known.keys())]
    used = {name for item in known.values() for name in item.categories or ()}
    categories = list(context.categories) if used <= set(context.categories) else sorted(used)
    columns: dict[str, Any] = {"item": pa.array(names, pa.string())}
    if categories:
        index = {name: j for j, name in enumerate(categories)}
        lists = [[index[one] for one in known[name].categories or ()] if name in known else [] for name in names]
        columns["categories"] = pa.array(lists, pa.list_(pa.int32()))
        create_private(beside[files.categories])
        beside[files.categories].write_text(json.dumps(categories, indent=0, ensure_ascii=False) + "\n", "utf-8")
    if any(item.title for item in known.values()):
        columns["title"] = pa.array([known[name].title if name in known else None for name in names], pa.string())
    table = pa.table(columns).replace_schema_metadata({STAMP: context.stamp})
    create_private(beside[files.items])
    pq.write_table(table, beside[files.items], compression="zstd")
