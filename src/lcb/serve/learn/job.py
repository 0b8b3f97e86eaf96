"""Messages between the service and its learning process.

job       one line of JSON on the child's standard input, which stays open while the parent lives
frame     on its standard output: kind (4 bytes), length of the payload (8 bytes, big endian), payload
kinds     step    progress: a `JobStep` as JSON
          done    the new models: a `JobResult` as MessagePack
          wait    there is not enough data yet; the payload is the reason as text
          fail    learning failed; the payload is the reason as text
"""

from __future__ import annotations

from msgspec import Struct

STEP, DONE, WAIT, FAIL = b"step", b"done", b"wait", b"fail"
HEADER = 12  # bytes before the payload


class Job(Struct):
    """What to learn from, how, and which version to compare with."""

    store: str
    seq: int  # use the log up to here
    active: int  # the version served now; 0: none
    learner: str = "em"
    n_classes: int | None = None
    held_out: float = 0.2
    covariance: bool = False  # keep the covariance of the weights even if it is large
    max_memory: int | None = None  # bytes
    closed: tuple[str, ...] = ()  # recommenders whose rewards by visitors of the pages are left out
    mixture: bytes | None = None  # the mixture to refit, as of `seq`; None: learn a model version
    item_effects: bool = False  # learn the effects of items with the classes
    archive: str | None = None  # folder of the archive; None: beside an SQLite file
    shadow: bool = False  # callers chose the arms, not the service


class JobStep(Struct):
    """Progress within one phase of a job."""

    phase: str
    done: int
    total: int | None


class JobResult(Struct):
    """A candidate version; `better`: it scores at least as well as the served version, or there is none to compare.

    Of a refit, `tensors` is the packed mixture, and there is no manifest.
    """

    manifest: bytes
    tensors: bytes
    n_users: int
    better: bool
    reason: str
    score: float | None
    baseline: float | None


def pack_frame(kind: bytes, payload: bytes) -> bytes:
    """
    >>> pack_frame(WAIT, b"ab")
    b'wait\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02ab'
    """
    return kind + len(payload).to_bytes(8, "big") + payload


def read_header(header: bytes) -> tuple[bytes, int]:
    """Return the kind of a frame and the length of its payload.

    >>> read_header(pack_frame(WAIT, b"ab")[:HEADER])
    (b'wait', 2)
    """
    kind, length = header[:4], int.from_bytes(header[4:HEADER], "big")
    if kind not in (STEP, DONE, WAIT, FAIL):
        raise ValueError(f"the learning process sent {header[:HEADER]!r}, which is not a frame")
    return kind, length
