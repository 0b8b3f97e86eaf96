"""The live state of the dashboard: rates, click rates over time, model versions, the store.

Events are counted in time buckets as they are applied; old buckets are dropped.  The state is built once a second,
and only while a dashboard is open.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from lcb.serve.audit import trail, trials
from lcb.serve.learn import versions
from lcb.serve.observe.metrics import BOUNDS, is_work
from lcb.serve.observe.redaction import redact
from lcb.serve.pages.items import Batch, ItemBoard
from lcb.serve.pages.specs import classes_spec
from lcb.serve.pages.visitors import Visitors
from lcb.serve.web.app import App
from lcb.storage.store.base import Row

_SECONDS = 300  # rates are kept for this many seconds
_BUCKET = 30.0  # seconds per point of the click rate
_MOST_BUCKETS = 2000
_MOST_STEPS = 20
_MOST_OPEN = 20_000
_MOST_POINTS, _MOST_CLASSES = 60, 8  # of the chart of a mixture
_MOST_AUDIT = 20  # entries shown
_MOST_WAITING, _MOST_BYTES = 200, 4_000_000  # events that are counted together, and what they may take of memory
_SIZE_EVERY = 10.0  # seconds between two measurements of the log's size


class Live:
    """Counts for the dashboard; `clock` returns seconds since 1970, for the time axes."""

    def __init__(self, app: App, visitors: Visitors, clock: Callable[[], float] = time.time) -> None:
        self.app, self.service, self.visitors, self.clock = app, app.service, visitors, clock
        self._begin_counts()
        self._size = (float("-inf"), 0)
        self._classes: tuple[int, dict[str, Any]] | None = None
        self._audit: deque[dict[str, Any]] | None = self._read_audit()  # None: to be read again, an entry was missed
        self.service.watchers.watch_batches(self.watch, ("decision", "reward"), self._begin_counts)
        self.service.watchers.watch(self.watch_audit, {"erase", *trail.KINDS}, self._begin_again)

    def _begin_counts(self) -> None:
        """Count from now on, as after a start; after an error counts may lack events."""
        self._rates: deque[list[float]] = deque(maxlen=_SECONDS)  # second, decisions, rewards
        self._clicks: OrderedDict[tuple[float, str, int], list[float]] = OrderedDict()  # -> decisions, sum of rewards
        self._buckets: OrderedDict[int, tuple[float, str, int]] = OrderedDict()  # seq of a decision -> its point
        self._items = ItemBoard(self.service)
        self._waiting: list[Batch] = []  # decisions and rewards to count
        self._n_waiting = self._n_bytes = 0

    def _read_audit(self) -> deque[dict[str, Any]]:
        """Read the newest entries of the audit trail, newest first."""
        return deque(reversed(trail.read_trail(self.service.store, _MOST_AUDIT)), maxlen=_MOST_AUDIT)

    def _begin_again(self) -> None:
        self._begin_counts()
        self._audit = None  # read again

    def watch(self, rows: Sequence[Row], bodies: Sequence[Any]) -> None:
        """Keep events until somebody looks; counting many together costs half."""
        self._waiting.append((rows, bodies, self.clock()))
        self._n_waiting += len(rows)
        self._n_bytes += sum([len(row[5]) for row in rows])
        if self._n_waiting >= _MOST_WAITING or self._n_bytes >= _MOST_BYTES:
            self._count_waiting()

    def watch_audit(self, row: Row, body: Any) -> None:
        self._count_waiting()  # keep nothing of an erased user
        if row.kind in trail.KINDS and self._audit is not None:
            self._audit.appendleft(trail.describe_action(row, body))

    def _count_waiting(self) -> None:
        """Count what waits; what events in a row have in common is looked up once."""
        waiting, self._waiting, self._n_waiting, self._n_bytes = self._waiting, [], 0, 0
        self._items.count_all(waiting)
        buckets = self._buckets
        for rows, bodies, now in waiting:
            second, start, last = self._get_second(now), now - now % _BUCKET, None
            for (seq, _, kind, _, model, _), body in zip(rows, bodies, strict=True):
                same = body.recommender, model
                if same != last:
                    last, key = same, (start, body.recommender, model or 0)
                    point = self._get_point(key)
                if kind == "decision":
                    n = len(body.taken)
                    second[1] += n
                    point[0] += n
                    buckets[seq] = key
                else:  # a reward counts in the point of its decision
                    second[2] += 1
                    self._get_point(buckets.get(body.decision, key))[1] += body.reward - (body.before or 0.0)
        while len(buckets) > _MOST_OPEN:
            buckets.popitem(last=False)

    def _get_second(self, now: float) -> list[float]:
        whole = float(int(now))
        if not self._rates or self._rates[-1][0] < whole:
            self._rates.append([whole, 0.0, 0.0])
        return self._rates[-1]

    def _get_point(self, key: tuple[float, str, int]) -> list[float]:
        point = self._clicks.get(key)
        if point is None:
            point = self._clicks[key] = [0.0, 0.0]
            while len(self._clicks) > _MOST_BUCKETS:
                self._clicks.popitem(last=False)
        return point

    # The state

    def read_state(self, since: float) -> dict[str, Any]:
        """Return all fields of the dashboard; of rates and click rates only points newer than `since`."""
        now = self.clock()
        self._count_waiting()
        self._get_second(now)
        if self._audit is None:
            self._audit = self._read_audit()
        world, journal, store = self.service.world, self.service.journal, self.service.store
        listed = versions.list_versions(world, self.app.retraining)
        trouble = journal.broken or journal.trouble
        items = self._items.describe()
        return {
            "seq": world.seq,
            "uptime": round(time.monotonic() - self.app.metrics.started),
            "rates": [
                {"t": t, "decisions": decisions, "rewards": rewards}
                for t, decisions, rewards in self._rates
                if since <= t < int(now)
            ],
            "ctr": [
                {"t": t, "recommender": recommender, "model": model, "ctr": sum_ / n, "decisions": n}
                for (t, recommender, model), (n, sum_) in self._clicks.items()
                if n and t + _BUCKET > since
            ],
            "classes": self._describe_classes(),
            "concentration": self._list_settled(),
            "mixture": self._describe_mixture(),
            "users_per_model": [
                {"model": model, "users": n} for model, n in sorted(world.users_per_model.items()) if n
            ],
            "models": [_pick(one, "version status created n_users score reason active") for one in listed.versions],
            "retraining": _pick(listed.retraining, "running phase done total started error"),
            "slowest": [
                {"route": route, "ms": 1000 * seconds, "at": at} for seconds, route, at in self.app.metrics.slowest
            ],
            "store": {
                "kind": "SQLite" if store.inline else "PostgreSQL",
                "events": world.seq,
                "archived": world.state.archived_upto,
                "compacted_at": None if world.state.compacted is None else world.state.compacted.at,
                "bytes": self._size[1],
                "healthy": trouble is None,
                "queue": journal.n_waiting,
                "last_commit_ms": 1000 * journal.last_commit,
                "detail": redact(trouble or ""),
            },
            "trial": [
                _pick(one, "name share mean deviation") | {"users": one.n_users}
                for one in trials.compare_all(self.service).recommenders
            ],
            "requests": self._summarise_requests(),
            "items": items,
            "item_rates": self._items.list_rates(items),
            "audit": list(self._audit),
        }

    def _describe_classes(self) -> dict[str, Any] | None:
        world = self.service.world
        active = world.state.active
        if not active:
            return None
        if self._classes is None or self._classes[0] != active:
            models = world.state.versions[active].models()
            words = [", ".join(likes) or "a bit of everything" for likes in self.visitors.describe_classes(active)]
            shown = {"model": active, "pi": models.pi.tolist(), "words": words, "chart": classes_spec(models)}
            self._classes = (active, shown)
        return self._classes[1]

    def _list_settled(self) -> list[dict[str, Any]]:
        """Count users by the number of decisions until one class reached 90 % (SETTLED); "more": not yet."""
        world = self.service.world
        rows: list[dict[str, Any]] = []
        for model, n_users in sorted(world.users_per_model.items()):
            if not model or not n_users:
                continue
            counts = world.concentration.get(model, {})
            settled = {steps: n for steps, n in counts.items() if n and steps <= _MOST_STEPS}
            rows += [{"steps": steps, "users": n, "model": model} for steps, n in sorted(settled.items())]
            rows.append({"steps": "more", "users": n_users - sum(settled.values()), "model": model})
        return rows

    def _describe_mixture(self) -> dict[str, Any] | None:
        """Describe the first mixture: the shares of its largest classes after refits and now; None: there is none."""
        mixtures = self.service.world.mixtures
        name = next(iter(mixtures.mixtures), None)
        if name is None:
            return None
        mixture = mixtures.mixtures[name]
        points = mixtures.history.get(name, [])
        points = [*points[:: len(points) // _MOST_POINTS + 1], *points[-1:]]
        past = {point.n_left: point.shares for point in points} | {mixture.n_left: mixture.shares()}
        numbers = {number for shares in past.values() for number in shares}
        largest = sorted(numbers, key=lambda number: -max(shares.get(number, 0.0) for shares in past.values()))
        rows = [
            {"users": users, "number": number, "share": round(shares.get(number, 0.0), 4)}
            for number in sorted(largest[:_MOST_CLASSES])
            for users, shares in sorted(past.items())
            if number in shares or any(number in before for left, before in past.items() if left < users)
        ]
        return {
            "name": name,
            "n_left": mixture.n_left,
            "n_classes": len(mixture.shares()),
            "n_ever": mixture.n_classes_ever,
            "rows": rows,
        }

    async def measure(self) -> None:
        """Measure the size of the log if the last value is old."""
        if time.monotonic() - self._size[0] > _SIZE_EVERY:
            self._size = (time.monotonic(), await asyncio.to_thread(self.service.store.size))

    def _summarise_requests(self) -> dict[str, Any]:
        work = [times for route, times in self.app.metrics.times.items() if is_work(route)]
        times = [sum(column) for column in zip(*work, strict=True)]
        errors = sum(n for (_, status), n in self.app.metrics.counts.items() if status >= 500)
        return {"p50_ms": _quantile(times, 0.5), "p99_ms": _quantile(times, 0.99), "errors": errors}


def _pick(answer: Any, names: str) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in names.split()}


def _quantile(times: list[int], q: float) -> float | None:
    """Return the `q` quantile of request times in milliseconds, to the precision of the histogram's buckets."""
    total, seen = sum(times), 0
    for n, bound in zip(times, (*BOUNDS, float("inf")), strict=False):
        seen += n
        if total and seen >= q * total:
            return 1000 * min(bound, 2 * BOUNDS[-1])
    return None
