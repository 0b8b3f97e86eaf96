"""Turns a decision request into an event to append, or returns the answer already logged for its id.

Nothing here waits or writes.  A decision records the seq of the state it was made from (`seen`); its draw depends on
the log's seed and the decision's id only, so that it can be recomputed from the log.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from lcb import messages
from lcb.arrays import Floats
from lcb.serve import events
from lcb.serve.decide.arms import CommonArms, read_arms
from lcb.serve.decide.assignment import Assignment
from lcb.serve.decide.drawing import Draw, begin_draw, draw_arms, draw_under_rules, record_callers_arm
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.large import NO_RULES, WITHOUT_RULES, Prepared
from lcb.serve.decide.rules import RULES, NoArmLeft, Rules, read_rules
from lcb.serve.decide.validation import check_user
from lcb.serve.errors import Problem
from lcb.serve.event_ids import slot_id
from lcb.serve.state.service_state import policy_name
from lcb.serve.state.users import WARMUP, User
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
    user: User
    model: int  # the version that it is made with
    newcomer: bool
    fixes_n_features: bool
    ids: list[str]
    context: Floats  # (K, d)
    sent: Floats | None  # the features that the request sent
    draw: Draw
    rules: Rules | None = None


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
        self.n_ruled: Counter[str] = Counter()  # decisions by rule since the start; none: no arm was left

    def decide(
        self,
        request: messages.DecisionRequest,
        recommender: str | None = None,
        logged: Row | None = None,
        common: CommonArms | None = None,
    ) -> Entry | bytes:
        """Return a new decision, or the answer of the one logged under the same id.

        `logged` is the event of that id, read beforehand where the store is remote.  `common` is what was read of the
        arms of other decisions of a batch.
        """
        begun = self.begin(request, recommender, logged, common=common)
        return begun if isinstance(begun, bytes) else self.finish(begun)

    def begin(
        self,
        request: messages.DecisionRequest,
        recommender: str | None = None,
        logged: Row | None = None,
        prepared: Prepared | None = None,
        common: CommonArms | None = None,
    ) -> Begun | bytes:
        """Do the part of `decide` that reads the state; `prepared` is what was computed from the request before."""
        world, digest = self.world, None
        if request.decision_id is not None:
            digest = compute_digest(request) if prepared is None else prepared.digest
            logged = world.store.event(request.decision_id) if world.store.inline else logged
            if logged is not None and logged.seq <= world.seq:
                return self.answer_again(logged, digest)
        self._check_mode(request)
        check_user(request.user)
        draws = None
        if common is None:
            arms = read_arms(world.state, request, None if prepared is None else prepared.context)
        else:
            arms, draws = common.read(request)
        ids, context, sent, rows = arms
        user = world.user(request.user)
        newcomer = user is None
        if user is None:
            recommender = recommender or self.assignment.assign(request.user)
            model = world.state.model_for_newcomers(recommender, request.user)
            user = world.fold.start(recommender, model, 0, context.shape[1])
        else:
            model = world.state.model_for(user)
        return Begun(
            request=request,
            decision_id=request.decision_id or self.new_id(),
            digest=digest,
            at=self.now(),
            seen=world.seq,
            user=user,
            model=model,
            newcomer=newcomer,
            fixes_n_features=world.state.n_features is None,
            ids=ids,
            context=context,
            sent=sent,
            draw=begin_draw(world, user, model, ids, context.shape[1], rows, draws),
            rules=self._read_rules(request, ids) if request.has_rules else None,
        )

    def finish(self, begun: Begun) -> Entry:
        """Do the rest of `decide`; reads nothing that later events change, so it may run in another thread."""
        request, user, ids, context = begun.request, begun.user, begun.ids, begun.context
        decision_id, model, rules = begun.decision_id, begun.model, None
        if begun.rules is None:
            taken = draw_arms(begun.draw, ids, context, decision_id, request.k)
        else:
            taken, rules = draw_under_rules(begun.draw, ids, context, decision_id, begun.rules)
        body = events.DecisionBody(
            at=begun.at,
            seen=begun.seen,
            recommender=user.recommender,
            n_arms=len(ids),
            arms=None if request.arms is None else ids,
            x=None if begun.sent is None else begun.sent.tobytes(),
            user_x=None if request.x is None else np.array(request.x).tobytes(),
            taken=taken,
            digest=begun.digest,
            listed=request.k is not None,
            chosen=None if request.chosen is None else self._record_chosen(begun),
            own=request.chosen is None or request.chosen_propensity is not None,
            rules=rules,
        )
        return Entry(
            NewRow(decision_id, "decision", request.user, model, events.encode(body)),
            body,
            self.answer(decision_id, model, body),
            key=decision_id,
            newcomer=begun.newcomer,
            fixes_n_features=begun.fixes_n_features,
            made_from=begun.seen,
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
        request, user, model, ids = begun.request, begun.user, begun.model, begun.ids
        assert request.chosen is not None
        if request.k is not None:
            raise Problem(422, "chosen names one arm and k asks for a list; leave one out", field="k")
        if request.chosen not in ids:
            words = f"chosen is {request.chosen!r}, which is not among the arms; name one of them"
            raise Problem(422, words, field="chosen")
        spec = self.world.state.recommenders[user.recommender]
        if spec.traits.needs_propensity_of_every_arm and model != WARMUP:
            words = f"{spec.bandit} needs the probability of every arm and cannot learn from an arm that you chose"
            raise Problem(422, f"{words}; decide without chosen", field="chosen")
        if spec.traits.needs_propensity_of_chosen and model != WARMUP and request.chosen_propensity is None:
            words = f"{spec.bandit} weighs a reward by the probability of its arm"
            raise Problem(422, f"{words}; send chosen_propensity, 1 if nothing was random", field="chosen_propensity")
        propensity = request.chosen_propensity or 1.0
        return record_callers_arm(begun.draw, ids, begun.context, request.chosen, propensity)

    def answer_again(self, row: Row, digest: bytes | None) -> bytes:
        """Return the answer of a logged decision, if its request was the same."""
        if row.kind != "decision":
            raise Problem(422, f"{row.id} is the id of another event; choose another id", field="decision_id")
        body = events.decode("decision", row.body)
        if body.digest != digest:
            words = f"decision {row.id} was made for another request; repeat that request, or choose another id"
            raise Problem(422, words, field="decision_id")
        return self.answer(row.id, row.model or WARMUP, body)

    def answer(self, decision_id: str, model: int, body: events.DecisionBody) -> bytes:
        """Return the answer of a decision event, always the same bytes."""
        ours, shown = body.taken[0], body.shown[0]
        slots = None
        if body.listed:
            slots = tuple(
                messages.Slot(arm.id, arm.propensity, slot_id(decision_id, i)) for i, arm in enumerate(body.taken)
            )
        return _JSON.encode(
            messages.DecisionAnswer(
                decision_id=decision_id,
                arm=shown.id,
                propensity=shown.propensity if body.own else None,
                distribution=tuple(ours.full_distribution(body.n_arms).tolist()),
                model=model,
                policy=policy_name(self.world.state.recommenders[body.recommender], model),
                recommender=body.recommender,
                slots=slots,
                would=None if body.chosen is None else ours.id,
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
