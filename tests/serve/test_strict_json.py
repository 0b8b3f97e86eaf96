"""Problems name the field, duplicates are never missed, and no body crashes the reader."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from lcb import messages
from lcb.errors import LCBError
from lcb.messages import DecisionRequest, RewardRequest
from lcb.serve import strict_json
from lcb.serve.errors import Problem
from lcb.serve.strict_json import decode, refuse_duplicates, refuse_nul, to_problem


class Arm(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=20)]
    x: Annotated[list[float], Meta(max_length=3)] | None = None


class Ask(Struct, forbid_unknown_fields=True):
    user: Annotated[str, Meta(pattern="^[a-z:\0\\\\]+$")]
    arms: list[Arm] | None = None
    k: Annotated[int, Meta(ge=1, le=9)] | None = None
    best: Arm | None = None
    tags: list[str] = []
    replace: bool = False
    weights: dict[str, list[float]] = {}
    of: dict[str, dict[str, Arm]] | None = None
    note: Any = None


ASK = msgspec.json.Decoder(Ask)
DECISION = msgspec.json.Decoder(DecisionRequest)
WRONG = [
    (b'{"user": 1}', 422, "user", "user is a whole number; send a string"),
    (b'{"user": "a", "arms": [{"id": "a"}, {"id": "b", "x": [1, "2"]}]}', 422, "arms[1].x[1]", "send a number"),
    (b'{"user": "a", "arms": [{"id": "a", "x": [1, true]}]}', 422, "arms[0].x[1]", "is true or false; send a number"),
    (b'{"user": "a", "arms": [{"x": [1]}]}', 422, "arms[0].id", "is missing; send it"),
    (b'{"user": "a", "arms": [{"id": "a", "y": 1}]}', 422, "arms[0].y", "is not a field of this request; remove it"),
    (b'{"arms": []}', 422, "user", "user is missing"),
    (b'{"user": "a", "arms": [{"id": ""}]}', 422, "arms[0].id", "a string of length at least 1"),
    (b'{"user": "a", "arms": [{"id": "a", "x": [1, 2, 3, 4]}]}', 422, "arms[0].x", "a list of length at most 3"),
    (b'{"user": "a", "k": 0}', 422, "k", "a whole number of at least 1"),
    (b'{"user": "a", "k": 1.5}', 422, "k", "is a number; send a whole number or null"),
    (b'{"user": "A"}', 422, "user", "has the wrong form; send ^[a-z"),
    (b'{"user": "a", "arms": [{"id": "a", "x": [1e999]}]}', 422, "arms[0].x[0]", "too large for a 64-bit float"),
    (b'{"user": "a", "weights": {"p": [1], "q": [1, "2"], "r": ["3"]}}', 422, "weights.q[1]", "send a number"),
    (b'{"user": "a", "of": {"p": {"a": {"id": "a"}}, "q": {"b": {"id": "b"}, "c": {}}}}', 422, "of.q.c.id", "missing"),
    (b"[]", 422, None, "the body is a list; send an object"),
    (b"", 400, None, "ends before its JSON does"),
    (b'{"user": "a"', 400, None, "ends before its JSON does"),
    (b'{"user": "a",}', 400, None, "trailing comma in object (byte 13)"),
    (b'{"user": "a", "arms": [{"id": "a", "x": [NaN]}]}', 400, "arms[0].x[0]", "is NaN, which is not a JSON number"),
    (b'{"user": "\\ud800", "k": 1}', 400, "user", "user has U+D800, half of a surrogate pair"),
    (b'{"user": "\\udc00"}', 400, "user", "surrogate"),
    (b'{"user": "\xff"}', 400, "user", "not UTF-8"),
    (b'{"user": "\xed\xa0\x80"}', 400, "user", "not UTF-8"),
    (b'{"user": "a", "note": [{"b": -Infinity}]}', 400, "note[0].b", "is -Infinity, which"),
    (b'{"user": "a", "\\ud800": 1}', 400, "\ufffd", "surrogate"),
    (b'{"note": "NaN", "k": }', 400, None, "is not JSON"),
    (b"NaN", 400, None, "the body is NaN"),
    (b'{"user": "a\\u0000"}', 422, "user", "has the character U+0000; remove it"),
    (b'{"user": "a", "note": ' + b"[" * 100_000, 422, None, "nested too deeply"),
    (b'{"user": "a", "note": ' + b'{"a":' * 100_000, 422, None, "nested too deeply"),
    (b'{"user": "a", "k": 1, "k": 2}', 422, "k", "k comes twice; send it once"),
    (b'{"user": "a", "\\u006b": 1, "k": 2}', 422, "k", "comes twice"),
    (b'{"user": "a", "arms": [{"id": "a"}, {"id": "b", "id": "c"}]}', 422, "arms[1].id", "comes twice"),
    (b'{"user": "a", "note": [{"p": 1, "p": 1}]}', 422, "note[0].p", "comes twice"),
]  # fmt: skip


@pytest.mark.parametrize("raw, status, field, words", WRONG, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named(raw, status, field, words):
    with pytest.raises(Problem) as caught:
        decode(ASK, raw)
    problem = caught.value
    assert (problem.status, problem.field) == (status, field)
    assert words in problem.detail
    said = json.loads(problem.to_json())
    assert said["status"] == status
    assert said["type"] == "about:blank"
    assert said.get("field") == field


@pytest.mark.parametrize("raw", [raw for raw, status, *_ in WRONG if status == 422 and len(raw) < 1000])
def test_the_detail_says_what_to_do_next(raw):
    with pytest.raises(Problem, match=r"; (change|send|remove) "):
        decode(ASK, raw)


def test_a_problem_is_an_error_of_this_library_and_reads_as_its_detail():
    problem = Problem(503, "the queue is full; try again in a second", retry_after=1)
    assert isinstance(problem, LCBError)
    assert str(problem) == problem.detail
    assert json.loads(problem.to_json()) == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "the queue is full; try again in a second",
    }


def test_a_complaint_of_another_form_is_passed_on():
    problem = to_problem(msgspec.ValidationError("Invalid enum value 'c' - at `$.kind`"))
    assert (problem.field, problem.detail) == ("kind", "kind is not valid: invalid enum value 'c'; change it")
    key = to_problem(msgspec.ValidationError("Expected `str` of length <= 2 - at `key` in `$.kind`"))
    assert (key.field, key.detail[:13]) == ("kind", "a key of kind")


def test_a_field_is_printable_and_not_endless():
    with pytest.raises(Problem) as caught:
        decode(ASK, json.dumps({"user": "a", "\x1b[2J" + "y" * 10_000: 1}).encode())
    assert caught.value.field.isprintable()
    assert len(caught.value.field) == 200


@pytest.fixture
def parses(monkeypatch):
    """How often a body was parsed a second time."""
    seen = []
    exactly = strict_json._parse_exactly
    monkeypatch.setattr(
        strict_json, "_parse_exactly", lambda raw, **settings: (seen.append(raw), exactly(raw, **settings))
    )
    return seen


@pytest.mark.parametrize(
    "raw",
    [
        b'{"user": "a", "arms": [{"id": "a"}, {"x": [1], "id": "b"}], "k": 2}',
        b'{"user": "a:b", "arms": [{"id": "::"}, {"id": "b"}], "decision_id": "c:d"}',
        b'{"user":"a"}',
    ],
)
def test_an_ordinary_decision_is_not_parsed_again(parses, raw):
    decode(DECISION, raw)
    assert parses == []


@pytest.mark.parametrize(
    "request_",
    [
        DecisionRequest("a"),
        DecisionRequest("a:b", [messages.Arm("::"), messages.Arm("b", [0.0, 1e-7])], x=[0.5], k=1, decision_id="c:d"),
        DecisionRequest("a", [messages.Arm("b", [1.0])] * 3, chosen="b:", chosen_propensity=0.25),
        DecisionRequest("a", exclude=["b:", "c"], seen="exclude", at_most=2),
        RewardRequest("a:1", 0.0),
        RewardRequest("a", 1.0, "b:c"),
    ],
)
def test_pairs_are_counted_alike_with_and_without_encoding(request_):
    assert strict_json.count_pairs_of_request(request_) == strict_json.count_pairs(request_)


def test_the_requests_checked_by_counting_have_no_default_but_null():
    def check(info):
        for inner in getattr(info, "types", ()):
            check(inner)
        for inner in (getattr(info, "item_type", None), getattr(info, "type", None)):
            if inner is not None:
                check(inner)
        assert not isinstance(info, msgspec.inspect.DictType | msgspec.inspect.AnyType)  # keys could have colons
        if isinstance(info, msgspec.inspect.StructType):
            for field in info.fields:
                assert field.required or field.default is None
                assert field.default_factory is msgspec.NODEFAULT
                check(field.type)

    for kind in strict_json.NULL_DEFAULTS:
        assert kind.__struct_config__.forbid_unknown_fields
        check(msgspec.inspect.type_info(kind))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"user": "\\u003a", "k": 1, "k": 2}',  # an escaped colon must not stand in for the second k
        b'{"user": "\\u003A", "k": 1, "k": 2}',
        b'{"user": "a:", "k": 1, "k": 2}',
        b'{"user": "a:null", "k": 1, "k": 2}',
        b'{"user": "a", "user": "b:c"}',
        b'{"user": "a", "k": null, "k": 2}',
        b'{"user": "a", "k": 2, "k": null}',
        b'{"user": "a", "arms": [{"id": "a:b", "id": "a"}], "x": [1]}',
    ],
)
@pytest.mark.parametrize("decoder", ["ASK", "DECISION"])
def test_colons_in_strings_do_not_hide_a_duplicate(raw, decoder):
    if decoder == "ASK":
        raw = raw.replace(b'"x": [1]', b'"tags": []')
    with pytest.raises(Problem, match="comes twice"):
        decode({"ASK": ASK, "DECISION": DECISION}[decoder], raw)


TEXT = st.text(alphabet="a:\\", min_size=1, max_size=4) | st.just(":null")
NUMBERS = st.lists(st.floats(-1e3, 1e3), max_size=3)
ARM = st.lists(
    st.one_of(
        st.tuples(st.just("id"), TEXT), st.tuples(st.just("id"), TEXT), st.tuples(st.just("x"), st.none() | NUMBERS)
    ),
    max_size=3,
)
BODY = st.lists(
    st.one_of(
        st.tuples(st.just("user"), TEXT),
        st.tuples(st.just("arms"), st.none() | st.lists(ARM, max_size=3)),
        st.tuples(st.just("x"), st.none() | NUMBERS),
        st.tuples(st.just("k"), st.none() | st.integers(1, 9)),
        st.tuples(st.just("decision_id"), st.sampled_from(["a:b", "a:null", None])),
        st.tuples(st.just("chosen"), st.none() | TEXT),
    ),
    max_size=5,
).map(lambda pairs: [*pairs, ("user", "a:")])


def written(value, escape: bool) -> str:
    """Write lists of pairs as objects, duplicates included; colons in strings escaped or not."""
    if isinstance(value, list) and all(isinstance(item, tuple) for item in value) and value:
        return "{" + ", ".join(f"{written(k, False)}: {written(v, escape)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item, escape) for item in value) + "]"
    text = json.dumps(value)
    return text.replace(":", "\\u003a") if escape else text


def has_duplicates(value) -> bool:
    if not isinstance(value, list):
        return False
    pairs = [item for item in value if isinstance(item, tuple)]
    inner = [v for _, v in pairs] + [item for item in value if isinstance(item, list)]
    return len({k for k, _ in pairs}) < len(pairs) or any(map(has_duplicates, inner))


@given(BODY, st.booleans())
def test_a_body_passes_exactly_if_no_key_comes_twice(body, escape):
    raw = written(body, escape).encode()
    try:
        message = DECISION.decode(raw)
    except msgspec.ValidationError:
        return
    if has_duplicates(body):
        with pytest.raises(Problem, match="comes twice"):
            refuse_duplicates(raw, message)
        with pytest.raises(Problem, match="comes twice"):
            refuse_duplicates(raw)
    else:
        refuse_duplicates(raw, message)
        refuse_duplicates(raw)


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0\x00aé1e-.', max_size=40).map(str.encode))
def test_no_bytes_raise_anything_but_a_problem(raw):
    with contextlib.suppress(Problem):
        decode(ASK, raw)


def test_a_hundred_thousand_pairs_with_one_key_twice_are_read_in_a_moment():
    raw = b'{"note": {' + b",".join(b'"%d": 1' % i for i in range(100_000)) + b', "99999": 2}, "user": "a"}'
    with pytest.raises(Problem) as caught:
        decode(ASK, raw)
    assert caught.value.field == "note.99999"


def test_nul_is_found_where_it_is_and_only_there():
    refuse_nul(b'{"user": "a"}')
    refuse_nul(b'{"user": "\\\\u0000"}')  # a backslash, then u0000
    for raw, field in [(b'{"user": "\\u0000"}', "user"), (b'{"tags": ["a", "b\\u0000"]}', "tags[1]")]:
        with pytest.raises(Problem, match=r"U\+0000") as caught:
            refuse_nul(raw)
        assert caught.value.field == field


def test_nesting_beyond_what_python_follows_is_refused():
    for raw in [b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000]:
        with pytest.raises(Problem, match="nested too deeply"):
            refuse_duplicates(raw)


class Walk(Struct, tag="walk"):
    steps: int = 0


class Ride(Struct, tag="ride"):
    bus: str


class Trip(Struct):
    parts: list[Walk | Ride]


def test_a_list_of_several_kinds_is_read_too():
    decoder = msgspec.json.Decoder(Trip)
    assert len(decode(decoder, b'{"parts": [{"type": "walk", "steps": 1}, {"type": "ride", "bus": "1"}]}').parts) == 2
    with pytest.raises(Problem, match=r"parts\[1\].bus comes twice"):
        decode(decoder, b'{"parts": [{"type": "walk"}, {"type": "ride", "bus": "1", "bus": "2"}]}')


def test_a_wrong_number_after_many_right_ones_is_named_without_naming_those(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name for each number of a body of 4 MB took 20 s, in which nobody else's large decision was made."""
    named: list[str] = []
    format_field = strict_json._format_field
    monkeypatch.setattr(strict_json, "_format_field", lambda path: named.append(path) or format_field(path))
    raw = b'{"user": "a", "arms": [{"id": "b", "x": [' + b"1, 2.5, " * 5000 + b"NaN]}]}"
    with pytest.raises(Problem, match=r"arms\[0\].x\[10000\] is NaN"):
        decode(msgspec.json.Decoder(DecisionRequest), raw)
    assert named == ["$.arms[0].x[10000]"]
