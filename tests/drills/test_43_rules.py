"""Drill 43: rules of a decision (exclude, seen, at_most) hold through kills and erasures and on every replica; the
propensities are those after the rules, and the log alone gives them back.  Controls: builds without a rule must fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from lcb.arrays import pack_bools, unpack_bools
from lcb.messages import DecisionRequest, ItemRequest, ItemsRequest, RewardRequest
from lcb.serve import events
from lcb.serve.audit.export import export
from lcb.serve.audit.verify import verify
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings
from lcb.serve.decide import drawing
from lcb.serve.decide.decisions import compute_digest
from lcb.serve.decide.rules import Rules
from lcb.serve.errors import Problem
from lcb.serve.service import Service
from lcb.serve.state.seen_items import Seen
from lcb.storage.store.open_store import open_store
from support.harness import LONG
from support.inside import Inside, sqlite

N = 600 if LONG else 80
CATEGORIES = ("sport", "arts", "science")
ITEMS = [
    {"id": f"i{j}", "categories": [CATEGORIES[j % 3], *([CATEGORIES[(j + 1) % 3]] if j % 4 == 0 else [])]}
    for j in range(12)
]
OF = {one["id"]: set(one["categories"]) for one in ITEMS}
EXPLORING = Settings(
    recommenders=(RecommenderSpec("lcb", "learned-classes", uniform=0.3),),
    categories=CATEGORIES,
    pages=False,
    rewards="last",
)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    with Inside(sqlite(tmp_path / "lcb.db"), EXPLORING) as made:
        made.items(*ITEMS)
        yield made


class Truth:
    """What users were shown and took, counted beside the service."""

    def __init__(self) -> None:
        self.shown: dict[str, set[str]] = {}
        self.rewards: dict[str, dict[str, float]] = {}  # user -> slot -> reward
        self.item: dict[str, str] = {}  # slot -> item

    def find(self, user: str, rule: str | None) -> set[str]:
        if rule is None:
            return set()
        if rule == "exclude":
            return set(self.shown.get(user, ()))
        return {self.item[slot] for slot, reward in self.rewards.get(user, {}).items() if reward > 0}


def play(inside: Inside, truth: Truth, seed: int, n: int = N) -> int:
    """Send requests with random rules and hold each answer against the truth; return how many were answered."""
    rng = np.random.default_rng(seed)
    answered = 0
    for i in range(n):
        user = f"u{rng.integers(4)}"
        given: dict[str, Any] = {"decision_id": f"s{seed}-{i}"}
        if rng.random() < 0.5:
            given["exclude"] = [f"i{j}" for j in rng.choice(14, 3)]  # i12 and i13 are not in the catalogue
        if rng.random() < 0.6:
            given["seen"] = str(rng.choice(["exclude", "exclude-taken"]))
        if rng.random() < 0.5:
            given["k"] = int(rng.integers(1, 6))
            if rng.random() < 0.6:
                given["at_most"] = int(rng.integers(1, 3))
        out = truth.find(user, given.get("seen")) | set(given.get("exclude", ()))
        if set(OF) <= out:
            with pytest.raises(Problem, match="and none is left"):
                inside.decide(user, **given)
            inside.erase(user)  # who has seen everything begins again
            for of_user in (truth.shown, truth.rewards):
                of_user.pop(user, None)
            continue
        answer = inside.decide(user, **given)
        answered += 1
        slots = answer.get("slots") or [{"arm": answer["arm"], "reward_id": answer["decision_id"]}]
        check_list([one["arm"] for one in slots], out, given)
        on_offer = [p > 0 for p in answer["distribution"]]
        assert on_offer == [id not in out for id in OF]  # the uniform share reaches every arm that is left
        assert sum(answer["distribution"]) == pytest.approx(1, abs=1e-12)
        for one in slots:
            truth.shown.setdefault(user, set()).add(one["arm"])
            truth.item[one["reward_id"]] = one["arm"]
            if rng.random() < 0.7:
                reward(inside, truth, user, one["reward_id"], float(rng.random() < 0.5))
        if truth.rewards.get(user) and rng.random() < 0.2:  # a reward that changes, also back to nothing
            slot = str(rng.choice(list(truth.rewards[user])))
            reward(inside, truth, user, slot, 1 - truth.rewards[user][slot])
    return answered


def reward(inside: Inside, truth: Truth, user: str, slot: str, value: float) -> None:
    inside.reward(slot, value)
    truth.rewards.setdefault(user, {})[slot] = value


def check_list(shown: list[str], out: set[str], given: dict[str, Any]) -> None:
    assert out.isdisjoint(shown)
    assert len(set(shown)) == len(shown)
    left = set(OF) - out - set(shown)
    if (most := given.get("at_most")) is not None:
        counts = Counter(one for id in shown for one in OF[id])
        assert max(counts.values()) <= most
        left = {id for id in left if all(counts[one] < most for one in OF[id])}
    assert len(shown) == given.get("k", 1) or not left  # a list is short only if nothing could follow


def play_with_kills(inside: Inside) -> list[str]:
    """Play, with a process that is lost twice, once with snapshots; return what verification finds."""
    truth = Truth()
    for i in range(3):
        assert play(inside, truth, seed=i, n=N // 3) > N // 6
        if i == 1:
            inside.stop()
            inside.start()
        else:
            inside.crash()
    return list(map(str, verify(inside.store).differences))


def test_rules_hold_and_every_decision_recomputes(inside: Inside) -> None:
    assert play_with_kills(inside) == []


@pytest.mark.parametrize("broken", ["seen", "taken", "at_most"])
def test_without_a_rule_the_drill_fails_and_the_log_shows_it(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    whole = Seen.find
    with monkeypatch.context() as patch:
        if broken == "at_most":
            patch.setattr(Rules, "narrow", lambda self, left, taken, arm: left[left != arm])
        elif broken == "taken":
            patch.setattr(Seen, "find", lambda self, rule: whole(self, "exclude"))  # more than was asked for
        else:
            patch.setattr(Seen, "find", lambda self, rule: ())
        with pytest.raises(AssertionError):
            play_with_kills(inside)
    assert verify(inside.store).differences != []


def test_a_log_with_other_arms_left_is_found(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Rules.record

    def record(self: Rules, left: list[Any]) -> events.RulesBody:
        return whole(self, [one[:-1] if len(one) > 1 else one for one in left])

    monkeypatch.setattr(Rules, "record", record)
    inside.decide("ann", exclude=["i0"])
    monkeypatch.undo()
    assert "the arms that the rules left" in str(verify(inside.store).differences[0])


# Propensities


def draw_many(inside: Inside, n: int) -> float:
    """Return how far frequencies of the first two slots are from the propensities, in standard deviations."""
    world = inside.service.world
    request = DecisionRequest("ann", None, k=2, exclude=["i1", "i2"], at_most=1)
    begun = inside.service.decisions.begin(request)
    assert not isinstance(begun, bytes)
    assert begun.rules is not None
    context, ids = world.state.catalogue.matrix(), world.state.catalogue.ids
    first: Counter[int] = Counter()
    weights = np.zeros(len(ids))  # IPS of "this arm is in the second slot", under the uniform policy there
    p = np.zeros(len(ids))
    for i in range(n):
        (one, two), rules = drawing.draw_under_rules(begun.draw, ids, context, f"d{i}", begun.rules)
        first[one.arm] += 1
        p = one.full_distribution(len(ids))
        left = unpack_bools(rules.left[1], len(ids))
        weights[two.arm] += 1 / two.propensity / left.sum()
        assert two.full_distribution(len(ids))[~left].sum() == 0
    frequency = np.array([first[a] for a in range(len(ids))]) / n
    far = np.abs(frequency - p) / np.sqrt(np.maximum(p * (1 - p), 1e-12) / n)
    total = abs(weights.sum() / n - 1) * np.sqrt(n)  # the weights average to 1 if the propensities are true
    return float(max(far.max(), total / 5))


def test_propensities_are_those_after_the_rules(inside: Inside) -> None:
    assert draw_many(inside, 20_000 if LONG else 1_000) < 4.5


def test_propensities_from_before_the_rules_are_no_frequencies(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = drawing._draw_slot

    def draw(of: Any, state: Any, ids: Any, context: Any, left: Any, name: str) -> Any:
        one, arm = whole(of, state, ids, context, left, name)
        _, before = whole(of, state, ids, context, np.arange(len(ids)), name)
        p = before.full_distribution(len(ids))
        arm.propensity, arm.distribution = float(p[arm.arm]), before.distribution
        return one, arm

    monkeypatch.setattr(drawing, "_draw_slot", draw)
    with pytest.raises(AssertionError):
        assert draw_many(inside, 1_000) < 4.5


# Exports, erasure, replicas, errors


def test_an_export_has_what_was_really_on_offer(inside: Inside, tmp_path: Path) -> None:
    answer = inside.decide("ann", k=3, exclude=["i3"], at_most=1)
    inside.decide("ann", seen="exclude")
    inside.decide("bob", exclude=["elsewhere"])
    export(inside.store, tmp_path / "out.parquet", missing=0.0)
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    shown: list[str] = []
    for row in rows[: len(answer["slots"])]:
        full = {one for id in shown for one in OF[id]}
        assert row["offered"] == [id for id in OF if id != "i3" and id not in shown and full.isdisjoint(OF[id])]
        assert sum(row["distribution"]) == pytest.approx(1)
        assert row["distribution"][row["offered"].index(row["item"])] == row["propensity"]
        shown.append(row["item"])
    again, other = rows[len(shown) :]
    assert again["offered"] == [id for id in OF if id not in shown]
    assert other["offered"] is None  # everything


def test_what_a_caller_has_shown_against_the_rules_is_refused(inside: Inside) -> None:
    inside.decide("ann", arms=[{"id": "i1"}])
    for rule in ({"exclude": ["i1"]}, {"seen": "exclude"}):
        with pytest.raises(Problem, match="'i1', which the rules of this request rule out; leave out") as told:
            inside.decide("ann", chosen="i1", chosen_propensity=1.0, **rule)
        assert (told.value.status, told.value.field) == (422, "chosen")
    assert inside.decide("ann", chosen="i2", chosen_propensity=1.0, exclude=["i1"])["arm"] == "i2"


def test_an_export_leaves_out_what_older_logs_have_against_the_rules(inside: Inside, tmp_path: Path) -> None:
    """One such decision made `lcb evaluate` refuse the whole table; so did a propensity of almost 0."""
    inside.decide("ann", chosen="i1", chosen_propensity=1.0, exclude=["i3"], decision_id="ruled-out")
    inside.decide("ann", chosen="i2", chosen_propensity=1.0, decision_id="tiny")
    for i in range(8):
        inside.decide(f"user{i}", exclude=["i3"], decision_id=f"d{i}")
    for id in ("ruled-out", "tiny", *(f"d{i}" for i in range(8))):
        inside.reward(id, float(id in ("d1", "d3")))

    def rewrite(id: str, change: Any) -> None:
        row = inside.store.event(id)
        assert row is not None
        change(body := events.decode(row.kind, row.body))
        with sqlite3.connect(inside.store.url) as connection:
            connection.execute("update event set body = ? where id = ?", (events.encode(body), id))
        connection.close()

    rewrite("ruled-out", lambda body: setattr(body.rules, "left", [pack_bools(np.array([i == 0 for i in range(6)]))]))
    rewrite("tiny", lambda body: setattr(body, "chosen", msgspec.structs.replace(body.chosen, propensity=1e-300)))
    done = export(inside.store, tmp_path / "out.parquet")
    rows = {row["decision_id"]: row for row in pq.read_table(tmp_path / "out.parquet").to_pylist()}
    assert (done.n_ruled_out, done.n_unknown) == (1, 1)
    assert "ruled-out" not in rows
    assert rows["tiny"]["propensity"] is None
    assert done.uniform is not None
    assert done.uniform.n_events == 8
    assert 0.5 < done.uniform.mean_weight < 2


def test_rules_that_leave_no_arm_say_what_came_and_what_to_do(inside: Inside) -> None:
    arms = [{"id": "i0"}, {"id": "i1"}]
    inside.decide("ann", arms=arms[:1])

    def refuse(**given: Any) -> Problem:
        with pytest.raises(Problem) as refused:
            inside.decide("ann", **given)
        return refused.value

    both = refuse(arms=arms, exclude=["i1"], seen="exclude")
    assert both.field == "seen"
    assert both.detail.startswith("2 arms came, exclude rules out 1 and seen rules out 1 more, and none is left; ")
    assert refuse(arms=arms[1:], exclude=["i1"]).field == "exclude"
    assert refuse(at_most=1).field == "at_most"
    foreign = [{"id": "new", "x": [1.0, 0.0, 0.0]}]
    assert "'new' is not in the catalogue" in refuse(arms=foreign, k=1, at_most=1).detail
    assert +inside.service.decisions.n_ruled == {"none": 2}


def test_a_request_without_rules_has_the_digest_of_earlier_versions() -> None:
    names = ("user", "arms", "x", "k", "decision_id", "chosen", "chosen_propensity")
    request = DecisionRequest("ann", None, k=2, decision_id="d")
    fields = {name: getattr(request, name) for name in names}
    assert compute_digest(request) == digest_of(fields)
    assert compute_digest(DecisionRequest("ann", None, k=2, decision_id="d", seen="exclude")) != digest_of(fields)


def digest_of(fields: dict[str, Any]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(fields), digest_size=16).digest()


def test_replicas_do_not_show_again_what_another_has_shown(postgres_database: str) -> None:
    async def work() -> None:
        services = []
        for _ in range(2):
            made = replace(EXPLORING, store=postgres_database)
            services.append(await asyncio.to_thread(Service, made, open_store(postgres_database)))
            services[-1].start()
        await services[0].put_items(ItemsRequest([ItemRequest(one["id"], None, one["categories"]) for one in ITEMS]))
        shown: set[str] = set()
        for i in range(len(ITEMS)):
            here, other = services[i % 2], services[(i + 1) % 2]
            async with asyncio.timeout(60):
                while here.world.seq < other.world.seq:
                    await asyncio.sleep(0.01)
            answer = msgspec.json.decode(await here.decide(DecisionRequest("ann", None, seen="exclude")))
            await here.reward(RewardRequest(answer["decision_id"], 1.0))
            assert answer["arm"] not in shown
            shown.add(answer["arm"])
        for service in services:
            await service.stop()
        store = open_store(postgres_database)
        assert verify(store).differences == []
        store.close()

    asyncio.run(asyncio.wait_for(work(), 120))
