"""Calls to the processes of a cluster: started on a machine, waited for, found lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lcb.cluster.heads import Head, answers, describe_version
from lcb.cluster.shard import Shard
from lcb.errors import ClusterError, LCBError
from lcb.version import __version__

MOST_RESTARTS = 3
_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Lost:
    """A process that ended before it answered."""

    reason: str


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    address: str
    port: int
    n_cpus: int


class Calls:
    """A connection to a cluster."""

    def __init__(self, ray: Any, head: Head | None, step_seconds: float) -> None:
        self.ray, self.head, self.step_seconds = ray, head, step_seconds
        self.n_restarts = 0
        self.n_nodes = 0  # at work on the users that are held

    def list_nodes(self, *, probe: bool = False) -> list[Node]:
        """Return the machines at work, in a fixed order; `probe` finds those that have gone before Ray notices."""
        alive = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        nodes = [
            Node(one["NodeID"], one["NodeManagerAddress"], one["NodeManagerPort"], int(one["Resources"]["CPU"]))
            for one in alive
            if not probe or answers((one["NodeManagerAddress"], one["NodeManagerPort"]))
        ]
        if not nodes:
            raise ClusterError("no machine of the cluster has a CPU to work with; add a node: ray start --address ...")
        return sorted(nodes, key=lambda node: (node.address, node.id))

    def start_shard(self, parts: tuple[int, int], node: Node) -> Any:
        """Start a process on a machine, which will hold these parts."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        at = NodeAffinitySchedulingStrategy(node.id, soft=False)  # else Ray may start it on a head without CPUs
        remote = self.ray.remote(Shard).options(num_cpus=0, scheduling_strategy=at, max_restarts=0)
        return remote.remote(parts, node.n_cpus)

    def check_versions(self, actors: Sequence[Any], nodes: Sequence[Node]) -> list[float | Lost]:
        """Return the bytes of memory that are free beside each process, or that it was lost.

        Refuse another version of lcb.
        """
        found = self.wait([actor.describe.remote() for actor in actors], "the first answer of every machine")
        free: list[float | Lost] = []
        for answer, node in zip(found, nodes, strict=True):
            if not isinstance(answer, Lost) and answer[0] != __version__:
                raise ClusterError(describe_version(node.address, answer[0], __version__))
            free.append(answer if isinstance(answer, Lost) else answer[1])
        return free

    def wait(
        self, calls: Sequence[Any], what: str, done: Callable[[int], None] | None = None, *, deadline: bool = True
    ) -> list[Any]:
        """Return the results of calls in their order; one whose process ended is `Lost`.

        An error that a call raised is raised again.  Raise ClusterError if the cluster goes away, or at the deadline.
        """
        waiting, last, end = list(calls), 0, time.monotonic() + self.step_seconds
        while waiting:
            _, waiting = self.ray.wait(waiting, num_returns=len(waiting), timeout=_POLL_SECONDS)
            if len(calls) - len(waiting) > last:
                last, end = len(calls) - len(waiting), time.monotonic() + self.step_seconds
                if done:
                    done(last)
            if waiting and self.head is not None and not answers(self.head):
                raise ClusterError(
                    f"the Ray cluster at {self.head[0]}:{self.head[1]} has gone while {what} was computed; start it "
                    "again, and run the command again"
                )
            if waiting and deadline and time.monotonic() > end:
                raise self._miss(what, f"{len(waiting)} of {len(calls)}")
            if waiting and not deadline:
                self.list_nodes()  # raises if none is left that could answer
        return [self._get(call, what) for call in calls]

    def _miss(self, what: str, missing: str) -> ClusterError:
        return ClusterError(
            f"{what} has not come for {self.step_seconds:.0f} s: {missing} answers are missing; see whether a node is "
            "overloaded (ray status), use fewer users or more nodes"
        )

    def _get(self, call: Any, what: str) -> Any:
        """Return the result of a call that has ended, or that its process was lost."""
        errors = self.ray.exceptions
        lost = (
            errors.RayActorError,
            errors.ActorUnschedulableError,
            errors.WorkerCrashedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,
            errors.NodeDiedError,
        )
        try:
            return self.ray.get(call, timeout=self.step_seconds)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, lost):
                return Lost(_shorten(cause))
            if isinstance(cause, LCBError):
                raise cause from None
            raise ClusterError(f"a step failed on the cluster: {_shorten(cause or error)}") from error
        except errors.GetTimeoutError:
            raise self._miss(what, "some") from None
        except errors.LocalRayletDiedError:
            raise ClusterError(
                "Ray has ended on this machine, which the command needs; start it again (ray start --address ...)"
            ) from None
        except lost as error:
            return Lost(_shorten(error))

    def count_restart(self, reasons: Sequence[str]) -> None:
        """Allow the next restart, or raise."""
        self.n_restarts += 1
        if self.n_restarts > MOST_RESTARTS:
            raise ClusterError(
                f"processes of the cluster ended {self.n_restarts} times, {MOST_RESTARTS} are allowed; the last: "
                f"{reasons[-1]}; if that is memory, use --float32, --users or more nodes"
            )


def _shorten(error: BaseException) -> str:
    """Return what an error says, without the lines in which Ray names the process."""
    words = " ".join(" ".join(line for line in str(error).splitlines() if not line.startswith("\t")).split())
    return words if len(words) <= 200 else words[:200] + "..."
