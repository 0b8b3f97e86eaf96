"""The news page of the documentation, with readers, with and without the service it asks."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from lcb.client import Client
from lcb.models import LatentModels
from lcb.storage.models.folder import save_models
from support import news_page
from support.harness import Server, find_port, serving, start
from support.news_page import DOCS, NEWS, events


@contextmanager
def published(url: str, patience: float) -> Iterator[httpx.Client]:
    """The page as a browser without scripts sees it."""
    with (
        news_page.published(url, patience) as address,
        httpx.Client(base_url=address, timeout=30, trust_env=False) as client,
    ):
        yield client


class Reader:
    """Somebody with a browser and a taste."""

    def __init__(self, page: httpx.Client, likes: str) -> None:
        self.page, self.likes, self.name, self.seen = page, likes, None, []

    def visit(self) -> None:
        self.page.cookies.clear()
        if self.name is not None:
            self.page.cookies.set("reader", self.name)
        shown = self.page.get("/")
        assert shown.status_code == 200
        self.name = shown.cookies["reader"]
        story = NEWS.STORIES[re.search(r'href="/story/(\w+)"', shown.text)[1]]
        decision = re.search(r'data-decision="(\w+)"', shown.text)[1]
        self.seen.append((story.section, decision))
        came = "/read" if story.section == self.likes else "/left"
        assert self.page.post(came, content=decision).status_code == 204


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two kinds of readers: one for sport, one for science."""
    folder = tmp_path_factory.mktemp("classes") / "models"
    beta = np.array([[0.1, 0.9, 0.1, 0.1], [0.1, 0.1, 0.9, 0.1]])
    save_models(LatentModels(np.full(2, 0.5), beta, np.full(2, 0.09)), folder)
    return str(folder)


@pytest.fixture
def service(tmp_path: Path, classes: str) -> Iterator[Server]:
    lcb = {"name": "lcb", "uniform": 0.0}  # nothing is shown by chance
    with serving(tmp_path, models=classes, recommenders=[lcb]) as server:
        yield server


def test_readers_are_shown_what_their_kind_reads(service: Server):
    with published(service.address, 10) as page:
        events(service, 1, ("items",))
        readers = [Reader(page, likes) for likes in ("sport", "science") * 4]
        for n in range(1, 9):
            for reader in readers:
                reader.visit()
            events(service, 2 * n * len(readers))
    late = [section == reader.likes for reader in readers for section, _ in reader.seen[4:]]
    assert np.mean(late) > 0.9
    with Client(service.address) as client:
        for reader in readers:
            known = client.user(reader.name)
            assert (known.n_decisions, known.n_rewards) == (8, 8)
            assert known.reward_sum == sum(section == reader.likes for section, _ in reader.seen)
            assert known.posterior[("sport", "science").index(reader.likes)] > 0.9


def test_a_beacon_that_comes_again_or_with_another_word_changes_nothing(service: Server):
    with published(service.address, 10) as page:
        events(service, 1, ("items",))
        reader = Reader(page, "nothing at all")
        reader.visit()
        for path in ("/left", "/read", "/left"):
            assert page.post(path, content=reader.seen[0][1]).status_code == 204
        for nonsense in (b"made up", b"\xff\0", b""):
            assert page.post("/read", content=nonsense).status_code == 204
        assert page.post("/read", content=b"x" * 65).status_code == 413
        reader.visit()
        rewards = [row for row in events(service, 4) if row[0] == "reward"]
    assert [id for _, id, _ in rewards] == [f"r/{decision}" for _, decision in reader.seen]
    with Client(service.address) as client:
        assert client.user(reader.name).reward_sum == 0.0


def test_without_the_service_the_editor_decides_and_it_is_told_later(tmp_path: Path, classes: str, caplog):
    caplog.set_level(logging.WARNING, "news_page")
    port = find_port()
    server = start(tmp_path, models=classes, port=port)
    try:
        with published(server.address, 10) as page:
            events(server, 1, ("items",))
            assert server.stop() == 0
            readers = [Reader(page, "world"), Reader(page, "sport")]
            for reader in readers:
                reader.visit()
            assert [reader.seen[0][0] for reader in readers] == ["world", "world"]
            assert "the editor decides: POST /v1/decisions got no answer in 1 attempt" in caplog.text
            server = start(tmp_path, models=classes, port=port)
            told = events(server, 4)
        assert [kind for kind, *_ in told] == ["decision", "reward"] * 2
        assert [id for kind, id, _ in told if kind == "decision"] == [reader.seen[0][1] for reader in readers]
        with Client(server.address) as client:
            sums = [client.user(reader.name).reward_sum for reader in readers]
            assert sums == [1.0, 0.0]
            again = client.decide(readers[0].name, list(NEWS.STORIES), chosen="harbour", chosen_propensity=1.0,
                                  decision_id=readers[0].seen[0][1])  # fmt: skip
            assert (again.arm, again.propensity) == ("harbour", 1.0)
    finally:
        server.kill()


def test_a_service_that_never_answers_holds_nobody_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with published(address, 0.05) as page:
            began = time.monotonic()
            for _ in range(10):
                Reader(page, "world").visit()
            assert time.monotonic() - began < 20  # and not 10 times the 2 s that a client has by default


def test_the_rest_of_the_page_is_there():
    with published("http://127.0.0.1:9", 0.05) as page:
        assert "opera house" in page.get("/story/opera").text
        assert page.get("/story/nothing").status_code == 404
        assert "sendBeacon" in page.get("/beacon.js").text


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("block", re.findall(r"```\w+\n(.*?)```", (DOCS / "example.md").read_text(), re.DOTALL))
def test_what_the_walk_through_shows_is_in_the_file(block: str):
    assert squeezed(block).strip() in squeezed((DOCS / "examples" / "news_page.py").read_text())
