"""Errors about the arms of a request name the arm that is wrong, in whatever order arms with and without x come."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lcb.serve.decide import large
from lcb.serve.errors import Problem
from support.raw_requests import Answered, Local

N = 4
Arms = list[dict[str, Any]]


class Fault(NamedTuple):
    """Arms with one that is wrong, the field that an error must name, and words that it must have."""

    arms: Arms
    field: str
    words: str


def build(kinds: str) -> Arms:
    """Return arms that are right by themselves: for every `x` one with features, for every `i` an item."""
    return [{"id": f"new-{i}", "x": [1.0, i]} if kind == "x" else {"id": f"item-{i}"} for i, kind in enumerate(kinds)]


def list_faults(kinds: str) -> Iterator[Fault]:
    """Return the arms with each fault at each place."""
    for i, kind in enumerate(kinds):
        if kind == "x":
            for x in ([1.0], [1.0, 2.0, 3.0]):
                yield Fault(_change(kinds, i, x=x), f"arms[{i}].x", f"arms[{i}] has {len(x)}")
            yield Fault(_change(kinds, i, x=[0, 1e10]), f"arms[{i}].x[1]", "a feature is 1e+10")
        else:
            unknown = "arm 'unknown' has no features and is not in the catalogue"
            yield Fault(_change(kinds, i, id="unknown"), f"arms[{i}].x", unknown)
        other = (i + 1) % N
        same = build(kinds)[other]["id"]
        yield Fault(_change(kinds, i, id=same), f"arms[{max(i, other)}].id", f"duplicate id {same!r}")


def _change(kinds: str, i: int, **change: Any) -> Arms:
    arms = build(kinds)
    arms[i] |= change
    return arms


def find_odd(kinds: str) -> tuple[int, int]:
    """Return the place of the first arm of the kind that fewer arms have, and of the first of the other kind."""
    x, i = kinds.index("x"), kinds.index("i")
    n = kinds.count("x")
    return (x, i) if n < N - n or (n == N - n and x > i) else (i, x)


KINDS = ["".join(kinds) for kinds in itertools.product("xi", repeat=N)]
MIXED = [kinds for kinds in KINDS if len(set(kinds)) == 2]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    with Local(str(tmp_path / "lcb.db")) as local:
        items = [{"id": f"item-{i}", "x": [i, 1.0]} for i in range(N)]
        assert local.send("PUT", "/v1/items", {"items": items}).status == 200
        yield local


def ask_alone(local: Local, arms: Arms) -> list[Any]:
    return [local.send("POST", "/v1/decisions", {"user": "ann", "arms": arms}).json]


def ask_in_batch(local: Local, arms: Arms) -> list[Any]:
    """Send the arms with elements of a batch, and other arms with others."""
    asks = [{"user": f"u{i}", "arms": arms if i % 2 else build("xx")} for i in range(8)]
    return read_outcomes(local.send("POST", "/v1/decisions:batch", {"decisions": asks}))[1::2]


def ask_with_common_arms(local: Local, arms: Arms) -> list[Any]:
    asks = [{"user": f"u{i}"} for i in range(4)]
    return read_outcomes(local.send("POST", "/v1/decisions:batch", {"arms": arms, "decisions": asks}))


def read_outcomes(answered: Answered) -> list[Any]:
    assert answered.status == 200
    outcomes: list[Any] = answered.json["outcomes"]
    return outcomes


@pytest.mark.parametrize("threaded", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("ask", [ask_alone, ask_in_batch, ask_with_common_arms])
def test_an_error_names_the_arm_that_is_wrong(
    local: Local, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Local, Arms], list[Any]], threaded: bool
) -> None:
    if threaded:
        monkeypatch.setattr(large, "LARGE_DECISION", 0)
    for kinds in KINDS:
        for fault in list_faults(kinds):
            for said in ask(local, fault.arms):
                assert (said["status"], said["field"]) == (422, fault.field), (fault.arms, said)
                assert fault.words in said["detail"], (fault.arms, said)


@pytest.mark.parametrize("threaded", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("ask", [ask_alone, ask_in_batch, ask_with_common_arms])
def test_of_items_beside_arms_with_features_the_fewer_ones_are_named(
    local: Local, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Local, Arms], list[Any]], threaded: bool
) -> None:
    if threaded:
        monkeypatch.setattr(large, "LARGE_DECISION", 0)
    said = {"x": "has features", "i": "names an item of the catalogue"}
    for kinds in MIXED:
        odd, other = find_odd(kinds)
        words = f"arms[{odd}] {said[kinds[odd]]} and arms[{other}] {said[kinds[other]]}; send all with or all without x"
        for found in ask(local, build(kinds)):
            assert (found["status"], found["field"], found["detail"]) == (422, f"arms[{odd}].x", words)


def test_arms_without_fault_are_decided(local: Local) -> None:
    for kinds in ("x" * N, "i" * N):
        assert "propensity" in ask_alone(local, build(kinds))[0]


@pytest.mark.parametrize("lengths", [(3, 2, 2), (2, 3, 2), (2, 2, 3), (2, 3)])
def test_before_the_first_decision_most_arms_and_items_are_held_to_be_right(
    tmp_path: Path, lengths: tuple[int, ...]
) -> None:
    given = [{"id": f"a{i}", "x": [0.5] * n} for i, n in enumerate(lengths)]
    wrong, right = lengths.index(3), lengths.index(2)
    with Local(str(tmp_path / "lcb.db")) as local:
        of_arms = local.send("POST", "/v1/decisions", {"user": "ann", "arms": given}).json
        of_items = local.send("PUT", "/v1/items", {"items": given}).json
    words = "; send the same number for each"
    assert of_arms["field"] == f"arms[{wrong}].x"
    assert of_arms["detail"] == f"arms[{right}] has 2 features and arms[{wrong}] has 3{words}"
    assert of_items["field"] == f"items[{wrong}].x"
    assert of_items["detail"] == f"item 'a{wrong}' has 3 features and item 'a{right}' has 2{words}"


def test_arms_are_held_to_what_they_must_have_beside_the_features_of_the_user(tmp_path: Path) -> None:
    right = [{"id": f"a{i}", "x": [0.5, i]} for i in range(3)]
    with Local(str(tmp_path / "lcb.db")) as local:
        assert local.send("POST", "/v1/decisions", {"user": "ann", "arms": right, "x": [1.0]}).status == 200
        wrong = [{"id": "a", "x": [1]}, {"id": "b", "x": [1]}, right[0]]
        said = local.send("POST", "/v1/decisions", {"user": "ann", "arms": wrong, "x": [1.0]}).json
        assert (said["field"], said["detail"][:38]) == ("arms[0].x", "arms[2] has 2 features and arms[0] has")
        said = local.send(
            "POST", "/v1/decisions", {"user": "ann", "arms": [*wrong[:2], {"id": "c", "x": [1] * 3}], "x": [1]}
        )
        assert said.json["detail"] == "arms[0] has 1 features, but arms of this service have 2; send 2"


@pytest.mark.parametrize("name", ["$", "$x", "extra"])
def test_an_unknown_field_of_a_large_request_is_named_as_in_a_small_one(name: str) -> None:
    arms = [{"id": "a", "x": [1.0]}, {"id": "b", "x": [1.0], name: 1}]
    with pytest.raises(Problem) as refused:
        large.decode_decision(json.dumps({"user": "ann", "arms": arms}).encode())
    assert refused.value.field == f"arms[1].{name}"
