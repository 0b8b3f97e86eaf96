"""Drill 19: random requests in random order are answered as a model of fifty lines predicts, and never with 500."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lcb.serve.config.settings import NEW_RANGE
from lcb.serve.decide import decisions
from lcb.storage.models.folder import pack_models, save_models
from support.harness import LONG, classes, serving
from support.raw_requests import Answered, Local

N_FEATURES = 3
REWARDS = ("once", "first", "last", "sum")
RANGES = (None, (-3.0, 3.0), (-1e9, 1e9))  # of rewards; None: that of a new log
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Model:
    """A model of the service that predicts statuses and counts, without a log, features or random draws."""

    def __init__(self, rewards: str, reward_range: tuple[float, float]) -> None:
        self.rewards, self.active = rewards, 1
        self.low, self.high = reward_range
        self.items: dict[str, list[float]] = {}
        self.decisions: dict[str, tuple[str, Any, bytes]] = {}  # id -> user, request, answer
        self.slots: dict[str, tuple[str, dict[str, float]]] = {}  # reward_id -> decision, rewards by part
        self.pinned: dict[str, int] = {}

    def decide(self, id: str, body: Any) -> int:
        arms = body.get("arms")
        ids = list(self.items) if arms is None else [arm["id"] for arm in arms]
        if id in self.decisions:
            return 200 if self.decisions[id][1] == body else 422
        known = arms is None or "x" in arms[0] or all(one in self.items for one in ids)
        return 200 if ids and known and body.get("k", 1) <= len(ids) else 422

    def decided(self, id: str, body: Any, answer: bytes) -> None:
        self.decisions[id] = body["user"], body, answer
        self.pinned.setdefault(body["user"], self.active)
        said = json.loads(answer)
        for one in [slot["reward_id"] for slot in said.get("slots", [])] or [id]:
            self.slots.setdefault(one, (id, {}))

    def counts(self, reward_id: str) -> float | None:
        parts = self.slots[reward_id][1]
        return None if not parts else sum(parts.values()) if self.rewards == "sum" else parts[""]

    def reward(self, reward_id: str, reward: float, part: str | None) -> int:
        if reward_id not in self.slots:
            return 404
        if not self.low <= reward <= self.high or (part is not None and self.rewards != "sum"):
            return 422
        parts = self.slots[reward_id][1]
        place = part or ""
        if parts.get(place, reward) != reward and self.rewards in ("once", "sum"):
            return 409
        if self.rewards == "sum" and place not in parts and not self.low <= sum(parts.values()) + reward <= self.high:
            return 422
        if self.rewards == "last" or place not in parts:
            parts[place] = reward
        return 200

    def of(self, user: str) -> tuple[int, int, float]:
        """Return the user's number of decisions, number of rewards and sum of rewards."""
        slots = [one for one, (id, _) in self.slots.items() if self.decisions[id][0] == user]
        counted = [count for count in map(self.counts, slots) if count is not None]
        return len(slots), len(counted), sum(counted)

    def erase(self, user: str) -> None:
        self.slots = {one: kept for one, kept in self.slots.items() if self.decisions[kept[0]][0] != user}
        self.decisions = {id: kept for id, kept in self.decisions.items() if kept[0] != user}
        del self.pinned[user]


USERS = st.sampled_from(["ann", "bob", "Zoë/..%", "x" * 256])
IDS = st.sampled_from([f"d{n}" for n in range(6)])
ITEM_IDS = st.sampled_from([f"i{n}" for n in range(4)])
NUMBERS = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([-0.0, 1e-300, 1e9, -1e9, 0.1, 12345.678]))
VECTORS = st.lists(NUMBERS, min_size=N_FEATURES, max_size=N_FEATURES)
VECTOR_ARMS = st.lists(st.builds(lambda id, x: {"id": id, "x": x}, ITEM_IDS, VECTORS), min_size=1, max_size=4,
                       unique_by=lambda one: one["id"])  # fmt: skip
