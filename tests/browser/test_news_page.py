"""The news page of the documentation in a browser: what a reader does with the story becomes its reward."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from lcb.client import Client
from support.harness import serving
from support.news_page import events, published


def test_a_click_is_a_reward_of_1_and_leaving_one_of_0(page: Page, tmp_path: Path):
    with serving(tmp_path, pages=False) as service, published(service.address, patience=10) as address:
        events(service, 1, ("items",))
        page.goto(address)
        page.click("#lead")
        page.wait_for_url("**/story/*")
        first = events(service, 2)
        page.goto(address)
        page.goto(f"{address}/story/opera")
        second = events(service, 4)[2:]
        reader = first[0][2]
        assert [kind for kind, *_ in (*first, *second)] == ["decision", "reward"] * 2
        assert {user for *_, user in (*first, *second)} == {reader}
        with Client(service.address) as client:
            rewards = [client.user(reader).reward_sum]
            refused = client.rewards({first[0][1]: 0.0, second[0][1]: 1.0})
        assert rewards == [1.0]
        assert ["has the reward 1" in refused[first[0][1]], "has the reward 0" in refused[second[0][1]]] == [True, True]
