"""Drill 36: nobody keeps the others waiting: stories, giant decisions, catalogues, idle connections, bodies, guesses.

The parts watch what is answered, not how fast: `tests/support/server.py` can hold up the work that an attacker would
make last, while a file exists.  Each part has a control, in which its protection is removed and it must fail.
"""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from drills.test_20_slow_clients import connect, memory
from lcb.serve import read_event, sparse
from lcb.serve.audit.story import read_story
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.state import reward_slots
from lcb.serve.web import keys
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, serving
from support.running import running

PATIENCE = 60.0  # seconds that what must happen has, on a busy machine
SHORT = 3.0  # seconds after which a control gives up
SLOW = "lcb-slow"  # while this file exists in the folder of the store, work is held up,
WAITING = "lcb-waiting"  # and this one has a byte for each that was


@contextmanager
def holding_up(folder: Path) -> Iterator[Path]:
    place = folder / SLOW
    place.touch()
    try:
        yield place
    finally:
        place.unlink(missing_ok=True)


def create_keys(folder: Path, **scopes: str) -> dict[str, dict[str, str]]:
    """Create keys by name and scope; return the headers that carry them."""
    store = open_store(str(folder / "lcb.db"))
    try:
        return {
            name: {"authorization": f"Bearer {keys.create(store, name, scope, 0.0)}"} for name, scope in scopes.items()
        }
    finally:
        store.close()


def wait_until_held_up(folder: Path, n: int = 1) -> None:
    wait_until(
        lambda: (folder / WAITING).exists() and (folder / WAITING).stat().st_size >= n, PATIENCE, "nothing waits"
    )


def decide(http: httpx.Client, headers: dict[str, str] | None = None) -> httpx.Response:
    return http.post("/v1/decisions", json={"user": "ann", "arms": arms(np.random.default_rng(0))}, headers=headers)


def wait_until(happens: Any, seconds: float, words: str) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, words
        time.sleep(0.02)


def drill_stories(folder: Path, *, without: tuple[str, ...] = (), patience: float = PATIENCE) -> None:
    """Many recomputations by a reader's key: a revoked key stops working, others decide, SIGTERM ends the service."""
    models = models_folder(folder)
    headers = create_keys(folder, reader="reader", writer="writer", lost="writer")
    story = "POST /page/users/ann/verify HTTP/1.1\r\nhost: localhost\r\n{}content-length: 0\r\n\r\n"
    story = story.format(f"authorization: {headers['reader']['authorization']}\r\n")
    with serving(folder, without=("fast stories", *without), models=models) as server, ExitStack() as stack:
        http = stack.enter_context(server.client())
        assert decide(http, headers["writer"]).status_code == 200
        stack.enter_context(holding_up(folder))
        asking = [stack.enter_context(connect(server, story.encode())) for _ in range(40)]

        def list_answered() -> list[socket.socket]:
            return select.select(asking, [], [], 0)[0]

        wait_until_held_up(folder)
        wait_until(lambda: len(list_answered()) == 40 - 9 or without, patience, "more than eight stories wait")
        if without:
            time.sleep(1.0)  # until all stories have come
        store = open_store(str(folder / "lcb.db"))
        keys.revoke(store, "lost", 1.0)
        store.close()
        wait_until(
            lambda: http.get("/v1/items", headers=headers["lost"]).status_code == 401,
            patience,
            "a revoked key still works",
        )
        assert decide(http, headers["writer"]).status_code == 200
        answered = list_answered()
        assert len(answered) == 40 - 9  # the others still wait
        assert all(b" 503 " in client.recv(65536).partition(b"\r\n")[0] for client in answered)
        try:
            assert server.stop(patience) == 0
        except subprocess.TimeoutExpired:
            raise AssertionError("stories keep the service from ending") from None


