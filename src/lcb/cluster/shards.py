"""Users on the machines of a cluster, as learners see them.

A call to a shard changes nothing there, so a call that is lost with its process is made again on another one, which is
filled from the source first: the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable
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
        for number, node in enumerate(nodes):
            self.places[number] = node
            self.actors[number] = self.cluster.start_shard((self.ends[number], self.ends[number + 1]), node)
        self.cluster.n_nodes = len(nodes)
        free = self.cluster.check_versions(list(self.actors.values()), nodes)
        self.source.check_memory(free)
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
        moved = {}
        for number in lost:
            node = next((one for one in nodes if one.id == self.places[number].id), nodes[number % len(nodes)])
            self.cluster.ray.kill(self.actors[number])
            if node.id != self.places[number].id:
                moved[number] = node
            self.places[number] = node
            self.actors[number] = self.cluster.start_shard((self.ends[number], self.ends[number + 1]), node)
        self._check_room(moved)
        self.cluster.n_nodes = len({node.id for node in self.places.values()})
        before = {number: self.holdings.get(number) for number in lost}
        self._fill(list(lost), silent)
        if any(before[number] not in (None, self.holdings[number]) for number in lost):
            raise ClusterError("the events changed while they were learned from; run the command again")
        if self.firsts:
            self._place(list(lost))

    def _check_room(self, moved: dict[int, Node]) -> None:
        """Refuse to put users of lost machines where they do not fit, or where lcb is another."""
        free = self.cluster.check_versions([self.actors[number] for number in moved], list(moved.values()))
        room = {node.id: memory for node, memory in zip(moved.values(), free, strict=True)}
        for number, node in moved.items():
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
