"""Many decisions at once, each as if it had been sent alone at the same moment.

Those that need not wait are decided in a row, without a task for each, and what their arms have in common is computed
once.  The others, such as a second decision of a new user, go the way of single requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from lcb.errors import StoreError
from lcb.messages import DecisionRequest
from lcb.serve.decide.arms import CommonArms
from lcb.serve.decide.entry import Entry
from lcb.serve.decide.large import is_large
from lcb.serve.errors import Problem
from lcb.serve.log.journal import IdTaken
from lcb.serve.service import Service

Outcome = bytes | Problem | StoreError


async def decide_many(service: Service, requests: Sequence[DecisionRequest]) -> list[Outcome]:
    """Return the answers and refusals in the order of the requests."""
    found: dict[int, Outcome] = {}
    waiting: list[tuple[int, Entry, asyncio.Future[None]]] = []
    newcomers, later = list[str](), dict[int, Awaitable[bytes]]()
    common = CommonArms(service.world.state)
    try:
        for i, request in enumerate(requests):
            if not can_decide_now(service, request):
                later[i] = asyncio.ensure_future(service.decide(request))
                continue
            try:
                entry = service.decisions.decide(request, common=common)
                if isinstance(entry, bytes):
                    found[i] = entry
                    continue
                waiting.append((i, entry, service.journal.append(entry)))
            except (Problem, StoreError) as error:
                found[i] = error
                continue
            if entry.newcomer:
                service.arriving[request.user] = asyncio.Event()
                newcomers.append(request.user)
        for i, entry, stored in waiting:
            try:
                await stored
                found[i] = entry.answer
            except IdTaken:
                later[i] = service.decide(requests[i])
            except (Problem, StoreError) as error:
                found[i] = error
    finally:
        for user in newcomers:
            service.arriving.pop(user).set()
    for i, answer in zip(later, await asyncio.gather(*later.values(), return_exceptions=True), strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, (Problem, StoreError)):
            raise answer
        found[i] = answer
    return [found[i] for i in range(len(requests))]


def can_decide_now(service: Service, request: DecisionRequest) -> bool:
    """Whether a decision needs no read, no thread and no other request first."""
    world, id = service.world, request.decision_id
    if world.state.n_features is None or request.seen is not None or is_large(world.state, request):
        return False
    if id is not None and (not service.store.inline or service.journal.pending(id) is not None):
        return False
    return request.user not in service.arriving and world.has_user(request.user)
