"""Many decisions or rewards at once, each as if it had been sent alone at the same moment.

Those that need not wait are built in a row, without a task for each; decisions from the same arms are drawn together.
The others, such as a second decision of a new user, go the way of single requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from lcb.errors import StoreError
from lcb.messages import DecisionRequest, RewardRequest
from lcb.serve.decide.decisions import Begun
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.large import has_many_numbers
from lcb.serve.decide.together import Together, is_plain
from lcb.serve.errors import Problem
from lcb.serve.event_ids import changes_reward, decision_of_slot, reward_id
from lcb.serve.log.journal import Journal
from lcb.serve.log.waiting import IdTaken
from lcb.serve.service import Service
from lcb.serve.state.reward_slots import RewardSlot
from lcb.serve.state.world import World
from lcb.stats import n_packed

_PART = 8_000_000  # bytes of users that one part of a batch takes in memory
_PARTS_OF_CACHE = 16  # that many parts find room in memory at least, each for its users until they are stored
_SOME = 0.005  # seconds in which users are loaded between two pauses
Outcome = bytes | Problem | StoreError
Request = TypeVar("Request", DecisionRequest, RewardRequest)


async def decide_many(service: Service, requests: Sequence[DecisionRequest], *, plain: bool = False) -> list[Outcome]:
    """Return the answers and refusals in the order of the requests; `plain` ones have nothing but user and arms."""
    found: dict[int, Outcome] = {}
    entries = build_decisions(service, requests, found, plain=plain)
    newcomers = [requests[i].user for i, entry in entries.items() if entry.newcomer]
    return await _store(service, requests, service.decide, entries, found, newcomers)


async def split_by_users(
    service: Service, users: Iterable[str | None], pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[slice]:
    """Yield the places of a part of a batch after the other, so that the users of each take few MB of memory.

    The next part is asked for when this one is stored.  Users of a local store are loaded on the way; after some
    milliseconds of that, and before each further part, others have their turn in a `pause`.
    """
    world, n, first, n_bytes, until = service.world, 0, 0, 0, time.perf_counter() + _SOME
    most = _PART if world.cache.most_bytes is None else min(_PART, world.cache.most_bytes // _PARTS_OF_CACHE)
    for n, name in enumerate(users):
        size = 0 if name is None else _weigh(world, name)
        if n_bytes + size > most and n > first:
            yield slice(first, n)
            first, n_bytes, until = n, 0, 0.0
        n_bytes += size
        if time.perf_counter() > until:
            await pause()
            until = time.perf_counter() + _SOME
    yield slice(first, n + 1)


def _weigh(world: World, name: str) -> int:
    """Return the bytes that a user takes in memory, for which a user who is not large is loaded; else a guess."""
    user = world.cache.get(name)
    if user is None and world.has_user(name):
        user = world.cache.peek(name)
    return _guess_weight(world) if user is None else user.held


def _guess_weight(world: World) -> int:
    """Return what a user may take who is new, or was not read: the mean, at least the statistics of a warm-up."""
    mean, state = world.cache.n_bytes // max(len(world.cache), 1), world.state
    if state.n_features is None or all(map(state.is_pinned, state.recommenders)):
        return mean
    return max(mean, 8 * n_packed(state.n_features))


async def reward_many(
    service: Service, requests: Sequence[RewardRequest], missing: Mapping[str, Problem] | None = None
) -> list[Outcome]:
    """Return the answers and refusals in the order of the requests.

    `missing` is what `Service.fetch_slots` has returned, if it was called for these requests.
    Rewards that change earlier ones are stored last: what comes between them would need their user folded each time.
    """
    found: dict[int, Outcome] = {}
    if missing is None:
        missing = await service.fetch_slots([one.decision_id for one in requests])
    entries = build_rewards(service, requests, found, missing)
    changes = {i: entries.pop(i) for i, entry in list(entries.items()) if changes_reward(entry.row.id)}
    return await _store(service, requests, service.reward, entries | changes, found)


async def _store(
    service: Service,
    requests: Sequence[Request],
    ask_alone: Callable[[Request], Awaitable[bytes]],
    entries: dict[int, Entry],
    found: dict[int, Outcome],
    newcomers: Sequence[str] = (),
) -> list[Outcome]:
    """Store entries by place of their requests, ask for what is neither there nor in `found`, and return all outcomes.

    The next decisions of newcomers wait until these entries are stored.
    """
    later: dict[int, asyncio.Future[bytes]] = {}
    for user in newcomers:
        service.arriving[user] = asyncio.Event()
    try:
        done = _append(service.journal, entries, found)
        for i, request in enumerate(requests):
            if i not in entries and i not in found:
                later[i] = asyncio.ensure_future(ask_alone(request))
        try:
            if done is not None:
                await done
            answers: dict[int, Outcome] = {i: entry.answer for i, entry in entries.items()}
        except IdTaken as taken:
            answers = {i: entry.answer for i, entry in entries.items() if entry.row.id not in taken.ids}
            for i in entries.keys() - answers.keys() - found.keys():
                later[i] = asyncio.ensure_future(ask_alone(requests[i]))
        except (Problem, StoreError) as error:
            answers = dict.fromkeys(entries, error)
        found = answers | found
    finally:
        for user in newcomers:
            service.arriving.pop(user).set()
    for i, answer in zip(later, await asyncio.gather(*later.values(), return_exceptions=True), strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, (Problem, StoreError)):
            raise answer
        found[i] = answer
    return [found[i] for i in range(len(requests))]


def _append(journal: Journal, entries: dict[int, Entry], found: dict[int, Outcome]) -> asyncio.Future[None] | None:
    """Append as many entries as may wait for the store, and return their future; refusals go to `found`."""
    places, done = list(entries), None
    n = min(len(places), journal.room)
    try:
        if n:
            done = journal.append(*[entries[i] for i in places[:n]])
        if n < len(places):
            journal.check_room()
    except Problem as problem:
        found |= dict.fromkeys(places if done is None else places[n:], problem)
    return done


def build_decisions(
    service: Service, requests: Sequence[DecisionRequest], found: dict[int, Outcome], *, plain: bool = False
) -> dict[int, Entry]:
    """Return the new decisions of the requests that need not wait; refusals and repeated answers go to `found`."""
    decisions, begun = service.decisions, dict[int, Begun]()
    together = Together(service.world, requests, service.new_id)
    arriving, takes = service.arriving, not decisions.shadow
    newcomers, ids = set[str](), set[str]()  # a second request of one of these waits for the first
    for i, request in enumerate(requests):
        if takes and request.user not in arriving and (plain or is_plain(request)) and together.take(i, request):
            continue
        id = request.decision_id
        if request.user in newcomers or id in ids or not can_decide_now(service, request):
            continue
        try:
            one = decisions.begin(request, common=together.common)
        except (Problem, StoreError) as error:
            found[i] = error
            continue
        if isinstance(one, bytes):
            found[i] = one
            continue
        begun[i] = one
        if one.newcomer:
            newcomers.add(request.user)
        if id is not None:
            ids.add(id)
    made: dict[int, Entry] = {}
    for i, entry in sorted(decisions.finish_many(together, begun).items()):
        if isinstance(entry, Problem):
            found[i] = entry
        else:
            made[i] = entry
    return made


def build_rewards(
    service: Service,
    requests: Sequence[RewardRequest],
    found: dict[int, Outcome],
    missing: Mapping[str, Problem] = MappingProxyType({}),
) -> dict[int, Entry]:
    """Return the new rewards of the requests that need not wait; refusals and repeated answers go to `found`.

    `missing` are refusals by decision: those that the log was just found not to have.
    """
    made, slots = dict[int, Entry](), set[str]()  # a second reward of a slot waits for the first
    for i, request in enumerate(requests):
        id = request.decision_id
        try:
            if id in slots:
                continue
            slot = find_slot_now(service, id)
            if slot is None:
                if (refusal := missing.get(decision_of_slot(id))) is not None and not is_coming(service, id):
                    found[i] = refusal
                continue
            entry = service.rewards.reward(request, slot)
        except (Problem, StoreError) as error:
            found[i] = error
            continue
        if isinstance(entry, bytes):
            found[i] = entry
        else:
            made[i] = entry
            slots.add(id)
    return made


def can_decide_now(service: Service, request: DecisionRequest) -> bool:
    """Whether a decision needs no read, no thread and no other request first."""
    world, id = service.world, request.decision_id
    if world.state.n_features is None or request.seen is not None or has_many_numbers(world.state, request):
        return False
    if id is not None and (not service.store.inline or service.journal.pending(id) is not None):
        return False
    return request.user not in service.arriving and world.has_user(request.user)


def is_coming(service: Service, id: str) -> bool:
    """Whether the decision of a slot, or its reward, waits for the store."""
    journal = service.journal
    return journal.pending(decision_of_slot(id)) is not None or journal.pending(reward_id(id)) is not None


def find_user_now(service: Service, id: str) -> str | None:
    """Return the user of a slot; None if that needs a read in a thread or another request first, or there is none."""
    slots = service.slots
    if is_coming(service, id) or (id not in slots and not service.can_read_slots(decision_of_slot(id))):
        return None
    try:
        return slots.get(id).user
    except (Problem, StoreError):  # told when the reward itself is built
        return None


def find_slot_now(service: Service, id: str) -> RewardSlot | None:
    """Return a slot; None if its reward needs a read in a thread or another request first.

    Raises Problem if the slot is archived, or if there is none.
    """
    slots, decision_id = service.slots, decision_of_slot(id)
    if is_coming(service, id):
        return None
    if id not in slots and not service.can_read_slots(decision_id):
        return None
    slot = slots.get(id)
    return slot if service.world.has_user(slot.user) else None
