"""Several replicas on one PostgreSQL, and erasures while events are being applied."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lcb.errors import StoreError, StoreUnavailable
from lcb.messages import Arm, DecisionRequest, ItemRequest, ItemsRequest, RewardRequest
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Limits, Settings
from lcb.serve.decide_many import reward_many
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.state.world import World
from lcb.storage.store.base import Store
from lcb.storage.store.open_store import open_store
from support.harness import arms, models_folder
from support.tampering import run_sql

MIXED = (
    RecommenderSpec("lcb"),
    RecommenderSpec("population", "linucb", scope="everyone"),
    RecommenderSpec("own", "lints"),
)


class Watched:
    """A store that tells when it is used from the thread of the event loop, and can be held up."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.loop_thread: int | None = None
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **more: Any) -> Any:
            if threading.get_ident() == self.loop_thread and name != "close":
                self.calls.append(name)
            if name in self.before:
                self.before[name]()
            return found(*arguments, **more)

        return call


@asynccontextmanager
async def replica(url: str, folder: Path, **more: Any) -> AsyncIterator[Service]:
    store = Watched(open_store(url))
    settings = Settings(**{"store": url, "models": models_folder(folder), "recommenders": MIXED, **more})
    service = await asyncio.to_thread(Service, settings, store)
    store.loop_thread = threading.get_ident()
    service.start()
    try:
        yield service
    finally:
        await service.stop()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def asked(user: str, seed: int = 0, **more: Any) -> DecisionRequest:
    made = arms(np.random.default_rng(seed), n_arms=5)
    return DecisionRequest(user, [Arm(one["id"], one["x"]) for one in made], **more)


async def decided(service: Service, user: str, seed: int = 0, **more: Any) -> str:
    return msgspec.json.decode(await service.decide(asked(user, seed, **more)))["decision_id"]


async def until(holds: Callable[[], bool], seconds: float = 40) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def same(world: World, other: World) -> None:
    """Byte for byte the same users and shared states; and the same tallies."""
    assert world.seq == other.seq
    assert (world.n_started, world.n_rewarded, world.n_events) == (other.n_started, other.n_rewarded, other.n_events)
    assert +Counter(world.users_per_model) == +Counter(other.users_per_model)
    assert {name: state.tobytes() for name, state in world.shared.states.items()} == {
        name: state.tobytes() for name, state in other.shared.states.items()
    }
    for name in {*world.tallies, *other.tallies}:
        assert world.tally(name).pack() == other.tally(name).pack()
    counts = [
        {(model, steps): n for model, of in found.concentration.items() for steps, n in of.items() if n}
        for found in (world, other)
    ]
    assert counts[0] == counts[1]
    for name in world.cache:
        mine, theirs = world.cache.peek(name), other.user(name)
        assert theirs is not None
        assert mine.pack() == theirs.pack()


def folded(url: str) -> World:
    """The log, folded from its beginning by somebody else."""
    world = World(open_store(url))
    world.load(upto=world.store.head())
    return world


