"""Frames between the service and its learning process."""

from __future__ import annotations

import msgspec
import pytest

from lcb.evaluate.worlds.paper import paper_classes
from lcb.serve.learn.job import DONE, HEADER, JobResult, pack_frame, read_header
from lcb.storage.models.folder import pack_models


def test_a_frame_carries_its_kind_and_the_length_of_what_follows() -> None:
    assert read_header(pack_frame(DONE, b"abc")[:HEADER]) == (b"done", 3)


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="not a frame"):
        read_header(b"Traceback (most recent call last): and so on")


def test_models_come_through_the_pipe_bit_for_bit() -> None:
    manifest, tensors = pack_models(paper_classes())
    sent = JobResult(manifest, tensors, 3, True, "why", -0.5, None)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=JobResult) == sent
