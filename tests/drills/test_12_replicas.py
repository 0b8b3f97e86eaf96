"""Drill 12: two replicas serve the same user concurrently: one log, one order, no update lost.

In the second part one of the two is killed again and again, and its clients repeat at the other what was not answered.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest

from lcb.serve import events
from lcb.serve.decide.drawing import begin_draw, draw_arms
from lcb.serve.state.world import World
from lcb.storage.store.base import Row
from lcb.storage.store.open_store import open_store
from support.harness import LONG, Server, arms, models_folder, serving, start
from support.tampering import check_chain

CLIENTS = 16
ROUNDS = 320 if LONG else 10  # per client; a round is a decision and its reward
KILLS = 40 if LONG else 2


class Heard:
    """What the replicas acknowledged."""

    def __init__(self) -> None:
        self.decisions: dict[str, dict[str, Any]] = {}
        self.rewards: dict[str, float] = {}
        self.refused: list[str] = []


def client(replicas: list[Server], seed: int, rounds: int, heard: Heard) -> None:
    """Decide at one replica and send the reward to one or both; all clients use the same user."""
    rng = np.random.default_rng(seed)
    with replicas[0].client() as one, replicas[1].client() as other:
        both = (one, other)
        for i in range(rounds):
            body = {"user": "Ann", "arms": arms(rng, 5)}
            if rng.random() < 0.5:
                body["decision_id"] = f"d{seed}.{i}"
            answer = _post(both[rng.integers(2)], "/v1/decisions", body, heard)
            if answer is None:
                continue
            id, reward = answer["decision_id"], float(rng.integers(2))
            heard.decisions[id] = answer
            for at in rng.permutation(2)[: rng.integers(1, 3)]:
                if _post(both[at], "/v1/rewards", {"decision_id": id, "reward": reward}, heard) is not None:
                    heard.rewards[id] = reward


def _post(http: httpx.Client, path: str, body: dict[str, Any], heard: Heard) -> dict[str, Any] | None:
    answer = http.post(path, json=body)
    if answer.status_code == 200:
        return answer.json()
    heard.refused.append(answer.text)
    return None


def drill(url: str, folder: Path, without: tuple[str, ...] = (), rounds: int = ROUNDS) -> None:
    given = {"store": url, "models": models_folder(folder), "without": without}
    heard = Heard()
    with serving(folder, **given) as one, serving(folder, **given) as other:
        threads = [threading.Thread(target=client, args=([one, other], seed, rounds, heard)) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heard.refused == [], f"{len(heard.refused)} refused: {sorted(set(heard.refused))[:20]}"
        check_chain(url)
        store = open_store(url)
        try:
            log = list(store.events(0))
            check_log(log, heard)
            check_order(World(store), log)
            check_state(World(store), [one, other])
        finally:
            store.close()


def stubborn_client(replicas: list[Server], seed: int, stop: threading.Event, heard: Heard) -> None:
    """Decide and send the reward; what is not answered is repeated, at either replica, until it is."""
    rng = np.random.default_rng(seed)

    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(httpx.HTTPError), replicas[rng.integers(2)].client() as http:
                answer = http.post(path, json=body)
                if answer.status_code == 200:
                    return answer.json()
                assert answer.status_code == 503, answer.text
            time.sleep(0.02)
        raise AssertionError("neither replica answers")

    i = 0
    try:
        while not stop.is_set():
            id, reward = f"d{seed}.{i}", float(rng.integers(2))
            body = {"user": f"u{rng.integers(5)}", "arms": arms(rng, 5), "decision_id": id}
            heard.decisions[id] = ask("/v1/decisions", body)
            assert ask("/v1/decisions", body) == heard.decisions[id], "the same request was answered differently"
            ask("/v1/rewards", {"decision_id": id, "reward": reward})
            heard.rewards[id] = reward
            i += 1
    except AssertionError as error:
        heard.refused.append(str(error))


def drill_kills(url: str, folder: Path, without: tuple[str, ...] = (), kills: int = KILLS) -> int:
    """Kill one replica after the other under load; return how many events were acknowledged."""
    given = {"store": url, "models": models_folder(folder), "without": without}
    chance, heard, stop = random.Random(12), Heard(), threading.Event()
    replicas = [start(folder, **given), start(folder, **given)]
    threads = [threading.Thread(target=stubborn_client, args=(replicas, seed, stop, heard)) for seed in range(8)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(kills):
            if heard.refused:
                break
            time.sleep(0.3 + chance.random() * 0.7)
            place = chance.randrange(2)
            with psycopg.connect(url) as server:
                server.execute("select seq from head for update")  # nobody can write: nothing may be acknowledged
                told, until = len(heard.decisions), time.monotonic() + 20
                time.sleep(0.1)
                while without and len(heard.decisions) < told + 16 and time.monotonic() < until and not heard.refused:
                    time.sleep(0.01)  # in a control, until this replica has acknowledged something too
                replicas[place].kill()
            time.sleep(chance.random() * 0.3)
            replicas[place] = start(folder, **given)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for replica in replicas:
            replica.kill()
    assert heard.refused == [], heard.refused[0]
    check_chain(url)
    check_stored(url, heard)
    store = open_store(url)
    try:
        log = list(store.events(0))
        check_log(log, heard)
        check_order(World(store), log)
    finally:
        store.close()
    assert heard.rewards
    return len(heard.decisions) + len(heard.rewards)


def check_stored(url: str, heard: Heard) -> None:
    acknowledged = {*heard.decisions, *(f"r/{id}" for id in heard.rewards)}
    with psycopg.connect(url) as server:
        assert acknowledged <= {id for (id,) in server.execute("select id from event").fetchall()}, "lost"


def check_log(log: list[Row], heard: Heard) -> None:
    """Check that the log has no gap, and everything acknowledged exactly once with the acknowledged values."""
    assert [row.seq for row in log] == list(range(1, len(log) + 1))
    rows = {row.id: row for row in log}
    assert len(rows) == len(log)
    for id, answer in heard.decisions.items():
        taken = events.decode("decision", rows[id].body).taken[0]
        assert (taken.id, taken.propensity) == (answer["arm"], answer["propensity"])
    for id, reward in heard.rewards.items():
        assert events.decode("reward", rows[f"r/{id}"].body).reward == reward
    assert len(log) >= len(heard.decisions) + len(heard.rewards)


def check_order(world: World, log: list[Row]) -> None:
    """Check that each decision can be recomputed from the log up to its `seen`."""
    made = [(events.decode("decision", row.body), row) for row in log if row.kind == "decision"]
    made.sort(key=lambda one: one[0].seen)
    for body, row in made:
        assert body.seen < row.seq
        while world.seq < body.seen:
            world.apply(log[world.seq])
        assert row.user is not None
        user = world.user(row.user) or world.fold.start(body.recommender, row.model or 0, 0)
        context = events.floats(body.x).reshape(body.n_arms, -1)
        draw = begin_draw(world, user, row.model or 0, body.arms, context.shape[1])
        assert draw_arms(draw, body.arms, context, row.id, None) == body.taken, f"{row.id} is not what {body.seen} says"


def check_state(world: World, replicas: list[Server]) -> None:
    """Check that the state of both replicas equals the state replayed from the log."""
    world.load(upto=world.store.head())
    user = world.user("Ann")
    assert user is not None
    posterior = world.fold.posterior(user)
    assert posterior is not None
    wanted = (user.n_decisions, user.n_rewards, user.reward_sum, user.seq, posterior.tolist())
    for replica in replicas:
        with replica.client() as http:
            until = time.monotonic() + 60
            while (found := http.get("/v1/users/Ann").json())["seq"] < user.seq:
                assert time.monotonic() < until, "a replica does not catch up"
                time.sleep(0.05)
        names = ("n_decisions", "n_rewards", "reward_sum", "seq", "posterior")
        assert tuple(found[name] for name in names) == wanted


def test_two_replicas_and_one_user_make_one_log_that_explains_every_answer(
    postgres_database: str, tmp_path: Path
) -> None:
    drill(postgres_database, tmp_path)


def test_replicas_that_do_not_lock_the_log_fail(postgres_database: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"duplicate key|unique constraint|deadlock"):
        drill(postgres_database, tmp_path, without=("head",), rounds=6)


def test_nothing_acknowledged_is_lost_when_replicas_are_killed(postgres_database: str, tmp_path: Path) -> None:
    drill_kills(postgres_database, tmp_path)


def test_replicas_that_answer_before_they_write_lose_what_they_acknowledged(
    postgres_database: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"lost|answered differently|no decision"):
        drill_kills(postgres_database, tmp_path, without=("waiting",), kills=20 if LONG else 3)