def test_an_idle_replica_sees_what_another_wrote(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            id = await decided(one, "Ann")
            await one.reward(RewardRequest(id, 1.0))
            await until(lambda: other.world.seq == one.world.seq)
            assert (await other.get_user("Ann")).pack() == (await one.get_user("Ann")).pack()
            assert other.world.n_started == 1

    run(work())


def test_a_reward_is_taken_by_a_replica_that_has_not_met_its_decision(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            for i in range(20):
                id = await decided(one, f"u{i % 3}", i)
                await other.reward(RewardRequest(id, 1.0))
                await one.reward(RewardRequest(id, 1.0))  # again, elsewhere: the same answer
                with pytest.raises(Problem, match="the first one stands"):
                    await one.reward(RewardRequest(id, 0.0))
            with pytest.raises(Problem, match="no decision"):
                await other.reward(RewardRequest("nothing", 1.0))
            rewards = [row for row in one.store.store.events(0) if row.kind == "reward"]
            assert len(rewards) == 20

    run(work())


def test_one_decision_id_sent_to_both_at_once_is_decided_once(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            for i in range(10):
                request = asked("Ann", i, decision_id=f"d{i}")
                first, second = await asyncio.gather(one.decide(request), other.decide(request))
                assert first == second
                with pytest.raises(Problem, match="another request"):
                    await other.decide(asked("Ann", i + 1, decision_id=f"d{i}"))

    run(work())


def test_two_first_requests_of_different_sizes_leave_one_size(postgres_database: str, tmp_path: Path) -> None:
    """Each is well formed where the log does not say yet how many features there are; whoever is second is refused."""

    def sized(user: str, n_features: int) -> DecisionRequest:
        return DecisionRequest(user, [Arm(id, [1.0] * n_features) for id in "ab"])

    async def work() -> None:
        async with (
            replica(postgres_database, tmp_path, models=None) as one,
            replica(postgres_database, tmp_path, models=None) as other,
        ):
            answers = await asyncio.gather(
                one.decide(sized("Ann", 3)), other.decide(sized("Bob", 4)), return_exceptions=True
            )
            won = int(isinstance(answers[0], Problem))
            assert isinstance(answers[won], bytes), answers
            assert isinstance(answers[1 - won], Problem)
            assert answers[1 - won].field == "arms[0].x"
            for service in (one, other):
                await service.decide(sized("Cid", 3 + won))
            await other.put_items(ItemsRequest([ItemRequest("c", [0.0] * (3 + won))]))
            assert one.journal.broken is None is other.journal.broken

    run(work())


@pytest.mark.parametrize("rewards", ["once", "last", "sum"])
def test_the_event_loop_never_reads_from_a_far_store(postgres_database: str, tmp_path: Path, rewards: str) -> None:
    """Caches of three users for twelve, rewards that change, a person erased: all of it from memory or in threads."""

    async def client(services: list[Service], seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in range(25):
            here, there = services[rng.integers(2)], services[rng.integers(2)]
            user = f"u{rng.integers(12)}"
            given = {"decision_id": f"d{seed}.{i}"} if rng.random() < 0.3 else {}
            id = await decided(here, user, i, **given)
            try:
                await there.reward(RewardRequest(id, 0.5))
                if rewards != "once":
                    await here.reward(RewardRequest(id, 0.25, "more" if rewards == "sum" else None))
            except Problem as problem:
                if problem.status != 404:  # erased meanwhile
                    raise
            if rng.random() < 0.04:
                try:
                    await there.erase(user)
                except Problem as problem:
                    if problem.status != 404:
                        raise
            await here.get_user(user)

    async def work() -> None:
        more = {"limits": Limits(cached_bytes=1500), "rewards": rewards}
        async with (
            replica(postgres_database, tmp_path, **more) as one,
            replica(postgres_database, tmp_path, **more) as other,
        ):
            await asyncio.gather(*(client([one, other], seed) for seed in range(8)))
            await until(lambda: one.world.seq == other.world.seq == one.store.store.head())
            assert one.journal.broken is other.journal.broken is None
            assert (one.store.calls, other.store.calls) == ([], [])
            assert len(one.world.cache) <= 3
            world = folded(postgres_database)
            same(one.world, world)
            same(other.world, world)
            world.store.close()

    run(work())


def test_replicas_that_come_up_at_once_share_one_log(postgres_database: str, tmp_path: Path) -> None:
    settings = Settings(store=postgres_database, models=models_folder(tmp_path), recommenders=MIXED)

    async def work() -> None:
        made = (asyncio.to_thread(lambda: Service(settings, open_store(postgres_database))) for _ in range(4))
        services = await asyncio.gather(*made)
        assert len({service.world.state.seed for service in services}) == 1
        assert {len(service.world.state.versions) for service in services} == {1}
        for service in services:
            service.store.close()

    run(work())


# Users who are read while the log moves


def test_a_user_read_while_the_log_moves_is_never_taken_in_stale(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            await decided(one, "Ann")
            await until(lambda: other.world.seq == one.world.seq)
            other.world.cache._users.clear()
            go, there = threading.Event(), threading.Event()

            def hold() -> None:
                if threading.current_thread().name.startswith("lcb-read"):
                    there.set()
                    go.wait(10)

            other.store.before["newest_of"] = hold
            reading = asyncio.create_task(other.get_user("Ann"))
            await asyncio.to_thread(there.wait, 10)
            await decided(one, "Ann", 1)
            await until(lambda: other.world.seq == one.world.seq)
            go.set()
            user = await reading
            assert user is not None
            assert user.n_decisions == 2
            assert other.store.calls == []

    run(work())


def test_a_newcomer_read_while_their_first_decision_is_made_elsewhere_is_not_new(
    postgres_database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            go, there = threading.Event(), threading.Event()

            def hold() -> None:
                if threading.current_thread().name.startswith("lcb-read"):
                    there.set()
                    go.wait(10)

            other.store.before["newest_of"] = hold
            deciding = asyncio.create_task(decided(other, "Ann"))
            await asyncio.to_thread(there.wait, 10)
            await decided(one, "Ann", 1)
            await until(lambda: other.world.seq == one.world.seq)
            go.set()
            await deciding
            assert other.world.n_started == 1
            assert (await other.get_user("Ann")).n_decisions == 2

    run(work())


def test_a_store_that_does_not_answer_is_asked_by_few_and_refuses_the_rest_at_once(
    postgres_database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path, limits=Limits(patience=0.5)) as one:
            go = threading.Event()
            one.store.before["newest_of"] = lambda: go.wait(10)
            loop = asyncio.get_running_loop()
            began = loop.time()
            asks = [asyncio.create_task(decided(one, f"u{i}")) for i in range(200)]
            done = await asyncio.gather(*asks, return_exceptions=True)
            took = loop.time() - began
            go.set()
            assert all(isinstance(problem, Problem) and problem.status == 503 for problem in done)
            assert all(problem.retry_after == 1 for problem in done)
            assert sum("was not free for 0.2 s" in str(problem) for problem in done) == 200 - 64
            assert took < 5
            del one.store.before["newest_of"]
            await decided(one, "Ann")

    run(work())


def test_a_batch_of_newcomers_waits_for_places_to_read(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one:
            await decided(one, "first")
            done = await asyncio.gather(*(decided(one, f"u{i}") for i in range(200)), return_exceptions=True)
            assert [problem for problem in done if isinstance(problem, BaseException)] == []
            assert one._reads._threads.n_waiting == 0

    run(work())


# People who are erased


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "lcb.db") if request.param == "sqlite" else request.getfixturevalue("postgres_database")


def test_what_was_made_for_a_person_before_an_erasure_is_not_written_after_it(url: str, tmp_path: Path) -> None:
    """A reward and a decision that are under way when the erasure is."""

    async def work() -> None:
        async with replica(url, tmp_path) as one:
            id = await decided(one, "Ann")
            go, there = threading.Event(), threading.Event()

            def hold() -> None:
                there.set()
                go.wait(10)

            one.store.before["erase"] = hold
            erasing = asyncio.create_task(one.erase("Ann"))
            await asyncio.to_thread(there.wait, 10)
            rewarding = asyncio.create_task(one.reward(RewardRequest(id, 1.0)))
            deciding = asyncio.create_task(decided(one, "Ann", 1))
            await asyncio.sleep(0.2)
            go.set()
            assert await erasing == 1
            with pytest.raises(Problem, match="no decision"):
                await rewarding
            await deciding
            assert one.journal.broken is None
            await decided(one, "Ben")
            events = list(one.store.store.events(0))
            erased = next(row.seq for row in events if row.kind == "erase")
            assert [(row.kind, row.user) for row in events if row.seq > erased] == [
                ("decision", "Ann"), ("decision", "Ben"),
            ]  # fmt: skip
            (again,) = (row for row in events if row.user == "Ann")
            assert msgspec.msgpack.decode(again.body)[1] >= erased  # made from the log without them
            world = folded(url)
            same(one.world, world)
            world.store.close()

    run(work())


def test_erasing_a_person_on_one_replica_erases_them_on_all(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            id = await decided(one, "Ann")
            await other.reward(RewardRequest(id, 1.0))
            late = await decided(other, "Ann", 1)
            await decided(other, "Ben")
            await until(lambda: other.world.seq == one.world.seq)
            assert "Ann" in other.world.cache
            await one.erase("Ann")
            with pytest.raises(Problem, match="no decision"):
                await other.reward(RewardRequest(late, 1.0))
            await until(lambda: other.world.seq == one.world.seq)
            assert "Ann" not in other.world.cache
            assert "Ben" in other.world.cache
            assert await other.get_user("Ann") is None
            assert other.world.n_started == 1
        store = open_store(postgres_database)  # after both have written their snapshots
        assert store.snapshot("user/Ann") is None
        assert store.snapshot("user/Ben") is not None
        store.close()

    run(work())


def test_a_person_erased_on_one_replica_is_shown_by_no_other_from_then_on(
    postgres_database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            users = [f"u{i}" for i in range(5)]
            for user in users:
                await decided(one, user)
            await until(lambda: other.world.seq == one.world.seq)
            n_read = 0

            def count() -> None:
                nonlocal n_read
                n_read += threading.current_thread().name == "lcb-journal"

            other.store.before["events"] = count
            for user in users:
                assert (await other.get_user(user)).n_decisions == 1  # in memory
                await one.erase(user)
                assert await asyncio.gather(*(other.get_user(user) for _ in range(50))) == [None] * 50
            assert n_read < 50  # requests of one moment catch up together
            assert (await other.decide(asked(users[0]))) is not None  # as a newcomer
            assert (await one.get_user(users[0])).n_decisions == 1

    run(work())


def test_a_person_is_not_shown_from_memory_while_nobody_can_say_that_they_are_still_there(
    postgres_database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one:
            await decided(one, "Ann")

            def gone() -> None:
                raise StoreUnavailable("gone")

            one.store.before["head"] = gone
            with pytest.raises(StoreUnavailable):
                await one.get_user("Ann")
            del one.store.before["head"]
            assert (await one.get_user("Ann")).n_decisions == 1
            one.store.store.head = lambda: one.world.seq + 1  # its event is missing
            with pytest.raises(Problem, match=r"its head is \d+; verify the log"):
                await one.get_user("Ann")

    run(work())


def test_a_decision_read_for_a_reward_while_its_person_is_erased_takes_none(
    postgres_database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            id = await decided(one, "Ann")
            await until(lambda: other.world.seq == one.world.seq)
            other.slots._slots.clear()
            go, there = threading.Event(), threading.Event()

            def hold() -> None:  # the decision is read, the rewards it had are not
                if threading.current_thread().name.startswith("lcb-read"):
                    there.set()
                    go.wait(10)

            other.store.before["events_between"] = hold
            rewarding = asyncio.create_task(other.reward(RewardRequest(id, 1.0)))
            await asyncio.to_thread(there.wait, 10)
            await one.erase("Ann")
            await until(lambda: other.world.seq == one.world.seq)
            go.set()
            with pytest.raises(Problem, match="no decision"):
                await rewarding
            assert [row.kind for row in one.store.store.events(0)][-1] == "erase"
            assert other.journal.broken is None

    run(work())


def test_a_person_erased_while_their_event_is_on_its_way_to_a_replica_is_counted_nowhere(
    postgres_database: str, tmp_path: Path
) -> None:
    """The other replica has read the event, and finds nothing of its user when it comes to apply it."""

    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            id = await decided(one, "Ann")
            await until(lambda: other.world.seq == one.world.seq)
            other.world.cache._users.clear()
            go, there = threading.Event(), threading.Event()

            def hold() -> None:
                if threading.current_thread().name.startswith("lcb-bring"):
                    there.set()
                    go.wait(10)

            other.store.before["snapshots"] = hold
            await one.reward(RewardRequest(id, 1.0))
            await asyncio.to_thread(there.wait, 10)
            await one.erase("Ann")
            go.set()
            await until(lambda: other.world.seq == one.world.seq)
            assert other.journal.broken is None
            world = folded(postgres_database)
            same(other.world, world)
            assert other.world.n_started == 0
            world.store.close()

    run(work())


def test_a_snapshot_of_the_world_between_an_erased_event_and_its_erasure_loses_nothing(
    postgres_database: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one:
            await decided(one, "Ann")
            await decided(one, "Ben")
            await one.erase("Ann")
            head = one.world.seq
        store = open_store(postgres_database)
        store.forget_snapshots()
        halfway = World(store)
        halfway.load(upto=head - 1)
        store.append([], head, [halfway.snapshot()])
        world, whole = World(store), folded(postgres_database)
        world.load()
        same(world, whole)
        assert world.n_started == 1
        store.close()
        whole.store.close()

    run(work())


# A store that goes away and comes back


def test_users_who_cannot_be_read_are_read_when_the_store_is_back(postgres_database: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            times = 0

            def gone() -> None:
                nonlocal times
                times += 1
                if times < 4:
                    raise StoreUnavailable("gone")

            other.store.before["snapshots"] = gone
            for i in range(3):
                await decided(one, f"u{i}")
            await until(lambda: other.world.seq == one.world.seq)
            assert times >= 4
            assert other.world.n_started == 3

    run(work())


# Batches


def test_a_batch_of_rewards_for_unknown_decisions_is_looked_up_at_once(postgres_database: str, tmp_path: Path) -> None:
    """Each would take a read in a thread, and threads that read hold up the event loop."""

    async def work() -> None:
        async with replica(postgres_database, tmp_path) as one, replica(postgres_database, tmp_path) as other:
            known = await decided(other, "Ann")
            n_reads, pool = 0, one.store._pool
            read = pool.read

            def count(*given: Any) -> Any:
                nonlocal n_reads
                n_reads += 1
                return read(*given)

            pool.read = count
            requests = [RewardRequest(f"unknown{i}", 1.0) for i in range(99)]
            *refused, answer = await reward_many(one, [*requests, RewardRequest(known, 1.0)])
            assert [isinstance(problem, Problem) and problem.status for problem in refused] == [404] * 99
            assert "no decision 'unknown7'" in str(refused[7])
            assert isinstance(answer, bytes)
            assert n_reads < 30

    run(work())


ASKED_OF_A_LOST_DECISION = {
    "a reward": lambda service: service.reward(RewardRequest("lost", 1.0)),
    "rewards in a batch": lambda service: reward_many(service, [RewardRequest("lost", 1.0), RewardRequest("no", 1.0)]),
    "its user": lambda service: service.get_user("Bob"),
}


@pytest.mark.parametrize("name", ASKED_OF_A_LOST_DECISION)
def test_nobody_is_told_that_there_is_no_such_decision_or_user_by_a_server_that_has_lost_it(
    new_postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also before the journal has looked at the log, which it knows from then on."""

    async def work() -> None:
        async with replica(new_postgres_database, tmp_path) as one, replica(new_postgres_database, tmp_path) as other:
            await decided(one, "Ann")
            head = run_sql(new_postgres_database, "select seq, link from head")[0]
            await decided(one, "Bob", decision_id="lost")
            await until(lambda: other.world.seq == one.world.seq)
            await until(lambda: other.store.store._known.head.seq == one.world.seq)
            for service in (one, other):
                monkeypatch.setattr(service.journal, "_catch_up", lambda: None)
            run_sql(new_postgres_database, f"delete from event where seq > {head[0]}")
            run_sql(new_postgres_database, "update head set seq = ?, link = ?", head)
            other.slots.forget("lost")
            with pytest.raises(StoreError, match="is not the one that this service has applied") as told:
                await ASKED_OF_A_LOST_DECISION[name](other)
            assert told.value.replaced
            assert other.journal.lost is not None

    run(work())