def drill_large_decision(folder: Path, *, without: tuple[str, ...] = (), patience: float = PATIENCE) -> None:
    """A decision over very many arms: others are served meanwhile, and what is logged recomputes bit for bit."""
    rng = np.random.default_rng(1)
    large = {"user": "ann", "arms": arms(rng, 2_000, 30), "decision_id": "large"}
    small = {"user": "ann", "arms": arms(rng, 5, 30)}
    answers: list[httpx.Response] = []

    def ask_large(server: Server) -> None:
        with server.client() as http, suppress(httpx.HTTPError):  # a control kills the service
            answers.append(http.post("/v1/decisions", json=large))

    spec = {"name": "lcb", "bandit": "linucb"}
    with serving(folder, without=("fast scores", *without), recommenders=[spec], pages=False) as server:
        with server.client() as http:
            http.timeout = httpx.Timeout(patience)
            first = http.post("/v1/decisions", json=small).json()
            http.post("/v1/rewards", json={"decision_id": first["decision_id"], "reward": 1.0})
            with holding_up(folder):
                asking = threading.Thread(target=ask_large, args=(server,))
                asking.start()
                wait_until_held_up(folder)
                try:
                    assert http.get("/healthz").status_code == 200
                    second = http.post("/v1/decisions", json=small).json()  # stored before the large one
                    http.post("/v1/rewards", json={"decision_id": second["decision_id"], "reward": 0.0})
                except httpx.TimeoutException:
                    raise AssertionError("one decision over many arms keeps everybody waiting") from None
                assert not answers
            asking.join()
            assert answers[0].status_code == 200, answers[0].text
            assert http.post("/v1/decisions", json=large).content == answers[0].content
            with holding_up(folder):  # the user is erased while a decision is made from what was known of them
                answers.clear()
                large["decision_id"] = "later"
                asking = threading.Thread(target=ask_large, args=(server,))
                asking.start()
                wait_until_held_up(folder, 2)
                assert http.delete("/v1/users/ann").status_code == 200
            asking.join()
            assert answers[0].status_code == 200, answers[0].text
            assert http.get("/v1/users/ann").json()["n_decisions"] == 1
        assert server.stop() == 0
    store = open_store(str(folder / "lcb.db"))
    try:
        report = verify(store)
        assert report.n_differences == 0, report.differences
        assert report.n_decisions == 1  # the others are erased
    finally:
        store.close()


def drill_large_user(folder: Path, *, without: tuple[str, ...] = (), patience: float = PATIENCE) -> None:
    """Rewards of a user with large decisions, after a crash, some of which change earlier ones: others are served."""
    rng, answers = np.random.default_rng(3), []
    spec = {"name": "lcb", "bandit": "linucb", "uniform": 0.5}
    settings: dict[str, Any] = {"recommenders": [spec], "pages": False, "rewards": "last"}
    with serving(folder, without=("sparse distributions",), **settings) as server, server.client() as http:
        assert http.put("/v1/items", json={"items": arms(rng, 2_000, 2)}).status_code == 200
        made = http.post("/v1/decisions", json={"user": "large", "k": 90, "decision_id": "large"}).json()
        slot = made["slots"][0]["reward_id"]
        server.kill()

    def reward(server: Server, value: float) -> None:
        with server.client() as http, suppress(httpx.HTTPError):  # a control kills the service
            answers.append(http.post("/v1/rewards", json={"decision_id": slot, "reward": value}))

    with serving(folder, without=("fast histories", *without), **settings) as server, server.client() as http:
        http.timeout = httpx.Timeout(patience)
        for value in (1.0, 0.0):  # the first reads the decision; the second changes the first, so all is folded again
            answers.clear()
            with holding_up(folder):
                asking = threading.Thread(target=reward, args=(server, value))
                asking.start()
                time.sleep(0.5)
                try:
                    assert http.get("/healthz").status_code == 200
                    assert http.get("/v1/users/nobody").status_code == 404
                except httpx.TimeoutException:
                    raise AssertionError("a reward of a large user keeps everybody waiting") from None
                assert not answers
            asking.join()
            assert answers[0].status_code == 200, answers[0].text
        assert http.get("/v1/users/large").json()["n_rewards"] == 1
        assert server.stop() == 0
    store = open_store(str(folder / "lcb.db"))
    try:
        assert verify(store).differences == []
    finally:
        store.close()


