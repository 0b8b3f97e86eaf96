"""The items of the dashboard: their effects now with intervals, and offers and rewards over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from lcb.serve.service import Service
from lcb.storage.store.base import Row

_N_BEST, _N_WORST, _N_NEW = 6, 3, 6  # items shown
_MOST_ITEMS = 20_000  # whose offers are counted
_MOST_POINTS = 20_000
_BUCKET = 30.0  # seconds per point
_Z = 1.96
Key = TypeVar("Key")
Batch = tuple[Sequence[Row], Sequence[Any], float]  # events that were applied together, their bodies, and when


class ItemBoard:
    """Counts offers and rewards of items since the start of this process, and describes some items."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._totals: OrderedDict[str, list[float]] = OrderedDict()  # -> offers, sum of rewards
        self._points: OrderedDict[tuple[float, str], list[float]] = OrderedDict()  # time and item -> the same

    def count_all(self, batches: Iterable[Batch]) -> None:
        """Count decisions and rewards that were applied."""
        added: dict[tuple[float, str], list[float]] = {}
        for rows, bodies, now in batches:
            bucket = now - now % _BUCKET
            for row, body in zip(rows, bodies, strict=True):
                if row.kind == "decision":
                    for one in body.taken if body.chosen is None else body.shown:
                        found = added.get((bucket, one.id))
                        if found is None:
                            found = added[bucket, one.id] = [0.0, 0.0]
                        found[0] += 1.0
                elif body.item is not None:
                    found = added.setdefault((bucket, body.item), [0.0, 0.0])
                    found[1] += body.reward - (body.before or 0.0)
        for (bucket, item), (offers, reward) in added.items():
            _count(self._totals, item, _MOST_ITEMS, offers, reward)
            _count(self._points, (bucket, item), _MOST_POINTS, offers, reward)

    def describe(self) -> list[dict[str, Any]]:
        """Return the best, the worst and the new items, the best first; none before a version has item effects."""
        items = self.service.world.items
        if items.learned is None:
            return []
        catalogue = self.service.world.state.catalogue
        ids = catalogue.ids or list(dict.fromkeys((*items.learned.ids, *items.sums.since)))
        if not ids:
            return []
        effects = items.of_arms(ids)
        order = np.argsort(-effects.effect, kind="stable")
        present = set(ids)
        known = items.learned.find(items.sums.since)
        new = [id for id, place in zip(items.sums.since, known, strict=True) if place < 0 and id in present]
        new = sorted(new, key=lambda id: -items.sums.since[id][0])[:_N_NEW]
        shown = {ids[i]: "best" for i in order[:_N_BEST].tolist()}
        shown |= {ids[i]: "worst" for i in order[_N_BEST:][-_N_WORST:].tolist()} | dict.fromkeys(new, "new")
        rows = [self._describe(id, kind) for id, kind in shown.items()]
        return sorted(rows, key=lambda row: -row["effect"])

    def _describe(self, id: str, kind: str) -> dict[str, Any]:
        items, catalogue = self.service.world.items, self.service.world.state.catalogue
        assert items.learned is not None
        effect, variance = items.get(id)
        low, high = effect - _Z * variance**0.5, effect + _Z * variance**0.5
        offers, total = self._totals.get(id, (0.0, 0.0))
        item = catalogue.items.get(id)
        return {
            "item": (item.title if item is not None else None) or id,
            "kind": kind,
            "effect": effect,
            "low": low,
            "high": high,
            "rewards": items.count(id),
            "offers": int(offers),
            "rate": total / offers if offers else None,
            "trend": _name_trend(low, high, items.learned.prior_mean),
        }

    def list_rates(self, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the reward per offer over time of the shown items that were offered most."""
        most = sorted((row for row in shown if row["offers"]), key=lambda row: -row["offers"])[:6]
        titles = {row["item"] for row in most}
        catalogue = self.service.world.state.catalogue
        rows = []
        for (t, id), (offers, total) in self._points.items():
            item = catalogue.items.get(id)
            name = (item.title if item is not None else None) or id
            if name in titles and offers:
                rows.append({"t": t, "item": name, "offers": int(offers), "rate": total / offers})
        return rows


def _count(counts: OrderedDict[Key, list[float]], key: Key, most: int, offers: float, reward: float) -> None:
    """Add to a count; the oldest is dropped if there are more than `most`."""
    found = counts.setdefault(key, [0.0, 0.0])
    found[0] += offers
    found[1] += reward
    if len(counts) > most:
        counts.popitem(last=False)


def _name_trend(low: float, high: float, usual: float) -> str:
    """Say whether the interval of an effect lies above or below that of an item nobody has seen.

    >>> _name_trend(0.2, 0.4, 0.1), _name_trend(-0.1, 0.05, 0.1), _name_trend(0.0, 0.2, 0.1)
    ('rising', 'falling', 'open')
    """
    return "rising" if low > usual else "falling" if high < usual else "open"
