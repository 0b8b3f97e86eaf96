"""The exceptions of `lcb`, as a tree.

    LCBError                base class; the command line prints the message in one line and exits with 2
    ├── InputError          a value, row, file or option is invalid
    │   ├── EventError      one row of an event table; names the file, the row and the column
    │   ├── CategoryError   a category of an item is unknown or named twice; carries its place
    │   ├── TooFewRows      too little data for what was asked; more rows may be enough
    │   ├── BadRows         invalid rows of a log to be imported; carries the first of them
    │   └── ModelError      a folder of models is damaged, truncated or has other shapes
    ├── OutputError         a file or folder could not be written
    ├── StoreError          the event store could not be opened, or belongs to another service or version
    │   ├── UnreadableEvent   an event of the log cannot be read; carries its seq
    │   └── StoreUnavailable  the store cannot be read or written now: locked, full or gone; nothing changed
    ├── ServiceError        the service refused a request; carries status, detail and field
    ├── Unreachable         the service did not answer
    ├── WorkerLost          a worker process of this machine ended before its work was done
    ├── ClusterError        a cluster does not answer, has gone, has no room, or runs other versions
    └── MissingExtra        an optional package is not installed; carries the line that installs it
    ConvergenceWarning      a learner stopped before it converged
    LikelihoodWarning       0/1 rewards are modelled as Gaussian, because their counts are not there

Every message says what came, what was wanted and what to do next.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class LCBError(Exception):
    """Base class of all errors that `lcb` raises on purpose."""


class InputError(LCBError, ValueError):
    """A value, row, file or option is invalid."""


class EventError(InputError):
    """One row of an event table is invalid."""


class CategoryError(InputError):
    """A category of an item is unknown or named twice; `place` is its position in the list."""

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


class TooFewRows(InputError):
    """Too little data for what was asked; more rows may be enough."""


class BadRows(InputError):
    """Some rows of a log to be imported are invalid; `listed` describes the first of them."""

    def __init__(self, message: str, listed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.listed = listed


class ModelError(InputError):
    """A folder of models is damaged, truncated or has other shapes."""


class OutputError(LCBError):
    """A file or folder could not be written."""


class StoreError(LCBError):
    """The event store could not be opened, or belongs to another service or version.

    `replaced`: it no longer has what this process has read from it and written to it.
    """

    def __init__(self, message: str, *, replaced: bool = False) -> None:
        super().__init__(message)
        self.replaced = replaced


class UnreadableEvent(StoreError):
    """An event of the log is not one that lcb has written, for `reason`; `seq` is its number, if that is known."""

    def __init__(self, seq: int | None, reason: str) -> None:
        which = "an event" if seq is None else f"event {seq}"
        super().__init__(
            f"{which} of the log cannot be read ({reason}): it is not what was written; run lcb log verify, "
            "and restore the log from a backup"
        )
        self.seq, self.reason = seq, reason


class StoreUnavailable(StoreError):
    """The store cannot be read or written now; nothing was changed, and the call may be repeated."""

    def __init__(self, message: str, *, busy: bool = False, replaced: bool = False) -> None:
        super().__init__(message, replaced=replaced)
        self.busy = busy  # another process holds a lock: wait and try again


class ServiceError(LCBError):
    """The service refused a request; `field` is the part of the request that is wrong, where there is one.

    `again` is true where the same request may succeed later; of a batch, `outcomes` has its elements with their ids.
    """

    outcomes: Sequence[Any] = ()
    AGAIN = frozenset({429, 502, 503, 504})

    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field = status, detail, field
        self.again = status in self.AGAIN


class Unreachable(LCBError):
    """A service did not answer, for `reason`; the request may have been carried out, and may be sent again.

    Of a batch, `outcomes` has the elements with their ids.
    """

    outcomes: Sequence[Any] = ()
    again = True

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class WorkerLost(LCBError):
    """A worker process of this machine ended before its work was done."""


class ClusterError(LCBError):
    """A cluster does not answer, has gone, has no room, or runs other versions."""


class MissingExtra(LCBError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; in a checkout of lcb run: {install_line(extra)}")


def install_line(extra: str) -> str:
    """Return the command that installs an extra, to be run in a checkout, because lcb is not on a package index.

    >>> install_line("serve")
    "pip install '.[serve]'"
    """
    return f"pip install '.[{extra}]'"


@contextmanager
def need_extra(extra: str) -> Iterator[None]:
    """Raise MissingExtra if an import in the block fails because a package of `extra` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "lcb"):  # a bug in lcb itself
            raise
        raise MissingExtra(package, extra) from None


class ConvergenceWarning(UserWarning):
    """A learner stopped before it converged."""


class LikelihoodWarning(UserWarning):
    """Rewards of 0 and 1 are modelled as Gaussian, because their counts are not there."""