async def drill_memory_of_lists(folder: Path, n: int = 12) -> None:
    """Lists from many items, and the story of their user: nothing is kept that no reward needs.

    Distributions are stored whole, as for a policy that gives each arm a probability of its own.
    """
    async with running(folder, pages=False, recommenders=(RecommenderSpec("lcb", "linucb", uniform=0.5),)) as service:
        await service.http.put("/v1/items", json={"items": arms(np.random.default_rng(4), 2_000, 2)})
        first = 0
        tracemalloc.start()
        try:
            for i in range(n):
                await service.http.post("/v1/decisions", json={"user": "ann", "k": 50, "decision_id": f"d{i}"})
                first = first or tracemalloc.get_traced_memory()[0]
            row = service.service.store.event("d0")
            assert row is not None
            assert len(row.body) > 800_000
            for _ in range(40):  # the journal forgets what is answered four times a second
                grown = (tracemalloc.get_traced_memory()[0] - first) / len(row.body)
                if grown < 3:
                    break
                await asyncio.sleep(0.05)
            assert grown < 3, f"{grown:.1f} decisions are kept in memory"
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert len(read_story(service.world, service.service.store.stream_of("ann"))) == 50 * n
            peak = (tracemalloc.get_traced_memory()[1] - before) / len(row.body)
            assert peak < 5, f"a story keeps {peak:.1f} decisions in memory"
        finally:
            tracemalloc.stop()


def drill_many_items(folder: Path, *, without: tuple[str, ...] = (), patience: float = PATIENCE) -> None:
    """A large change of the catalogue, and the list of a large catalogue: others are served meanwhile."""
    rng = np.random.default_rng(2)
    items = {"items": arms(rng, 2_000, 30)}
    answers: list[httpx.Response] = []

    def put(server: Server) -> None:
        with server.client() as http, suppress(httpx.HTTPError):  # a control kills the service
            answers.append(http.put("/v1/items", json=items))

    with serving(folder, without=("fast items", *without), pages=False) as server, server.client() as http:
        http.timeout = httpx.Timeout(patience)
        assert http.put("/v1/items", json={"items": arms(rng, 5, 30)}).status_code == 200
        with holding_up(folder):
            putting = threading.Thread(target=put, args=(server,))
            putting.start()
            wait_until_held_up(folder)
            try:
                assert http.get("/healthz").status_code == 200
                assert http.post("/v1/decisions", json={"user": "ann"}).status_code == 200
            except httpx.TimeoutException:
                raise AssertionError("one change of many items keeps everybody waiting") from None
            assert not answers
        putting.join()
        assert answers[0].json() == {"n_items": 2000, "n_features": 30}
        assert http.get("/v1/items").json()["items"] == [
            {**one, "categories": None, "title": None, "summary": None} for one in items["items"]
        ]


