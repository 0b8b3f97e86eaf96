"""What to do about a request: the answer the log already has, or an event to append and the answer that goes with it.

Nothing here waits or writes.  A decision is made from the world as it is, notes how far that had come (`seen`), and
draws by a number that follows from the log's seed and the decision's id alone, so that anyone can make it again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from lcb import messages
from lcb.events import Floats
from lcb.features import cross
from lcb.serve import events
from lcb.serve.decide.drawing import draw, number, record_callers_arm
from lcb.serve.decide.validation import check_ids, check_printable, check_size, check_user, item_kept, vectors
from lcb.serve.errors import Problem
from lcb.serve.event_ids import decision_of_slot, reward_id, slot_id, slot_of_reward
from lcb.serve.state.model_version import Damaged
from lcb.serve.state.service_state import policy_name
from lcb.serve.state.users import WARMUP, User
from lcb.serve.state.world import World
from lcb.storage.store.base import NewRow, Row

_MOST_OPEN = 20_000
_JSON = msgspec.json.Encoder()


class Entry(msgspec.Struct):
    """An event that is not in the log yet, what its record says, and what to answer once it is there.

    `key` names what it is about: as long as one is on its way, another of the same key waits.
    """

    row: NewRow
    body: Any
    answer: bytes
    key: str
    newcomer: bool = False  # the first decision of somebody new, which fixes recommender and models
    first: bool = False  # it fixes how many features there are: it holds if nobody else wrote meanwhile


class Open:
    """A decision's slot that a reward may come for; `reward` is what counts now, None before the first.

    `n` rewards have come that changed it; `parts` are those of a sum, by their reward_id.
    """

    __slots__ = ("model", "n", "parts", "recommender", "reward", "seq", "taken", "user")

    def __init__(self, seq: int, user: str, model: int | None, recommender: str, taken: events.ChosenArm) -> None:
        self.seq, self.user, self.model, self.recommender, self.taken = seq, user, model, recommender, taken
        self.reward: float | None = None
        self.n = 0
        self.parts: dict[str, float] | None = None

    def apply(self, body: events.RewardBody) -> None:
        self.reward = body.reward
        self.n += 1
        if body.part is not None and body.sent is not None:
            self.parts = {**(self.parts or {}), body.part: body.sent}


class Desk:
    """Decides by the world; `shares` are of the users, `now` the clock, `new_id` makes ids that nobody else makes."""

    def __init__(
        self, world: World, shares: Mapping[str, float], now: Callable[[], float], new_id: Callable[[], str],
        *, shadow: bool = False,
    ) -> None:  # fmt: skip
        self.world, self.now, self.new_id, self.shadow = world, now, new_id, shadow
        self.shares = dict(shares)
        self.open: OrderedDict[str, Open] = OrderedDict()

    # Decisions

    def decide(
        self, request: messages.DecisionRequest, recommender: str | None = None, known: Row | None = None
    ) -> Entry | bytes:
        """The answer of a decision made before under this id, or a new one.

        `known` is the event of that id, read before, where the store is far.
        """
        digest = None
        if request.decision_id is not None:
            digest = _digest(request)
            known = self.world.store.event(request.decision_id) if self.world.store.inline else known
            if known is not None and known.seq <= self.world.seq:
                return self.answered(known, digest)
        if not self.shadow and request.chosen is None and request.chosen_propensity is not None:
            raise Problem(422, "chosen_propensity without chosen; name the arm you took", field="chosen_propensity")
        if self.shadow and request.chosen is None:
            raise Problem(422, "the service runs as a shadow: it wants the arm you took in chosen", field="chosen")
        ids, context, x = self.context(request)
        name = request.user
        user = self.world.user(name)
        newcomer = user is None
        if user is None:
            recommender = recommender or self.assigned(name)
            model = self.world.model_for_newcomers(recommender)
            user = self.world.newcomer(recommender, model, 0, context.shape[1])
        decision_id = request.decision_id or self.new_id()
        taken = draw(self.world, user, ids, context, decision_id, request.k)
        chosen = None if request.chosen is None else self._chosen(request, user, ids, context)
        body = events.DecisionBody(
            self.now(), self.world.seq, user.recommender, len(ids), None if request.arms is None else ids, x,
            None if request.x is None else np.array(request.x).tobytes(), taken, digest, request.k is not None,
            chosen, request.chosen is None or request.chosen_propensity is not None,
        )  # fmt: skip
        row = NewRow(decision_id, "decision", name, user.model, events.encode(body))
        return Entry(row, body, self.answer(decision_id, user.model, body), decision_id, newcomer, self.first)

    def context(self, request: messages.DecisionRequest) -> tuple[list[str], Floats, bytes | None]:
        """The ids and features (K, d) of the arms; the bytes of the features where they came with the request."""
        check_user(request.user)
        arms, sent, own = request.arms, None, None
        if arms is None:
            ids, context = self.world.catalogue.ids, self.world.catalogue.whole()
            if not ids:
                raise Problem(422, "no arms and the catalogue is empty; send arms, or PUT /v1/items", field="arms")
        else:
            ids = [arm.id for arm in arms]
            check_ids(ids)
            if arms[0].x is None:
                context = self._named(arms, ids)
            else:
                context = vectors(arms)
                sent = context.tobytes()
        if request.x is not None:
            own = np.array(request.x)
            check_size(own[None], "x")
        size = context.shape[1] * (1 + len(request.x or ()))
        n_features = self.world.n_features
        if n_features is not None and size != n_features:
            raise self._wrong_size(size, request)
        if size > messages.MOST_FEATURES:
            raise Problem(
                422, f"the arms have {size} features with the user's crossed in, {messages.MOST_FEATURES} is the most; "
                "send fewer", field="x",
            )  # fmt: skip
        return ids, context if own is None else cross(context, own), sent

    def _named(self, arms: list[messages.Arm], ids: list[str]) -> Floats:
        try:
            context = self.world.catalogue.x(ids)
        except KeyError as error:
            i = ids.index(error.args[0])
            raise Problem(
                422, f"arm {ids[i]!r} has no features and is not in the catalogue; send x, or PUT /v1/items",
                field=f"arms[{i}].x",
            ) from None  # fmt: skip
        for i, arm in enumerate(arms):
            if arm.x is not None:
                raise Problem(
                    422, f"arms[0] names an item of the catalogue, arms[{i}] has features; send one kind",
                    field=f"arms[{i}].x",
                )  # fmt: skip
        return context

    def _wrong_size(self, came: int, request: messages.DecisionRequest) -> Problem:
        crossed = "" if request.x is None else f" (with the user's {len(request.x)} crossed in)"
        where = "x" if request.x is not None or request.arms is None else "arms[0].x"
        return Problem(
            422, f"the arms have {came} features{crossed}, this service has {self.world.n_features}; send as many",
            field=where,
        )  # fmt: skip

    def assigned(self, user: str) -> str:
        """The recommender of a new user, by share; the same on every replica."""
        point = number(self.seed, f"share/{user}") * sum(self.shares.values())
        for name, share in self.shares.items():
            point -= share
            if point < 0:
                return name
        return next(name for name in reversed(self.shares) if self.shares[name] > 0)

    @property
    def first(self) -> bool:
        """Whether the log does not say yet how many features there are."""
        return self.world.n_features is None

    @property
    def seed(self) -> bytes:
        assert self.world.service is not None
        return self.world.service.seed

    def _chosen(
        self, request: messages.DecisionRequest, user: User, ids: list[str], context: Floats
    ) -> events.ChosenArm:
        if request.k is not None:
            raise Problem(422, "chosen names one arm and k asks for a list; leave one out", field="k")
        if request.chosen not in ids:
            raise Problem(
                422, f"chosen is {request.chosen!r}, which is not among the arms; name one of them", field="chosen"
            )
        spec = self.world.recommenders[user.recommender]
        if spec.traits.needs_propensity_of_every_arm and user.model != WARMUP:
            words = f"{spec.bandit} needs the probability of every arm and cannot learn from an arm that was chosen"
            raise Problem(422, f"{words}; decide without chosen", field="chosen")
        if spec.traits.needs_propensity_of_chosen and user.model != WARMUP and request.chosen_propensity is None:
            raise Problem(
                422, f"{spec.bandit} weighs a reward by how probable its arm was; send chosen_propensity, 1 where you "
                "left nothing to chance", field="chosen_propensity",
            )  # fmt: skip
        return record_callers_arm(self.world, user, ids, context, request.chosen, request.chosen_propensity or 1.0)

    def answered(self, row: Row, digest: bytes | None) -> bytes:
        """What was answered under an id, if the request was the same."""
        if row.kind != "decision":
            raise Problem(422, f"{row.id} is the id of something else; take another", field="decision_id")
        body = events.decode("decision", row.body)
        if body.digest != digest:
            raise Problem(
                422, f"decision {row.id} was made for another request; send that again, or take another id",
                field="decision_id",
            )  # fmt: skip
        return self.answer(row.id, row.model or 0, body)

    def answer(self, decision_id: str, model: int, body: events.DecisionBody) -> bytes:
        """The same bytes for the same event, now and later."""
        taken = body.taken
        first = body.shown[0]
        spec = self.world.recommenders[body.recommender]
        slots = None
        if body.listed:
            slots = tuple(messages.Slot(one.id, one.propensity, slot_id(decision_id, i)) for i, one in enumerate(taken))
        return _JSON.encode(
            messages.DecisionAnswer(
                decision_id, first.id, first.propensity if body.own else None,
                tuple(taken[0].full_distribution(body.n_arms).tolist()), model,
                policy_name(spec, model), body.recommender, slots,
                None if body.chosen is None else taken[0].id,
            )
        )  # fmt: skip

    # Rewards

    def reward(self, request: messages.RewardRequest) -> Entry | bytes:
        """The answer for a reward that is known already, or a new one."""
        slot = self.slot(request.decision_id)
        assert self.world.service is not None
        rule, bounds = self.world.service.rewards, self.world.service.reward_range
        reward = request.reward
        if bounds is not None and not bounds[0] <= reward <= bounds[1]:
            raise Problem(
                422, f"reward {reward:g} is outside the declared range [{bounds[0]:g}, {bounds[1]:g}]; "
                "send one inside, or declare the range of your rewards", field="reward",
            )  # fmt: skip
        if request.reward_id is not None and rule != "sum":
            raise Problem(422, f"reward_id is for rewards = sum, here it is {rule}; leave it out", field="reward_id")
        before, part = slot.reward, None
        if rule == "sum":
            part = request.reward_id or f"={reward!r}"
            sent = (slot.parts or {}).get(part)
            if sent is not None and sent != reward:
                words = f"reward {part} was {sent:g}, {reward:g} came; the first stands"
                raise Problem(409, words, field="reward")
            if sent is not None:
                return _JSON.encode(messages.RewardAnswer(request.decision_id, before or 0.0))
        elif before is not None:
            if before == reward or rule == "first":
                return _JSON.encode(messages.RewardAnswer(request.decision_id, before))
            if rule == "once":
                raise Problem(
                    409, f"decision {request.decision_id} has the reward {before:g}, {reward:g} came; the first stands "
                    "(a service may declare rewards as first, sum or last)", field="reward",
                )  # fmt: skip
        return self._rewarded(request.decision_id, slot, reward, part)

    def _rewarded(self, slot_id: str, slot: Open, sent: float, part: str | None) -> Entry:
        before, taken = slot.reward, slot.taken
        reward = sent if part is None else sent + (before or 0.0)
        try:
            self._check_reward(slot, reward)
        except Damaged as error:
            raise Problem(503, str(error), retry_after=60) from None
        body = events.RewardBody(
            self.now(), slot.seq, slot.recommender, reward, taken.propensity, taken.x, taken.at_random, taken.advice,
            before, None if part is None else sent, part,
        )  # fmt: skip
        row = NewRow(reward_id(slot_id, slot.n + 1), "reward", slot.user, slot.model, events.encode(body))
        return Entry(row, body, _JSON.encode(messages.RewardAnswer(slot_id, reward)), reward_id(slot_id))

    def _check_reward(self, slot: Open, reward: float) -> None:
        """Refuse what the bandit would not take, before it is in the log."""
        bandit, _ = self.world.bandit(slot.recommender, slot.model or 0)
        bounds = getattr(bandit, "reward_range", None)
        if bounds is not None and not bounds[0] <= reward <= bounds[1]:
            raise Problem(
                422, f"reward {reward:g} is outside [{bounds[0]:g}, {bounds[1]:g}], those that "
                f"{slot.recommender} knows; send one inside, or start a service with that reward_range", field="reward",
            )  # fmt: skip

    def slot(self, slot_id: str) -> Open:
        """The slot a reward is for."""
        found = self.open.get(slot_id)
        if found is None:
            self.open.update(self.find(slot_id))
            found = self.open[slot_id]
        self.open.move_to_end(slot_id)
        return found

    def find(self, slot_id: str) -> dict[str, Open]:
        """The slots of a decision of the log, with the rewards that count; reads only, from any thread."""
        decision_id = decision_of_slot(slot_id)
        upto = self.world.seq
        row = self.world.store.event(decision_id)
        if row is None or row.seq > upto or row.kind != "decision":
            raise Problem(404, f"no decision {decision_id!r}; check the id, or decide first", field="decision_id")
        slots = open_slots(row, events.decode("decision", row.body))
        if slot_id not in slots:
            wanted = "one of its slots" if slot_id != decision_id else "the reward_id of a slot"
            words = f"decision {decision_id!r} has no slot {slot_id!r}; send {wanted}"
            raise Problem(404, words, field="decision_id")
        assert row.user is not None
        for later in self.world.store.events_of(row.user, row.seq, upto):
            slot = slots.get(slot_of_reward(later.id)) if later.kind == "reward" else None
            if slot is not None:
                slot.apply(events.decode("reward", later.body))
        return slots

    def remember(self, slots: dict[str, Open]) -> None:
        """Keep slots at hand for the rewards that are to come."""
        self.open.update(slots)
        while len(self.open) > _MOST_OPEN:
            self.open.popitem(last=False)

    # After the commit

    def apply(self, row: Row, body: Any = None) -> None:
        """An event is in the log: the world moves, and what rewards will ask for is kept at hand."""
        body = events.decode(row.kind, row.body) if body is None else body
        self.world.apply(row, body)
        if row.kind == "decision":
            self.remember(open_slots(row, body))
        elif row.kind == "reward":
            slot = self.open.get(slot_of_reward(row.id))
            if slot is not None:
                slot.apply(body)
        elif row.kind == "erase":
            self.open.clear()

    # The catalogue

    def items(self, request: messages.ItemsRequest) -> Entry:
        """Items to add or change, their features made of categories where they have these."""
        check_ids([item.id for item in request.items], "items")
        for i, id in enumerate(request.remove):
            check_printable(id, f"remove[{i}]")
        rows = [item_kept(i, item, self.world.feature_map) for i, item in enumerate(request.items)]
        sizes = {len(row[1]) // 8 for row in rows}
        wanted = self.world.n_features or (len(rows[0][1]) // 8 if rows else 0)
        if rows and sizes != {wanted}:
            i = next(i for i, row in enumerate(rows) if len(row[1]) // 8 != wanted)
            words = f"item {rows[i][0]!r} has {len(rows[i][1]) // 8} features, wanted {wanted}; send as many"
            raise Problem(422, words, field=f"items[{i}].x")
        body = events.ItemsBody(self.now(), rows, request.remove, request.replace)
        row = NewRow(f"items/{self.new_id()}", "items", None, None, events.encode(body))
        left = set() if request.replace else set(self.world.catalogue.items)
        n = len((left - set(request.remove)) | {row[0] for row in rows})
        if n > messages.MOST_ITEMS:
            raise Problem(
                422, f"the catalogue would have {n:,} items, {messages.MOST_ITEMS:,} is the most; remove some, "
                "or send arms with each request", field="items",
            )  # fmt: skip
        answer = messages.ItemsAnswer(n, next(iter(sizes), self.world.n_features))
        return Entry(row, body, _JSON.encode(answer), row.id, first=self.first)


def open_slots(row: Row, body: events.DecisionBody) -> dict[str, Open]:
    """What rewards may come for, by reward_id."""
    assert row.user is not None
    slots = body.slots(row.id).items()
    return {id: Open(row.seq, row.user, row.model, body.recommender, arm) for id, arm in slots}


def _digest(request: messages.DecisionRequest) -> bytes:
    return hashlib.blake2b(events.encode(request), digest_size=16).digest()
