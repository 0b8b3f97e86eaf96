"""Drill 0: a seeded day of service in one process with faults of all kinds; every broken protection is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lcb.errors import LCBError
from lcb.serve import events
from lcb.serve.service import Service
from lcb.storage.store.base import Row, Snapshot
from support.harness import LONG
from support.simulation import Defect, Simulation, simulate

STEPS = 1_000_000 if LONG else 3_000
SHORT = 1_000


def test_nothing_acknowledged_is_lost_and_everything_can_be_made_again(tmp_path: Path) -> None:
    found = simulate(tmp_path / "lcb.db", 0, STEPS, n_users=max(200, STEPS // 200))
    assert found.n["steps"] == STEPS
    assert min(found.n.values()) > 0, f"something never happened: {found.n}"


@pytest.mark.parametrize("rule", ["first", "sum", "last"])
def test_so_it_is_for_every_rule_of_rewards(tmp_path: Path, rule: str) -> None:
    simulate(tmp_path / "lcb.db", 1, 20_000 if LONG else 1_000, rule=rule)


def test_the_same_seed_gives_the_same_log(tmp_path: Path) -> None:
    runs = [Simulation(tmp_path / f"{i}.db", seed).run(1_000) for i, seed in enumerate((7, 7, 8))]
    assert runs[0] == runs[1] != runs[2]


# Services that are broken on purpose


def answers_before_the_commit(service: Service) -> None:
    kept = service.journal.append

    def append(*entries: Any) -> asyncio.Future[None]:
        kept(*entries).add_done_callback(lambda done: done.cancelled() or done.exception())
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(None)
        return answered

    service.journal.append = append  # type: ignore[method-assign]


def applies_a_reward_twice(service: Service) -> None:
    kept = service.world._apply_reward

    def apply(row: Any, body: Any) -> None:
        kept(row, body)
        if row.seq % 10 == 0 and body.before is None:
            kept(row, body)

    service.world._apply_reward = apply  # type: ignore[method-assign]


def counts_what_was_refused(service: Service) -> None:
    kept = service.journal._refuse

    def refuse(batch: Any, problem: Any) -> None:
        service.world.n_events += len(batch)
        kept(batch, problem)

    service.journal._refuse = refuse  # type: ignore[method-assign]


def keeps_snapshots_that_claim_too_much(service: Service) -> None:
    kept = service.world.snapshot

    def snapshot() -> Snapshot:
        service.world.seq += 1
        try:
            return kept()
        finally:
            service.world.seq -= 1

    service.world.snapshot = snapshot  # type: ignore[method-assign]


def keeps_users_as_of_later(service: Service) -> None:
    kept = service.world.cache.admit

    def admit(name: str, user: Any) -> None:
        kept(name, user)
        evicted = service.world.cache._evicted
        for gone, one in list(evicted.items()):
            evicted[gone] = one._replace(seq=service.world.seq + 20)

    service.world.cache.admit = admit  # type: ignore[method-assign]


def answers_any_body(service: Service) -> None:
    kept = service.decisions.answer_again
    service.decisions.answer_again = lambda row, digest: kept(  # type: ignore[method-assign]
        row, events.decode("decision", row.body).digest if row.kind == "decision" else digest
    )


def draws_by_another_seed(service: Service) -> None:
    assert service.world.state.settings is not None
    service.world.state.settings.seed = b"another"


def does_not_make_again_what_was_made_before_an_erasure(service: Service) -> None:
    def saw(rows: Sequence[Row]) -> None:
        if rows:
            service.journal._seen = rows[-1].seq

    service.journal._note_stored = saw  # type: ignore[method-assign]


def takes_a_second_reward(service: Service) -> None:
    kept = service.rewards.reward

    def reward(request: Any) -> Any:
        slot = service.slots.get(request.decision_id)
        if slot.reward is not None and slot.n == 1:
            return service.rewards.build_event(request.decision_id, slot, request.reward, None)
        return kept(request)

    service.rewards.reward = reward  # type: ignore[method-assign]


def leaves_erased_people_in_memory(service: Service) -> None:
    kept = service.world._apply_erase

    def erase(body: Any) -> None:
        users = dict(service.world.cache._users)
        kept(body)
        service.world.cache._users.update(users)

    service.world._apply_erase = erase  # type: ignore[method-assign]
    gone, users = service.erase, service.world.cache._users

    async def erase_without_forgetting(user: str) -> int:
        known = users.get(user)
        task = asyncio.ensure_future(gone(user))
        await asyncio.sleep(0)
        if known is not None:
            users[user] = known
        return await task

    service.erase = erase_without_forgetting  # type: ignore[method-assign]


DEFECTS: list[Callable[[Service], None]] = [
    answers_before_the_commit,
    applies_a_reward_twice,
    counts_what_was_refused,
    keeps_snapshots_that_claim_too_much,
    keeps_users_as_of_later,
    answers_any_body,
    draws_by_another_seed,
    does_not_make_again_what_was_made_before_an_erasure,
    takes_a_second_reward,
    leaves_erased_people_in_memory,
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_service_is_found_that(tmp_path: Path, defect: Defect) -> None:
    with pytest.raises((AssertionError, LCBError)):
        days(tmp_path, defect)


def days(folder: Path, defect: Defect) -> None:
    for seed in range(20):
        simulate(folder / f"{seed}.db", seed, SHORT, n_users=30, defect=defect)
