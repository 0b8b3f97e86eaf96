"""Decisions of a batch that draw one arm each from the same arms: collected one by one, then drawn and written at once.

Each has the bits that it would have alone.  What they have in common is computed once: the scores of the arms, the
beginning of their events, and for users with the same distribution and arm also the rest of event and answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from lcb import messages
from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.serve import events
from lcb.serve.decide.arms import Arms, CommonArms
from lcb.serve.decide.drawing import Draw, can_draw_together, draw_together
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.large import has_many_numbers
from lcb.serve.errors import Problem
from lcb.serve.state.service_state import policy_name
from lcb.serve.state.users import LOST, User
from lcb.serve.state.world import World
from lcb.storage.store.base import as_new_row

_JSON = msgspec.json.Encoder()
FEWEST = 3  # decisions; fewer are drawn faster one by one
_PLAIN = (None,) * (len(msgspec.structs.fields(messages.DecisionRequest)) - 2)  # all but user and arms
_ONE_ARM = b"\x91"  # how MessagePack begins a list of one
_WITHOUT_ID = events.encode((None, False, None, True, None))[1:]  # the fields of a plain decision after `taken`
_BEFORE_ID = b'{"decision_id":'
_NO_ID = _BEFORE_ID + b'""'


# A decision of a group: its place in the batch, its request, its id, the user's state, the digest of the request if the
# caller sent the id, whether the user is new.  A plain tuple, because there are many.
Member = tuple[int, messages.DecisionRequest, str, Floats, bytes | None, bool]


class Group(msgspec.Struct):
    """Decisions from the same arms with the same bandit; `draw` is that of the first."""

    arms: Arms
    draw: Draw
    recommender: str
    model: int
    shares_state: bool = False  # the state is that of all users
    members: list[Member] = []


def is_plain(request: messages.DecisionRequest) -> bool:
    """Whether a request has nothing but user and arms."""
    return msgspec.structs.astuple(request)[2:] == _PLAIN


class Together:
    """The decisions of a batch that are drawn together; the others have to be decided one by one."""

    def __init__(self, world: World, requests: Sequence[messages.DecisionRequest], new_id: Callable[[], str]) -> None:
        self.world, self.state, self.new_id = world, world.state, new_id
        self.common = CommonArms(world)
        self.groups: dict[tuple[int, str, int], Group | None] = {}  # None: these are decided one by one
        self._of_users: dict[tuple[int, str, int, int], Group | None] = {}  # by what decides a user's group
        self._n_from = Counter([id(request.arms) for request in requests])

    def take(self, place: int, request: messages.DecisionRequest) -> bool:
        """Take a plain request, of a user in memory; False if it has to be begun alone."""
        arms = id(request.arms)
        if self._n_from[arms] < FEWEST:
            return False
        user = self.world.user_in_memory(request.user)
        if user is None or user.state is LOST:
            return False
        of_user = arms, user.recommender, user.model, user.canary
        try:
            group = self._of_users[of_user]
        except KeyError:
            model = self.state.model_for(user)
            key = arms, user.recommender, model
            if key not in self.groups:
                self.groups[key] = self._open(request, user, model)
            group = self._of_users[of_user] = self.groups[key]
        if group is None:
            return False
        state = group.draw.state if group.shares_state else user.state
        assert state is not None
        group.members.append((place, request, self.new_id(), state, None, False))
        return True

    def _open(self, request: messages.DecisionRequest, user: User, model: int) -> Group | None:
        """Return a group for decisions like this one; None if there can be none."""
        state = self.state
        if (
            state.n_features is None
            or has_many_numbers(state, request)
            or state.mixture_of(user.recommender) is not None
        ):
            return None
        try:
            arms, draws = self.common.read(request)
            draw = draws.begin(user, model)
        except Problem:  # each says so by itself
            return None
        if not can_draw_together(draw):
            return None
        return Group(arms, draw, user.recommender, model, draw.state is not user.state)

    def add(self, arms: Arms, draw: Draw, recommender: str, model: int, member: Member) -> bool:
        """Add a decision that was begun and draws one arm from all; False if it has to be finished alone."""
        if member[1].x is not None or not can_draw_together(draw):
            return False
        group = self.groups.setdefault((id(arms), recommender, model), Group(arms, draw, recommender, model))
        if group is None or group.draw.bandit is not draw.bandit:
            return False
        group.members.append(member)
        return True


def write_group(world: World, group: Group, at: float) -> list[Entry] | None:
    """Draw the decisions of a group and return their events; None if each has to be drawn alone."""
    members, (ids, context, sent, _), model = group.members, group.arms, group.model
    if len(members) < FEWEST:
        return None
    _, requests, names, states, _, _ = zip(*members, strict=True)
    try:
        drawn = draw_together(group.draw, states, ids, context, names)
    except InputError:
        return None
    recommender, of_request = group.recommender, None if requests[0].arms is None else ids
    policy = policy_name(world.state.recommenders[recommender], model)
    common = at, world.seq, recommender, len(ids), of_request, sent, None
    head = events.encode(events.DecisionBody(*common, [], None))[: -1 - len(_WITHOUT_ID)]
    written: dict[int, tuple[events.DecisionBody, bytes, bytes]] = {}  # of arms that several members have
    made, seq = [], world.seq
    for (_, request, decision_id, _, digest, newcomer), (arm, distribution) in zip(members, drawn, strict=True):
        found = written.get(id(arm))
        if found is None:
            body, taken = events.DecisionBody(*common, [arm], None), events.encode(arm)
            answer = messages.DecisionAnswer("", arm.id, arm.propensity, distribution, model, policy, recommender)
            found = body, b"".join((head, _ONE_ARM, taken, _WITHOUT_ID)), _JSON.encode(answer)[len(_NO_ID) :]
            written[id(arm)] = found
        body, encoded, answered = found
        if digest is not None:
            body = events.DecisionBody(*common, [arm], digest)
            encoded = events.encode(body)
        row = as_new_row((decision_id, "decision", request.user, model, encoded))
        answer_bytes = b"".join((_BEFORE_ID, _JSON.encode(decision_id), answered))
        made.append(Entry(row, body, answer_bytes, decision_id, newcomer, False, seq))
    return made
