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

    With `always`, every process is; with `wait`, it says that it has begun and waits to be killed by others.
    """

    work: Any
    mark: str
    always: bool = False
    wait: bool = False

    @property
    def span(self) -> int | None:
        return self.work.span

    def prepare(self, log: Any, map_spans: Any) -> Callable[[slice, int], Any]:
        mark = Path(self.mark)
        if self.always or not mark.exists():
            mark.write_text(str(os.getpid()))
            if self.wait:
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work.prepare(log, map_spans)
