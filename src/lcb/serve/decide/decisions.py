"""Turns a decision request into an event to append, or returns the answer already logged for its id.

Nothing here waits or writes.  A decision records the seq of the state it was made from (`seen`); its draw depends on
the log's seed and the decision's id only, so that it can be recomputed from the log.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from lcb import messages
from lcb.serve import events
from lcb.serve.decide.arms import Arms, CommonArms, read_arms
from lcb.serve.decide.assignment import Assignment
from lcb.serve.decide.drawing import (
    Draw,
    begin_draw,
    draw_arms,
    draw_under_rules,
    record_callers_arm,
)
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.large import NO_RULES, WITHOUT_RULES, Prepared
from lcb.serve.decide.rules import RULES, NoArmLeft, Rules, read_rules
from lcb.serve.decide.together import Group, Member, Together, write_group
from lcb.serve.decide.validation import check_user
from lcb.serve.errors import Problem
from lcb.serve.event_ids import slot_id
from lcb.serve.read_event import read_event
from lcb.serve.state.reward_slots import build_archived
from lcb.serve.state.service_state import policy_name
from lcb.serve.state.users import WARMUP
from lcb.serve.state.world import World
from lcb.storage.store.base import NewRow, Row

_JSON = msgspec.json.Encoder()


class Begun(msgspec.Struct):
    """A decision before the draw."""

    request: messages.DecisionRequest
    decision_id: str
    digest: bytes | None
    at: float
    seen: int  # seq of the state that it is made from
    recommender: str
    model: int  # the version that it is made with
    newcomer: bool
    fixes_n_features: bool
    arms: Arms
    draw: Draw
    rules: Rules | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it draws one arm from all."""
        return self.rules is None and self.request.k is None and self.request.chosen is None


