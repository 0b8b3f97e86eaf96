"""What ends the trouble of a store: a write at once, a check only when no write has just failed."""

from __future__ import annotations

import pytest

from lcb.errors import StoreError, StoreUnavailable
from lcb.serve.log.trouble import Trouble


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_check_does_not_end_trouble_that_a_write_has_just_met(clock: Clock) -> None:
    trouble = Trouble(clock)
    trouble.note_failed_write(StoreUnavailable("the disk is full"))
    clock.now += 2.9
    trouble.note_check()
    assert trouble.words == "the disk is full"
    assert trouble.is_passing

    clock.now += 0.2
    trouble.note_check()
    assert trouble.words is None


def test_every_failed_write_begins_the_doubt_anew(clock: Clock) -> None:
    trouble = Trouble(clock)
    for _ in range(3):
        trouble.note_failed_write(StoreUnavailable("the disk is full"))
        clock.now += 2.5
        trouble.note_check()
        assert trouble.words == "the disk is full"


def test_a_write_ends_trouble_at_once(clock: Clock) -> None:
    trouble = Trouble(clock)
    trouble.note_failed_write(StoreUnavailable("the disk is full"))
    trouble.note(None)
    assert trouble.words is None
    assert not trouble.is_passing


def test_a_check_ends_trouble_that_a_check_has_found(clock: Clock) -> None:
    trouble = Trouble(clock)
    trouble.note(StoreUnavailable("the file is gone", replaced=True))
    assert trouble.is_lost
    trouble.note_check()
    assert trouble.words is None
    assert not trouble.is_lost


def test_an_error_that_does_not_pass_by_itself_is_told_apart(clock: Clock) -> None:
    trouble = Trouble(clock)
    trouble.note(StoreError("a trigger was added"))
    assert trouble.words == "a trigger was added"
    assert not trouble.is_passing
    assert not trouble.is_lost