NAMED_ARMS = st.lists(ITEM_IDS.map(lambda id: {"id": id}), min_size=1, max_size=4, unique_by=lambda one: one["id"])
BODIES = st.fixed_dictionaries(
    {"user": USERS},
    optional={"arms": st.one_of(VECTOR_ARMS, VECTOR_ARMS, NAMED_ARMS), "k": st.integers(1, 4)},
)
RECOMMENDERS = [
    [{"name": "lcb"}],
    [{"name": "lcb"}, {"name": "own", "bandit": "linucb"}, {"name": "all", "bandit": "linucb", "scope": "everyone"}],
    [{"name": "mean", "bandit": "posterior-mean"}, {"name": "draws", "bandit": "lints", "scope": "everyone"},
     {"name": "even", "bandit": "uniform"}, {"name": "m", "bandit": "mucb"}, {"name": "mm", "bandit": "mmts"}],
]  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Sends random requests to a service in this process and to the model; restarts the service now and then."""

    @initialize(
        rewards=st.sampled_from(REWARDS),
        reward_range=st.sampled_from(RANGES),
        recommenders=st.sampled_from(RECOMMENDERS),
        warm=st.booleans(),
    )
    def start(
        self, rewards: str, reward_range: tuple[float, float] | None, recommenders: list[Any], warm: bool
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        place = Path(self.folder.name)
        given: dict[str, Any] = {"rewards": rewards, "recommenders": recommenders}
        if reward_range is not None:
            given["reward_range"] = reward_range
        if warm:
            models = classes(0, 3, N_FEATURES).with_covariance(np.tile(np.eye(N_FEATURES), (3, 1, 1)))
            save_models(models, place / "models")
            given["models"] = str(place / "models")
        self.local, self.model = Local(str(place / "lcb.db"), **given), Model(rewards, reward_range or NEW_RANGE)
        self.model.active = int(warm)

    def teardown(self) -> None:
        if hasattr(self, "local"):
            try:
                self.local.verify()
            finally:
                self.local.close()
                self.folder.cleanup()

    def send(self, method: str, path: str, body: Any = None) -> Answered:
        answered = self.local.ask(method, path, b"" if body is None else json.dumps(body).encode())
        assert answered.status < 500, answered
        assert (answered.status == 200) == (answered.type == "application/json"), answered
        return answered

    @rule(id=IDS, body=BODIES)
    def decide(self, id: str, body: Any) -> None:
        body = {**body, "decision_id": id}
        answered = self.send("POST", "/v1/decisions", body)
        assert answered.status == self.model.decide(id, body), answered
        if answered.status == 200:
            if id in self.model.decisions:
                assert answered.body == self.model.decisions[id][2]
            self.model.decided(id, body, answered.body)
            self.check_answer(body, answered.json)

    def check_answer(self, body: Any, said: Any) -> None:
        assert said["model"] in (0, self.model.pinned[body["user"]])
        assert abs(sum(said["distribution"]) - 1) < 1e-9
        taken = said.get("slots") or [said]
        assert len({slot["arm"] for slot in taken}) == body.get("k", 1)
        assert all(0 < slot["propensity"] <= 1 for slot in taken)
        assert taken[0]["propensity"] in said["distribution"]

    @precondition(lambda self: self.model.decisions)
    @rule(data=st.data())
    def ask_again(self, data: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.decisions)))
        _, body, answer = self.model.decisions[id]
        assert self.send("POST", "/v1/decisions", body).body == answer

    @rule(
        id=IDS,
        slot=st.sampled_from(["", "", "/0", "/1", "/3"]),
        reward=NUMBERS,
        part=st.sampled_from([None, None, "p"]),
    )
    def reward(self, id: str, slot: str, reward: float, part: str | None) -> None:
        body = {"decision_id": id + slot, "reward": reward} | ({} if part is None else {"reward_id": part})
        answered = self.send("POST", "/v1/rewards", body)
        assert answered.status == self.model.reward(id + slot, reward, part), answered
        if answered.status == 200:
            assert answered.json["reward"] == pytest.approx(self.model.counts(id + slot))

    @rule(
        items=st.dictionaries(ITEM_IDS, VECTORS, max_size=3),
        remove=st.lists(ITEM_IDS, max_size=2),
        replace=st.booleans(),
    )
    def put_items(self, items: dict[str, list[float]], remove: list[str], replace: bool) -> None:
        body = {"items": [{"id": id, "x": x} for id, x in items.items()], "remove": remove, "replace": replace}
        assert self.send("PUT", "/v1/items", body).status == 200
        left = {} if replace else {id: x for id, x in self.model.items.items() if id not in remove}
        self.model.items = left | items

    @rule(user=USERS)
    def look_at_somebody(self, user: str) -> None:
        answered = self.send("GET", f"/v1/users/{user}".replace("%", "%25"))
        assert answered.status == (200 if user in self.model.pinned else 404)
        if answered.status == 200:
            said = answered.json
            n_decisions, n_rewards, reward_sum = self.model.of(user)
            assert (said["n_decisions"], said["n_rewards"]) == (n_decisions, n_rewards)
            assert said["reward_sum"] == pytest.approx(reward_sum, rel=1e-9, abs=1e-5)
            assert said["model"] in (0, self.model.pinned[user])
            assert said["posterior"] is None or abs(sum(said["posterior"]) - 1) < 1e-9

    @rule(user=USERS)
    def erase(self, user: str) -> None:
        answered = self.send("DELETE", f"/v1/users/{user}".replace("%", "%25"))
        assert answered.status == (200 if user in self.model.pinned else 404)
        if answered.status == 200:
            self.model.erase(user)

    @rule(seed=st.integers(1, 3), active=st.booleans())
    def learn(self, seed: int, active: bool) -> None:
        if not self.local.service.world.state.n_features:
            return
        models = classes(seed, 3, N_FEATURES).with_covariance(np.tile(np.eye(N_FEATURES), (3, 1, 1)))
        added = self.local.service.add_model(*pack_models(models), active=active, reason="learned", n_users=1)
        version = self.local.run(added)
        self.model.active = version if active else self.model.active

    @rule(version=st.integers(0, 4))
    def activate(self, version: int) -> None:
        known = version in (0, *self.local.service.world.state.versions)
        answered = self.send("POST", f"/v1/models/{version}/activate", {"reason": "asked for"})
        assert answered.status == (200 if known else 404)
        self.model.active = version if known else self.model.active

    @rule()
    def restart(self) -> None:
        before = self.local.read_log_and_state()
        self.local.down()
        self.local.up()
        assert self.local.read_log_and_state() == before

    @invariant()
    def the_catalogue_is_the_same(self) -> None:
        if hasattr(self, "local"):
            found = self.local.service.world.state.catalogue.list_items()
            assert {item.id: list(item.x or ()) for item in found} == self.model.items
            assert self.local.service.journal.broken is None


def drill(examples: int, steps: int, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=not LONG, print_blob=True,
            suppress_health_check=list(HealthCheck), database=None, phases=phases,
        ),
    )  # fmt: skip


def test_the_service_does_what_the_model_does() -> None:
    drill(2000 if LONG else 25, 50 if LONG else 20)


def test_the_machine_sees_a_service_that_takes_any_body_for_a_known_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "compute_digest", lambda request: b"")
    with pytest.raises(AssertionError):
        drill(200, 25, (Phase.generate,))


CONFIG = """
[checks.positive_data_acceptance]
# what a schema cannot say: that text is printable, that features are as many as the service has
expected-statuses = ["2xx", "401", "403", "404", "409", "413", "422", "429"]

