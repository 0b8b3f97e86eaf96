"""Users on the machines of a cluster, as learners see them.

A call to a shard changes nothing there, so a call that is lost with its process is made again on another one, which is
filled from the source first: the result is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from lcb.arrays import Floats, Index
from lcb.cluster.calls import Calls, Lost, Node
from lcb.cluster.shard import Holding, join_logs
from lcb.cluster.sources import FromFiles, FromLog, check_same, need_moved_room
from lcb.cluster.trees import N_PARTS, add_all
from lcb.errors import ClusterError
from lcb.event_log import EventLog
from lcb.learners.likelihood import MOST_ARMS
from lcb.learners.shared.users import Work
from lcb.progress import Progress, silent
from lcb.version import __version__

_MOST_STARTS = 3  # of a process that is lost before its first answer
_NOTICE_SECONDS = 1.0  # between them
S = TypeVar("S")


class Shards:
    """Users in 256 parts on the machines of a cluster."""

    def __init__(self, cluster: Calls, source: FromLog | FromFiles) -> None:
        self.cluster, self.source = cluster, source
        self.actors: dict[int, Any] = {}
        self.places: dict[int, Node] = {}
        self.holdings: dict[int, Holding] = {}
        self.ends: list[int] = []
        self.firsts: list[int] = []
        self.arms: Floats | None = None
        self.levels: tuple[float, float] | None = None
        self.constant: float | None = None
        self.features: tuple[str, ...] = ()
        self.n_users = self.n_events = self.n_features = 0
        self.two_valued = False

    def fill(self, progress: Progress = silent) -> None:
        """Start a process on every machine and give it its users."""
        nodes = self.cluster.list_nodes(probe=True)[:N_PARTS]
        self.ends = [round(i * N_PARTS / len(nodes)) for i in range(len(nodes) + 1)]
        free = self._start(dict(enumerate(nodes)))
        self.cluster.n_nodes = len(nodes)
        self.source.check_memory(list(free.values()))
        self._fill(list(self.actors), progress)
        self._describe()
        self._place(list(self.actors))

    def close(self) -> None:
        """End the processes."""
        for actor in self.actors.values():
            self.cluster.ray.kill(actor)
        self.actors = {}

    def take(self, index: ArrayLike) -> EventLog:
        """Return the users at these positions, here."""
        positions = np.asarray(index)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        owner = np.searchsorted(self.firsts, positions, side="right") - 1
        asked = {number: positions[owner == number] - self.firsts[number] for number in sorted(set(owner.tolist()))}
        logs = self._ask(lambda actor, number: actor.take.remote(asked[number]), list(asked), "some users")
        order = np.empty(len(positions), np.intp)
        order[np.argsort(owner, kind="stable")] = np.arange(len(positions))
        return join_logs(list(logs.values())).take(order)

    def read_few(self, positions: Index, progress: Progress = silent) -> EventLog:
        """Read the events of some of the first 20,000 users into this process; users keep their order."""
        assert isinstance(self.source, FromFiles)
        return self.source.read_few(self.cluster, positions, progress)

    def sums(self, work: Work[S]) -> S:
        """Return the sum over all parts, in their order."""
        found: S = self.add_answers(lambda actor: actor.sums.remote(work), "a step")
        return found

    def add_answers(self, call: Callable[[Any], Any], what: str) -> Any:
        """Return the sum over all parts of what a call to each shard answers."""
        return add_all(dict(chain.from_iterable(one.items() for one in self.ask_all(call, what).values())))

    def ask_all(self, call: Callable[[Any], Any], what: str) -> dict[int, Any]:
        """Return the answers of all shards."""
        return self._ask(lambda actor, _: call(actor), list(self.actors), what)

    def _ask(self, call: Callable[[Any, int], Any], numbers: list[int], what: str) -> dict[int, Any]:
        """Return the answers of some shards; one that was lost is replaced and asked again."""
        found: dict[int, Any] = {}
        while missing := [number for number in numbers if number not in found]:
            answers = self.cluster.wait([call(self.actors[number], number) for number in missing], what)
            lost = {}
            for number, answer in zip(missing, answers, strict=True):
                if isinstance(answer, Lost):
                    lost[number] = answer.reason
                else:
                    found[number] = answer
            if lost:
                self._replace(lost)
        return {number: found[number] for number in numbers}

    def _replace(self, lost: dict[int, str]) -> None:
        """Start lost shards anew, on their machine or, if that is gone, on another, and fill them again."""
        self.cluster.count_restart(list(lost.values()))
        nodes = self.cluster.list_nodes(probe=True)
        before_loss = dict(self.places)
        for number in lost:
            self.cluster.ray.kill(self.actors[number])
        free = self._start({number: _find_place(number, self.places[number], nodes) for number in lost})
        self._check_room({number: free[number] for number in lost if self.places[number] != before_loss[number]})
        self.cluster.n_nodes = len({node.id for node in self.places.values()})
        before = {number: self.holdings.get(number) for number in lost}
        self._fill(list(lost), silent)
        if any(before[number] not in (None, self.holdings[number]) for number in lost):
            raise ClusterError("the events changed while they were learned from; run the command again")
        if self.firsts:
            self._place(list(lost))

    def _start(self, places: dict[int, Node]) -> dict[int, float]:
        """Start the processes of some shards; return the bytes of memory that are free beside each.

        Ray does not know at once that a machine has come or gone: a process that is lost before its first answer is
        started again, on another machine if its own has gone.
        """
        self.places |= places
        free: dict[int, float] = {}
        lost: dict[int, str] = {}
        for attempt in range(_MOST_STARTS):
            if attempt:
                time.sleep(_NOTICE_SECONDS)
                nodes = self.cluster.list_nodes(probe=True)
                self.places |= {number: _find_place(number, self.places[number], nodes) for number in lost}
            missing = {number: self.places[number] for number in places if number not in free}
            for number, node in missing.items():
                self.actors[number] = self.cluster.start_shard((self.ends[number], self.ends[number + 1]), node)
            actors = [self.actors[number] for number in missing]
            found = dict(zip(missing, self.cluster.check_versions(actors, list(missing.values())), strict=True))
            lost = {number: one.reason for number, one in found.items() if isinstance(one, Lost)}
            free |= {number: one for number, one in found.items() if not isinstance(one, Lost)}
            if not lost:
                return {number: free[number] for number in places}
        number, reason = next(iter(lost.items()))
        raise ClusterError(
            f"lcb does not start on the node {self.places[number].address}; install lcb {__version__} there, with the "
            f"extra ray: {reason}"
        )

    def _check_room(self, moved: dict[int, float]) -> None:
        """Refuse to put users of lost machines where they do not fit; `moved` has the bytes that are free there."""
        room = {self.places[number].id: memory for number, memory in moved.items()}
        for number in moved:
            node = self.places[number]
            if number in self.holdings:
                n_users = sum(self.holdings[number].part_sizes)
                needed = self.source.count_bytes(n_users)
                need_moved_room(n_users, needed, node.address, room[node.id])
                room[node.id] -= needed

    def _fill(self, numbers: list[int], progress: Progress) -> None:
        actors = {number: self.actors[number] for number in numbers}
        found = self.source.fill(self.cluster, actors, self.ends, progress)
        lost = {number: answer.reason for number, answer in found.items() if isinstance(answer, Lost)}
        self.holdings |= {number: answer for number, answer in found.items() if number not in lost}
        if lost:
            self._replace(lost)

    def _describe(self) -> None:
        """Put together what the shards hold."""
        held = [self.holdings[number] for number in sorted(self.holdings)]
        sizes = [sum(one.part_sizes) for one in held]
        self.firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int).tolist()
        self.n_users, self.n_events = sum(sizes), sum(one.n_events for one in held)
        source = self.source
        if isinstance(source, FromLog):
            log = source.log
            self.features, self.n_features = log.features, log.n_features
            self.two_valued, self.constant, self.arms, self.levels = log.two_valued, log.constant, log.arms, log.levels
            return
        self.features = check_same(source.summaries)
        self.n_features = len(self.features)
        rewards = source.rewards or ()
        self.two_valued, self.constant = len(rewards) == 2, rewards[0] if len(rewards) == 1 else None
        counted = [one.n_arms for one, size in zip(held, sizes, strict=True) if size]
        if self.two_valued and None not in counted and max(n or 0 for n in counted) <= MOST_ARMS:
            arms = self._ask(lambda actor, _: actor.get_arms.remote(), list(self.actors), "the arms")
            union = np.unique(np.concatenate([one for one in arms.values() if one is not None]), axis=0)
            if len(union) <= MOST_ARMS:
                self.arms, self.levels = union, (rewards[0], rewards[1])

    def _place(self, numbers: list[int]) -> None:
        self._ask(lambda actor, number: actor.place_users.remote(self.firsts[number], self.arms), numbers, "the arms")


def _find_place(number: int, before: Node, nodes: Sequence[Node]) -> Node:
    """Return the machine where a shard was, or another if that has gone."""
    return next((one for one in nodes if one.id == before.id), nodes[number % len(nodes)])
