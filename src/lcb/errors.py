"""What can go wrong, as a tree.

    LCBError                the parent of all: the command line prints it in one line and exits with 2
    ├── InputError          a value, row, file or option is not what was wanted
    │   ├── EventError      one row of an event table; names the file, the row and the column
    │   ├── CategoryError   a category of an item is unknown or named twice; carries its place
    │   ├── TooFewRows      what was asked for cannot be seen in so little; more of the same may show it
    │   ├── BadRows         some rows of a log to be imported; carries the first of them
    │   └── ModelError      a folder of models is damaged, truncated or of another shape
    ├── OutputError         a place could not be written
    ├── StoreError          the service's log could not be opened, or is not what was wanted
    │   └── StoreUnavailable  it cannot be read or written just now: locked, full or gone; nothing was changed
    ├── ServiceError        a service refused what its client asked; carries the status, the words and the field
    ├── Unreachable         a service did not answer its client
    └── MissingExtra        an optional package is not installed; carries the line that installs it
    ConvergenceWarning      a learner stopped before it settled

Every message says what came, what was wanted and what to do next.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class LCBError(Exception):
    """The parent of every error `lcb` raises on purpose."""


class InputError(LCBError, ValueError):
    """A value, row, file or option is not what was wanted."""


class EventError(InputError):
    """One row of an event table is wrong."""


class CategoryError(InputError):
    """A category of an item is unknown or named twice; `place` is its position in the list."""

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


class TooFewRows(InputError):
    """What was asked for cannot be seen in so little; more of the same may show it."""


class BadRows(InputError):
    """Some rows of a log to be imported are wrong; `listed` are the first of them."""

    def __init__(self, message: str, listed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.listed = listed


class ModelError(InputError):
    """A folder of models is damaged, truncated or of another shape."""


class OutputError(LCBError):
    """A place could not be written."""


class StoreError(LCBError):
    """The log of the service could not be opened, or is not what was wanted."""


class StoreUnavailable(StoreError):
    """The log cannot be read or written just now; nothing was changed, and the same may be tried again."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy  # another holds it for a moment: worth waiting for


class ServiceError(LCBError):
    """A service refused what was asked; `field` names the place in the request where there is one.

    `again` where it said that it cannot just now, and the same may be asked later.
    """

    AGAIN = frozenset({429, 502, 503, 504})

    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field = status, detail, field
        self.again = status in self.AGAIN


class Unreachable(LCBError):
    """A service did not answer, for `reason`; the request may have been carried out, and may be sent again."""

    again = True

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class MissingExtra(LCBError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; in a checkout of lcb run: {install_line(extra)}")


def install_line(extra: str) -> str:
    """Return the command that installs the packages of an extra, to be run in a checkout: lcb is on no index.

    >>> install_line("serve")
    "pip install '.[serve]'"
    """
    return f"pip install '.[{extra}]'"


@contextmanager
def need_extra(extra: str) -> Iterator[None]:
    """Around imports: raise MissingExtra if a package of `extra` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "lcb"):  # a mistake in lcb itself
            raise
        raise MissingExtra(package, extra) from None


class ConvergenceWarning(UserWarning):
    """A learner stopped before it settled."""