def drill_idle_connections(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """As many idle connections as are allowed, after a request or without: newcomers are served, those at work stay."""
    most = 2000 if LONG else 20
    models = models_folder(folder)
    with (
        serving(
            folder, without=without, models=models, limits={"max_connections": most, "max_per_address": most}
        ) as server,
        ExitStack() as stack,
    ):
        for i in range(most):
            client = stack.enter_context(connect(server))
            if i % 2:
                client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert b" 200 " in client.recv(65536)
        for _ in range(3):
            with server.client() as http:
                assert decide(http).status_code == 200, "idle connections lock out others"


def drill_bodies(folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """Large bodies to the sign-in, by somebody without a key, and as a reward: refused before they are read."""
    key = create_keys(folder, admin="admin")["admin"]["authorization"]
    head = f"POST %s HTTP/1.1\r\nhost: localhost\r\nauthorization: {key}\r\ncontent-length: 3900000\r\n\r\n".encode()
    routes = (b"/page/login", b"/v1/rewards", b"/v1/models/1/activate")
    with serving(folder, without=without, models=models_folder(folder)) as server, ExitStack() as stack:
        before = memory(server)
        clients = [stack.enter_context(connect(server, head % routes[i % 3])) for i in range(300 if LONG else 9)]
        for client in clients:
            client.settimeout(SHORT if without else PATIENCE)
            try:
                assert b" 413 " in client.recv(65536).partition(b"\r\n")[0]
            except TimeoutError:
                raise AssertionError("3.9 MB were not refused") from None
        with ExitStack() as sending:
            for client in clients:
                sending.callback(client.close)
                client.settimeout(1.0)
                with suppress(OSError):
                    client.sendall(b" " * 100_000)
        assert memory(server) - before < 60_000_000, "memory grew with bodies"


def drill_guesses(folder: Path, *, rate: float = 5.0) -> None:
    """Wrong keys and unknown paths: beyond a rate they get 429, and a valid key at the same address still works."""
    headers = create_keys(folder, writer="writer")
    with serving(folder, models=models_folder(folder), limits={"failures": rate}) as server, server.client() as http:
        wrong = [http.get("/v1/items", headers={"authorization": "Bearer lcb_guess"}).status_code for _ in range(200)]
        assert set(wrong[:40]) == {401}
        assert 429 in wrong, "keys can be guessed at any rate"
        unknown = {http.get(f"/nothing/{i}").status_code for i in range(30)}
        assert 429 in unknown
        assert http.get("/v1/items", headers=headers["writer"]).status_code == 200
        assert http.get("/healthz").status_code == 200


def test_stories_hold_up_neither_keys_nor_the_end(tmp_path: Path) -> None:
    drill_stories(tmp_path)


def test_control_one_pool_of_threads_for_everything(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a revoked key still works"):
        drill_stories(tmp_path, without=("own threads",), patience=SHORT)


def test_a_large_decision_holds_up_nobody_and_recomputes(tmp_path: Path) -> None:
    drill_large_decision(tmp_path)


def test_control_all_decisions_in_the_event_loop(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="keeps everybody waiting"):
        drill_large_decision(tmp_path, without=("large work apart",), patience=SHORT)


def test_a_user_with_large_decisions_holds_up_nobody(tmp_path: Path) -> None:
    drill_large_user(tmp_path)


def test_control_large_users_are_read_in_the_event_loop(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="keeps everybody waiting"):
        drill_large_user(tmp_path, without=("large reads apart",), patience=SHORT)


@pytest.fixture
def whole_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "FEWEST_ARMS", 10**9)


@pytest.mark.usefixtures("whole_distributions")
def test_lists_from_many_items_leave_little_in_memory(tmp_path: Path) -> None:
    asyncio.run(drill_memory_of_lists(tmp_path))


@pytest.mark.usefixtures("whole_distributions")
def test_control_slots_keep_whole_distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_slots, "_LARGE", 10**9)
    with pytest.raises(AssertionError, match="decisions are kept in memory"):
        asyncio.run(drill_memory_of_lists(tmp_path))


@pytest.mark.usefixtures("whole_distributions")
def test_control_stories_keep_whole_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_event, "_LARGE_DECISION", 10**9)
    with pytest.raises(AssertionError, match="a story keeps"):
        asyncio.run(drill_memory_of_lists(tmp_path))


def test_a_large_catalogue_holds_up_nobody(tmp_path: Path) -> None:
    drill_many_items(tmp_path)


def test_control_all_items_in_the_event_loop(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="keeps everybody waiting"):
        drill_many_items(tmp_path, without=("large work apart",), patience=SHORT)


def test_idle_connections_give_way(tmp_path: Path) -> None:
    drill_idle_connections(tmp_path)


def test_control_idle_connections_stay(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lock out others"):
        drill_idle_connections(tmp_path, without=("giving way",))


def test_large_bodies_to_the_sign_in_are_refused_unread(tmp_path: Path) -> None:
    drill_bodies(tmp_path)


def test_control_large_bodies_to_the_sign_in_are_read(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="were not refused"):
        drill_bodies(tmp_path, without=("small bodies",))


def test_guesses_have_a_rate(tmp_path: Path) -> None:
    drill_guesses(tmp_path)


def test_control_guesses_without_a_rate(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="at any rate"):
        drill_guesses(tmp_path, rate=0.0)
