"""Large requests are decoded and prepared in parts, to the same result as at once."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lcb import messages
from lcb.serve.decide import decisions, large
from lcb.serve.decide.arms import read_arms
from lcb.serve.errors import Problem
from lcb.serve.state.service_state import ServiceState
from lcb.serve.strict_json import decode

WHOLE = msgspec.json.Decoder(messages.DecisionRequest)
NUMBERS = some.floats(-1e6, 1e6) | some.integers(-9, 9)
VECTORS = some.lists(NUMBERS, max_size=4)
ARMS = some.lists(
    some.fixed_dictionaries(
        {"id": some.text(max_size=9)}, optional={"x": some.none() | some.lists(NUMBERS, max_size=4)}
    ),
    max_size=20,
)
REQUESTS = some.fixed_dictionaries(
    {"user": some.text(max_size=9)},
    optional={
        "arms": some.none() | ARMS,
        "x": some.none() | some.lists(NUMBERS, max_size=3),
        "k": some.none() | some.integers(-1, 5),
        "decision_id": some.none() | some.sampled_from(["d1", "d:2", "", "bad id"]),
        "extra": some.none(),
    },
)


def outcome(decoding, raw):
    try:
        return msgspec.msgpack.encode(decoding(raw))
    except Problem as problem:
        return problem.status, problem.field, problem.detail


ITEMS = some.lists(
    some.fixed_dictionaries(
        {"id": some.text(max_size=9)},
        optional={
            "x": some.none() | VECTORS,
            "categories": some.none() | some.lists(some.text(max_size=3), max_size=3),
            "title": some.none() | some.text(max_size=9),
            "extra": some.none(),
        },
    ),
    max_size=9,
)
CHANGES = some.fixed_dictionaries(
    {"items": ITEMS},
    optional={"replace": some.none() | some.booleans(), "remove": some.none() | some.lists(some.text(max_size=3))},
)


@settings(max_examples=50)
@given(request=CHANGES, escape=some.booleans())
def test_items_decoded_in_parts_are_the_same_or_refused_too(request, escape):
    raw = json.dumps(request, ensure_ascii=escape).encode("utf-8", "surrogatepass")
    whole = msgspec.json.Decoder(messages.ItemsRequest)
    in_parts, at_once = outcome(large.decode_items, raw), outcome(lambda raw: decode(whole, raw), raw)
    assert in_parts == at_once or in_parts[0] == at_once[0] == 422


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"items": [{"id": "a", "x": [1]}, {"id": "b", "x": [1], "x": [2]}]}', "items[1].x"),
        (b'{"items": [{"id": "a", "x": [1]}], "replace": true, "replace": false}', "replace"),
        (b'{"items": [{"id": "a", "x": [1], "title": "\\u0000"}]}', "items[0].title"),
        (b'{"items": [{"id": "a", "x": [1]}, {"id": "b", "x": "1"}]}', "items[1].x"),
        (b'{"items": [{"id": "a", "x": [1]}, {"x": [1]}]}', "items[1].id"),
    ],
)
def test_errors_in_items_decoded_in_parts_name_their_field(raw, field):
    with pytest.raises(Problem) as raised:
        large.decode_items(raw)
    assert (raised.value.status, raised.value.field) == (422, field)


@given(request=REQUESTS, escape=some.booleans())
def test_decoding_in_parts_gives_the_same_request_or_refuses_it_too(request, escape):
    """Of several errors it may name another one."""
    raw = json.dumps(request, ensure_ascii=escape).encode("utf-8", "surrogatepass")
    in_parts, at_once = outcome(large.decode_decision, raw), outcome(lambda raw: decode(WHOLE, raw), raw)
    assert in_parts == at_once or in_parts[0] == at_once[0] == 422


@pytest.mark.parametrize(
    "raw",
    [
        b'{"user": "a", "arms": [{"id": "b", "x": [1], "x": [2]}]}',
        b'{"user": "a", "user": "b", "arms": [{"id": "b"}]}',
        b'{"user": "a", "arms": [{"id": "b"}], "arms": null}',
        b'{"user": "a", "arms": [{"id": "b", "x": [1, "2"]}]}',
        b'{"user": "a", "arms": [{"id": "b"}, 3]}',
        b'{"user": "a", "arms": [{"id": "b\\u0000"}]}',
        b'{"user": "a", "arms": [{"id": "b", "x": [1, NaN]}]}',
        b'{"user": "a", "arms": [{"id": "b", "x": [1]}',
        b'{"user": "a", "arms": [{"id": "b", "y": 1}]}',
        b"[]",
        b"",
    ],
)
def test_bodies_that_are_refused_are_refused_in_the_same_words(raw):
    refused = outcome(large.decode_decision, raw)
    assert isinstance(refused, tuple)
    assert refused == outcome(lambda raw: decode(WHOLE, raw), raw)


@given(request=REQUESTS)
def test_the_digest_in_parts_is_the_digest(request):
    request.pop("extra", None)
    try:
        made = decode(WHOLE, json.dumps(request).encode())
    except Problem:
        return
    assert large.compute_digest(made) == decisions.compute_digest(made)


def test_the_digest_of_many_arms_is_the_digest():
    many = messages.DecisionRequest("ann", [messages.Arm(f"a{i}", [float(i)]) for i in range(300)], decision_id="d1")
    prepared = large.prepare(ServiceState(), many)
    assert prepared.digest == decisions.compute_digest(many)
    np.testing.assert_array_equal(prepared.context, read_arms(ServiceState(), many)[1])


@pytest.mark.parametrize("x", [[1.0], None, [1.0, 1e300]])
def test_arms_that_do_not_fit_are_refused_in_the_same_words(x):
    request = messages.DecisionRequest("ann", [messages.Arm("a", [1.0, 2.0]), messages.Arm("b", x)])
    with pytest.raises(Problem) as at_once:
        read_arms(ServiceState(), request)
    with pytest.raises(Problem) as in_parts:
        large.prepare(ServiceState(), request)
    assert (in_parts.value.field, in_parts.value.detail) == (at_once.value.field, at_once.value.detail)


def test_the_size_counts_arms_features_and_slots():
    state = ServiceState()
    few = messages.DecisionRequest("ann", [messages.Arm(f"a{i}", [0.0] * 100) for i in range(300)])
    assert not large.is_large(state, few)
    few.k = 2
    assert large.is_large(state, few)


def test_very_many_arms_are_large_whatever_their_features():
    state = ServiceState()
    arms = [messages.Arm(f"a{i}", [0.0]) for i in range(large.MANY_ARMS + 1)]
    assert large.is_large(state, messages.DecisionRequest("ann", arms))
    assert not large.is_large(state, messages.DecisionRequest("ann", arms[:-1]))
    assert not large.has_many_numbers(state, messages.DecisionRequest("ann", arms)), "a batch reads them once for all"
