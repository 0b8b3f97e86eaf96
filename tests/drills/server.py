"""A service in a process of its own for the drills: `python server.py SETTINGS_JSON [PROTECTION...]`.

Each PROTECTION named is taken out, so that a drill can be seen to fail without it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from lcb.serve.recommenders import Recommender
from lcb.serve.settings import Learning, Limits, Settings


def settings(given: dict[str, Any]) -> Settings:
    """Settings from plain JSON."""
    made = dict(given)
    if "recommenders" in made:
        made["recommenders"] = tuple(Recommender(**one) for one in made["recommenders"])
    if "learning" in made:
        made["learning"] = Learning(**made["learning"])
    if "limits" in made:
        made["limits"] = Limits(**made["limits"])
    for name in ("categories", "reward_range"):
        if made.get(name) is not None:
            made[name] = tuple(made[name])
    return Settings(**made)


def without_waiting() -> None:
    """Answer before the event is on disk."""
    import asyncio

    from lcb.serve.journal import Journal

    kept = Journal.append

    def append(self: Journal, entry: Any) -> asyncio.Future[None]:
        waiting = kept(self, entry)
        waiting.add_done_callback(lambda done: done.exception())
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(None)
        self.desk.remember(_slots(self, entry)) if entry.row.kind == "decision" else None
        return answered

    def _slots(journal: Journal, entry: Any) -> Any:
        from lcb.serve.desk import _open
        from lcb.storage.store import Row

        return _open(Row(journal.desk.world.seq + 1, *entry.row), entry.body)

    Journal.append = append  # type: ignore[method-assign]


def without_lock() -> None:
    """Append without locking the head of the log."""
    from lcb.storage import postgres

    postgres._LOCK = "select seq from head"


def without_bound() -> None:
    """Let as many wait for the store as come."""
    from lcb.serve.journal import Journal

    kept = Journal.__init__

    def unbounded(self: Journal, *arguments: Any, **more: Any) -> None:
        kept(self, *arguments, **{**more, "most_waiting": 10**9})

    Journal.__init__ = unbounded  # type: ignore[method-assign]


def without_reconnecting() -> None:
    """Keep a connection for good."""
    from lcb.storage._postgres import Connection

    Connection.closed = property(lambda self: False)  # type: ignore[method-assign, assignment]
    from lcb.storage.postgres import Postgres

    Postgres._roll_back = lambda self, connection: None  # type: ignore[method-assign, assignment]
    Postgres._drop_idle = lambda self: None  # type: ignore[method-assign]


def say(address: str) -> None:
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


WITHOUT = {
    "waiting": without_waiting, "lock": without_lock, "bound": without_bound,
    "reconnecting": without_reconnecting,
}  # fmt: skip


def main() -> None:
    from lcb.serve.server import run

    for name in sys.argv[2:]:
        WITHOUT[name]()
    run(settings(json.loads(sys.argv[1])), ready=say)


if __name__ == "__main__":
    main()
