"""Work whose process is killed, or waits, in the middle of a step."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DyingWork:
    """Does `work`; the first process that begins it is killed with SIGKILL, after it has written the file `mark`.

    With `always`, every process is; with `wait`, it waits instead; with `node`, its node (the raylet that started it)
    is killed first; with `head`, the GCS server among the children of that process is killed, and then it waits.
    Processes on the node `spare` live on.
    """

    work: Any
    mark: str
    always: bool = False
    wait: bool = False
    node: bool = False
    head: int | None = None
    spare: str | None = None

    @property
    def span(self) -> int | None:
        return self.work.span

    def prepare(self, log: Any, map_spans: Any) -> Callable[[slice, int], Any]:
        self._die()
        return self.work.prepare(log, map_spans)

    def run(self, rows: Any) -> Any:
        """Sum the rewards of items, as `SumItems` does."""
        self._die()
        return self.work.run(rows)

    def _die(self) -> None:
        if not self._is_spared() and (self._is_first() or self.always):
            if self.head is not None:
                _kill_gcs(self.head)
            if self.wait or self.head is not None:
                time.sleep(600)
            if self.node:
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_spared(self) -> bool:
        if self.spare is None:
            return False
        import ray

        return ray.get_runtime_context().get_node_id() == self.spare

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def _kill_gcs(parent: int) -> None:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (gcs,) = (int(one) for one in children if b"gcs_server" in Path(f"/proc/{one}/cmdline").read_bytes())
    os.kill(gcs, signal.SIGKILL)
