"""The categories of an item of the catalogue become its features, or are refused with their place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lcb.serve.config.settings import Settings
from support.http_inside import inside


def put_items(folder: Path, *categories: list[str]) -> tuple[int, Any, dict[str, list[float]]]:
    """PUT items i0, i1, ... of these categories to a service of sport, arts and science."""

    async def ask() -> tuple[int, Any, dict[str, list[float]]]:
        settings = Settings(store=str(folder / "lcb.db"), categories=("sport", "arts", "science"), pages=False)
        items = [{"id": f"i{i}", "categories": names} for i, names in enumerate(categories)]
        async with inside(settings) as (app, client):
            answer = await client.put("/v1/items", json={"items": items})
            catalogue = app.service.world.state.catalogue
            ids = catalogue.ids
            features = dict(zip(ids, catalogue.x(ids).tolist(), strict=True)) if ids else {}
            return answer.status_code, answer.json(), features

    return asyncio.run(ask())


def test_an_item_has_equal_shares_of_its_categories(tmp_path: Path) -> None:
    status, _, features = put_items(tmp_path, ["science", "arts"], ["sport"])
    assert status == 200
    assert features == {"i0": [0.0, 0.5, 0.5], "i1": [1.0, 0.0, 0.0]}


@pytest.mark.parametrize(
    "names, field, detail",
    [
        (["arts", "sport", "arts"], "items[1].categories[2]", "category 'arts' is named twice in arts, sport, arts"),
        (
            ["arts", "cars"],
            "items[1].categories[1]",
            "unknown category 'cars'; the categories are sport, arts",
        ),
    ],
)
def test_duplicate_and_unknown_categories_are_refused(
    tmp_path: Path, names: list[str], field: str, detail: str
) -> None:
    status, problem, features = put_items(tmp_path, ["science"], names)
    assert status == 422
    assert problem["field"] == field
    assert detail in problem["detail"]
    assert features == {}