[checks.negative_data_rejection]  # 413: 10,000 made-up arms are more than 4 MB
expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "422", "429"]

[[operations]]
include-path = "/v1/trials/{recommender}"
parameters = { recommender = "lcb" }

[[operations]]  # an element that is refused is told in the answer, and the others are carried out
include-path = "/v1/decisions:batch"
checks.negative_data_rejection.expected-statuses = ["200", "400", "401", "403", "405", "413", "422", "429"]

[[operations]]
include-path = "/v1/rewards:batch"
checks.negative_data_rejection.expected-statuses = ["200", "400", "401", "403", "405", "413", "422", "429"]
"""


def schemathesis(folder: Path, examples: int, *more: str, without: tuple[str, ...] = ()) -> int:
    """Run all checks of schemathesis against all routes of a service, its pages too; return the number of requests."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    items = folder / "items.json"  # with one feature, so that generated vectors have the right size more often
    items.write_text(json.dumps({"items": [{"id": f"i{n}", "x": [float(n)]} for n in range(3)]}))
    limits = {"visitor_rate": 0.0, "open_visits": 1_000_000, "failures": 0.0}  # or most answers would be 429
    without = ("endless streams", *without)
    with serving(folder, without=without, items=str(items), pages=True, limits=limits) as server:
        ended = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{server.address}/openapi.json", "--checks", "all",
             "--max-examples", str(examples), "--seed", "19", "--no-shrink", "--no-color",
             "--suppress-health-check", "too_slow", *more],
            cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
        assert "unforeseen" not in server.output.read_text()
        with server.client() as http:
            paths = http.get("/openapi.json").json()["paths"]
    n_routes = sum(map(len, paths.values())) - 1  # schemathesis leaves out the document that it reads
    assert re.findall(r"Tested: (\d+)", ended.stdout) == [str(n_routes)], "a route was left out"
    (n_cases,) = re.findall(r"(\d[\d,]*) generated", ended.stdout)
    return int(n_cases.replace(",", ""))


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    n_cases = schemathesis(tmp_path, 1450 if LONG else 3)
    assert n_cases >= (20_000 if LONG else 600)


@pytest.mark.parametrize("path", ["/v1/rewards", "/page/answer"])
def test_schemathesis_sees_a_service_that_fails_on_what_it_cannot_read(tmp_path: Path, path: str) -> None:
    with pytest.raises(AssertionError, match="Server error"):
        schemathesis(tmp_path, 1, "--phases", "coverage", "--include-path", path, without=("words",))
