"""Progress reports of long functions.

A long function takes `progress`, a callable `progress(what, done, total)`, and calls it as it goes;
`total` is None when the end is not known.  `bar` is one that draws on the terminal:

    with lcb.progress.bar() as progress:
        lcb.fit(stats, 30, rng=rng, progress=progress)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int | None], None]
_PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal to draw on


@contextmanager
def bar(enabled: bool = True) -> Iterator[Progress]:
    """Yield a `Progress` that draws a bar on standard error; without a terminal it prints a line every 10 s."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    if not enabled:
        yield silent
        return
    console = Console(stderr=True, markup=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _print_lines(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, object] = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)  # type: ignore[arg-type]
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total, visible=True)  # type: ignore[arg-type]

        yield progress


def silent(what: str, done: int, total: int | None) -> None:
    """Report nothing."""


def count_up(progress: Progress, what: str, total: int) -> Callable[[int], None]:
    """Report 0 of `total`, and return a function that reports the number done."""
    progress(what, 0, total)
    return lambda done: progress(what, done, total)


def _print_lines(console: object) -> Progress:
    last = time.monotonic()
    began: dict[str, tuple[float, int]] = {}  # by what is done: when it began, and how much was done then

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if done == 0 or what not in began:
            began[what] = now, done
        since, first = began[what]
        if now - last >= _PLAIN_EVERY:
            last = now
            line = f"{what}: {done}" + (f" of {total}" if total else "")
            if total and first < done < total:
                line += f", about {(now - since) * (total - done) / (done - first):.0f} s left"
            console.print(line)  # type: ignore[attr-defined]

    return progress