class Decisions:
    """Decides from the state of `world`; `now` is the clock, `new_id` makes unique ids."""

    def __init__(
        self,
        world: World,
        assignment: Assignment,
        now: Callable[[], float],
        new_id: Callable[[], str],
        *,
        shadow: bool = False,
    ) -> None:
        self.world, self.assignment, self.now, self.new_id, self.shadow = world, assignment, now, new_id, shadow
        self.n_ruled = Counter[str](dict.fromkeys((*RULES, "none"), 0))  # since the start; none: no arm was left

    def decide(
        self,
        request: messages.DecisionRequest,
        recommender: str | None = None,
        logged: Row | None = None,
    ) -> Entry | bytes:
        """Return a new decision, or the answer of the one logged under the same id.

        `logged` is the event of that id, read beforehand where the store is remote.
        """
        begun = self.begin(request, recommender, logged)
        return begun if isinstance(begun, bytes) else self.finish(begun)

    def finish_many(self, together: Together, begun: Mapping[int, Begun]) -> dict[int, Entry | Problem]:
        """Return the events of a batch by their places: of those drawn together, and of the others that were begun."""
        made: dict[int, Entry | Problem] = {}
        alone = dict(begun)
        for place, one in begun.items():
            member = place, one.request, one.decision_id, one.draw.state, one.digest, one.newcomer
            if one.is_plain and together.add(one.arms, one.draw, one.recommender, one.model, member):
                del alone[place]
        at = self.now()
        for group in together.groups.values():
            if group is None:
                continue
            written = write_group(self.world, group, at)
            if written is not None:
                made.update(zip([one[0] for one in group.members], written, strict=True))
            else:
                alone.update((one[0], self._begin_again(group, one, at)) for one in group.members)
        for place, one in alone.items():
            try:
                made[place] = self.finish(one)
            except Problem as problem:
                made[place] = problem
        return made

    def _begin_again(self, group: Group, member: Member, at: float) -> Begun:
        """Return a member of a group as a decision that is drawn alone."""
        _, request, id, state, digest, newcomer = member
        more = newcomer, False, group.arms, group.draw._replace(state=state)
        return Begun(request, id, digest, at, self.world.seq, group.recommender, group.model, *more)

    def begin(
        self,
        request: messages.DecisionRequest,
        recommender: str | None = None,
        logged: Row | None = None,
        prepared: Prepared | None = None,
        common: CommonArms | None = None,
    ) -> Begun | bytes:
        """Do the part of `decide` that reads the state; `prepared` is what was computed from the request before.

        `common` is what was read of the arms of other decisions of a batch.
        """
        world, digest = self.world, None
        if request.decision_id is not None:
            digest = compute_digest(request) if prepared is None else prepared.digest
            logged = world.store.event(request.decision_id) if world.store.inline else logged
            if logged is not None and logged.seq <= world.seq:
                return self.answer_again(logged, digest)
            if logged is None and world.store.inline:
                self.check_not_archived(request.decision_id)
        self._check_mode(request)
        check_user(request.user)
        draws = None
        if common is None:
            arms = read_arms(world.state, request, None if prepared is None else prepared.context)
        else:
            arms, draws = common.read(request)
        user = world.user(request.user)
        newcomer = user is None
        if user is None:
            recommender = recommender or self.assignment.assign(request.user)
            model = world.state.model_for_newcomers(recommender, request.user)
            user = world.fold.start(recommender, model, 0, arms.context.shape[1])
        else:
            model = world.state.model_for(user)
        if draws is None:
            draw = begin_draw(world, user, model, arms.ids, arms.context.shape[1], arms.rows)
        else:
            draw = draws.begin(user, model)
        return Begun(
            request,
            request.decision_id or self.new_id(),
            digest,
            self.now(),
            world.seq,
            user.recommender,
            model,
            newcomer,
            world.state.n_features is None,
            arms,
            draw,
            self._read_rules(request, arms.ids) if request.has_rules else None,
        )

    def check_not_archived(self, id: str) -> None:
        """Raise Problem 410 if a decision of this id is archived; reads the store."""
        if self.world.state.compacted is not None and self.world.store.was_archived(id):
            raise build_archived(id)

    def finish(self, begun: Begun) -> Entry:
        """Do the rest of `decide`; reads nothing that later events change, so it may run in another thread."""
        request, (ids, context, sent, _) = begun.request, begun.arms
        decision_id, model, rules = begun.decision_id, begun.model, None
        if begun.rules is None:
            taken = draw_arms(begun.draw, ids, context, decision_id, request.k)
        else:
            taken, rules = draw_under_rules(begun.draw, ids, context, decision_id, begun.rules)
        body = events.DecisionBody(
            begun.at,
            begun.seen,
            begun.recommender,
            len(ids),
            None if request.arms is None else ids,
            sent,
            None if request.x is None else np.array(request.x).tobytes(),
            taken,
            begun.digest,
            request.k is not None,
            None if request.chosen is None else self._record_chosen(begun),
            request.chosen is None or request.chosen_propensity is not None,
            rules,
        )
        return Entry(
            NewRow(decision_id, "decision", request.user, model, events.encode(body)),
            body,
            self.answer(decision_id, model, body),
            decision_id,
            begun.newcomer,
            begun.fixes_n_features,
            begun.seen,
        )

    def _read_rules(self, request: messages.DecisionRequest, ids: list[str]) -> Rules:
        try:
            rules = read_rules(self.world, request, ids)
        except NoArmLeft:
            self.n_ruled["none"] += 1
            raise
        self.n_ruled.update(name for name in RULES if getattr(request, name) is not None)
        return rules

    def _check_mode(self, request: messages.DecisionRequest) -> None:
        if request.chosen is not None:
            return
        if self.shadow:
            words = "this service runs in shadow mode and needs the arm you chose; send its id in chosen"
            raise Problem(422, words, field="chosen")
        if request.chosen_propensity is not None:
            words = "chosen_propensity came without chosen; send the id of the arm you chose"
            raise Problem(422, words, field="chosen_propensity")

    def _record_chosen(self, begun: Begun) -> events.ChosenArm:
        """Return the record of the arm that the caller chose; Problem 422 if the user's bandit cannot learn from it."""
        request, model, ids = begun.request, begun.model, begun.arms.ids
        assert request.chosen is not None
        if request.k is not None:
            raise Problem(422, "chosen names one arm and k asks for a list; leave one out", field="k")
        if request.chosen not in ids:
            words = f"chosen is {request.chosen!r}, which is not among the arms; name one of them"
            raise Problem(422, words, field="chosen")
        if begun.rules is not None and ids.index(request.chosen) not in begun.rules.left:
            words = f"chosen is {request.chosen!r}, which the rules of this request rule out"
            raise Problem(422, f"{words}; leave out exclude and seen to report what was shown", field="chosen")
        spec = self.world.state.recommenders[begun.recommender]
        if spec.traits.needs_propensity_of_every_arm and model != WARMUP:
            words = f"{spec.bandit} needs the probability of every arm and cannot learn from an arm that you chose"
            raise Problem(422, f"{words}; decide without chosen", field="chosen")
        if spec.traits.needs_propensity_of_chosen and model != WARMUP and request.chosen_propensity is None:
            words = f"{spec.bandit} weighs a reward by the probability of its arm"
            raise Problem(422, f"{words}; send chosen_propensity, 1 if nothing was random", field="chosen_propensity")
        propensity = min(request.chosen_propensity or 1.0, 1.0)
        return record_callers_arm(begun.draw, ids, begun.arms.context, request.chosen, propensity)

    def answer_again(self, row: Row, digest: bytes | None) -> bytes:
        """Return the answer of a logged decision, if its request was the same."""
        if row.kind != "decision":
            raise Problem(422, f"{row.id} is the id of another event; choose another id", field="decision_id")
        body = read_event(row)
        if body.digest != digest:
            words = f"decision {row.id} was made for another request; repeat that request, or choose another id"
            raise Problem(422, words, field="decision_id")
        return self.answer(row.id, row.model or WARMUP, body)

    def answer(self, decision_id: str, model: int, body: events.DecisionBody) -> bytes:
        """Return the answer of a decision event, always the same bytes."""
        ours, recommender = body.taken[0], body.recommender
        shown = ours if body.chosen is None else body.chosen
        slots = None
        if body.listed:
            slots = tuple(
                messages.Slot(arm.id, arm.propensity, slot_id(decision_id, i)) for i, arm in enumerate(body.taken)
            )
        return _JSON.encode(
            messages.DecisionAnswer(
                decision_id,
                shown.id,
                shown.propensity if body.own else None,
                tuple(ours.full_distribution(body.n_arms).tolist()),
                model,
                policy_name(self.world.state.recommenders[recommender], model),
                recommender,
                slots,
                None if body.chosen is None else ours.id,
            )
        )


def compute_digest(request: messages.DecisionRequest) -> bytes:
    """Hash the request as MessagePack, a map of its fields; without rules, the map has no fields for them.

    So the digest of a request is the one it had before there were rules, and old requests can be repeated.
    """
    encoded = events.encode(request)
    if not request.has_rules:
        encoded = WITHOUT_RULES + encoded[1 : -len(NO_RULES)]
    return hashlib.blake2b(encoded, digest_size=16).digest()
