"""The dashboard's items: the best, the worst and the new, with what the service believes about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lcb.serve.pages.items import ItemBoard
from support import item_worlds
from support.inside import Inside, sqlite
from support.item_worlds import MEAN, add_version


def test_items_are_listed_by_appeal_and_newcomers_rise_or_fall(tmp_path: Path) -> None:
    with Inside(sqlite(tmp_path / "lcb.db"), item_worlds.settings()) as inside:
        board = ItemBoard(inside.service)
        inside.service.watchers.watch_batches(
            lambda rows, bodies: board.count_all([(rows, bodies, inside.wall)]), ("decision", "reward"), lambda: None
        )
        assert board.describe() == []  # before there is a version with effects
        known = {f"old{i}": 0.2 + 0.01 * i for i in range(12)}
        items = [{"id": id, "x": [1.0, 0.0], "title": f"Old {id[3:]}"} for id in known]
        inside.items(*items, {"id": "good", "x": [1.0, 0.0]}, {"id": "bad", "x": [1.0, 0.0]})
        add_version(inside, item_worlds.models(known))
        for n in range(80):
            for id in ("good", "bad"):
                answer = inside.decide(f"{id}{n}", arms=[{"id": id}])
                inside.reward(answer["decision_id"], float(id == "good"))
        inside.decide("ann", arms=[{"id": "good"}])
        shown = board.describe()
        assert [row["effect"] for row in shown] == sorted((row["effect"] for row in shown), reverse=True)
        assert len(shown) == 6 + 3  # the new item "good" is among the best, "bad" among the worst
        assert {row["kind"] for row in shown} == {"best", "worst", "new"}
        by_name = {row["item"]: row for row in shown}
        good, bad = by_name["good"], by_name["bad"]
        assert (good["kind"], good["trend"], good["offers"], good["rewards"]) == ("new", "rising", 81, 80)
        assert (bad["kind"], bad["trend"], bad["rate"]) == ("new", "falling", 0.0)
        assert good["rate"] == pytest.approx(80 / 81)
        assert good["low"] < good["effect"] < good["high"]
        assert good["low"] > MEAN > bad["high"]
        assert by_name["Old 11"]["kind"] == "best"
        assert by_name["Old 11"]["rewards"] == 30
        rates = board.list_rates(shown)
        assert {row["item"] for row in rates} == {"good", "bad"}
        assert sum(row["offers"] for row in rates) == 161
