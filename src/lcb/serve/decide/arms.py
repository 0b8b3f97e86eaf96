"""The arms of a decision request: their ids and features."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from lcb import messages
from lcb.arrays import Floats, Index
from lcb.features import cross
from lcb.serve.decide.drawing import CommonDraws
from lcb.serve.decide.validation import check_ids, check_size
from lcb.serve.decide.wrong_arms import build_arms_error
from lcb.serve.errors import Problem
from lcb.serve.state.service_state import ServiceState
from lcb.serve.state.world import World


class Arms(NamedTuple):
    """The arms of one decision."""

    ids: list[str]
    context: Floats  # (K, d)
    sent: bytes | None  # the features that the request sent, if it sent any
    rows: Index | None  # of the catalogue, (K,), if the request named some of its items


def read_arms(state: ServiceState, request: messages.DecisionRequest, stacked: Floats | None = None) -> Arms:
    """Return the arms of a request; `stacked` are the features it sent, if they have been put into an array already."""
    arms, sent, rows = request.arms, None, None
    if arms is None:
        ids, context = state.catalogue.ids, state.catalogue.matrix()
        if not ids:
            raise Problem(422, "no arms, and the catalogue is empty; send arms, or PUT /v1/items", field="arms")
    else:
        ids = [arm.id for arm in arms]
        check_ids(ids)
        if arms[0].x is None:
            rows = _look_up(state, request, arms, ids)
            context = state.catalogue.matrix().take(rows, 0)
        else:
            context = sent = _stack_vectors(state, request, arms) if stacked is None else stacked
    size = context.shape[1]
    user_x = None
    if request.x is not None:
        user_x = np.array(request.x)
        check_size(user_x[None], "x")
        size *= 1 + len(request.x)
    if state.n_features is not None and size != state.n_features:
        raise _build_size_error(size, state.n_features, request)
    if size > messages.MOST_FEATURES:
        words = f"the arms crossed with x have {size} features; send fewer, at most {messages.MOST_FEATURES} in all"
        raise Problem(422, words, field="x")
    data = None if sent is None else sent.tobytes()
    return Arms(ids, context if user_x is None else cross(context, user_x), data, rows)


class CommonArms:
    """The arms of requests that are decided in a row; a list of arms that several of them have is read once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._sent: list[messages.Arm] | None = None
        self._read: tuple[Arms, CommonDraws] | None = None

    def read(self, request: messages.DecisionRequest) -> tuple[Arms, CommonDraws]:
        """Do the same as `read_arms`, and return what draws from these arms have in common."""
        if self._read is not None and self._sent is request.arms and request.x is None:
            return self._read
        arms = read_arms(self.world.state, request)
        found = arms, CommonDraws(self.world, arms.ids, arms.context.shape[1], arms.rows)
        if request.x is None:
            self._sent, self._read = request.arms, found
        return found


def _look_up(state: ServiceState, request: messages.DecisionRequest, arms: list[messages.Arm], ids: list[str]) -> Index:
    try:
        rows = state.catalogue.find(ids)
    except KeyError:
        raise build_arms_error(state, request) from None
    for arm in arms:
        if arm.x is not None:
            raise build_arms_error(state, request)
    return rows


def _stack_vectors(state: ServiceState, request: messages.DecisionRequest, arms: list[messages.Arm]) -> Floats:
    n = len(arms[0].x or ())
    numbers: list[float] = []
    for arm in arms:
        if arm.x is None or len(arm.x) != n:
            raise build_arms_error(state, request)
        numbers += arm.x
    context = np.frombuffer(array("d", numbers)).reshape(-1, n)  # twice as fast as np.array of lists of lists
    check_size(context, "arms")
    return context


def _build_size_error(came: int, wanted: int, request: messages.DecisionRequest) -> Problem:
    crossed = "" if request.x is None else f" (crossed with the {len(request.x)} of x)"
    where = "x" if request.x is not None or request.arms is None else "arms[0].x"
    detail = f"the arms have {came} features{crossed}, but this service has {wanted}; send {wanted}"
    return Problem(422, detail, field=where)
