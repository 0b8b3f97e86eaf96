"""A mixture as bytes, for the log, snapshots and the learning process; the same mixture gives the same bytes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lcb.learners.mixture.sample import Hyperparameters, Sample
from lcb.learners.mixture.served import Seat, ServedMixture, ServedSettings
from lcb.serve import events
from lcb.serve.events import floats

_MEMORIES = ("memory", "share_memory")  # infinite: None


class _PackedSample(Struct, array_like=True):
    sums: bytes
    size: bytes
    recent: bytes
    counts: bytes
    noise: float
    variance: float
    scale: float
    mean: bytes
    known: bytes | None
    concentration: float


class _Packed(Struct, array_like=True):
    n_features: int
    settings: dict[str, Any]
    samples: list[_PackedSample]
    has_units: bool
    n_left: int
    clock: float
    began: float
    weight: float
    n_since_refit: int
    names: bytes  # of the seats
    left: bytes
    labels: bytes  # (seats, samples)
    numbers: list[int]
    n_classes_ever: int


def pack_mixture(mixture: ServedMixture) -> bytes:
    seats = mixture.seats.values()
    settings = {name: None if value == np.inf else value for name, value in asdict(mixture.settings).items()}
    return events.encode(
        _Packed(
            mixture.n_features,
            settings,
            [_pack_sample(one) for one in mixture.samples],
            mixture.has_units,
            mixture.n_left,
            mixture.clock,
            mixture.began,
            mixture.weight,
            mixture.n_since_refit,
            np.array(list(mixture.seats), np.int64).tobytes(),
            np.array([seat.left for seat in seats], np.float64).tobytes(),
            b"".join(seat.label.tobytes() for seat in seats),
            mixture.numbers,
            mixture.n_classes_ever,
        )
    )


def unpack_mixture(data: bytes) -> ServedMixture:
    """Return the mixture; msgspec's DecodeError or ValueError if the bytes are not one."""
    known = msgspec.msgpack.decode(data, type=_Packed)
    settings: dict[str, Any] = {
        name: np.inf if value is None and name in _MEMORIES else value for name, value in known.settings.items()
    }
    names, left = np.frombuffer(known.names, np.int64), floats(known.left)
    labels: NDArray[np.int16] = np.frombuffer(known.labels, np.int16).reshape(len(names), -1 if len(names) else 1)
    return ServedMixture(
        known.n_features,
        ServedSettings(**settings),
        [_unpack_sample(one, known.n_features) for one in known.samples],
        known.has_units,
        known.n_left,
        known.clock,
        known.began,
        known.weight,
        known.n_since_refit,
        {int(name): Seat(float(at), label) for name, at, label in zip(names, left, labels, strict=True)},
        known.numbers,
        known.n_classes_ever,
    )


def _pack_sample(sample: Sample) -> _PackedSample:
    at = sample.hyper
    return _PackedSample(
        sample.sums.tobytes(),
        sample.size.tobytes(),
        sample.recent.tobytes(),
        sample.counts.tobytes(),
        float(at.noise),
        float(at.variance),
        float(at.scale),
        at.mean.tobytes(),
        None if sample.known is None else sample.known.tobytes(),
        float(at.concentration),
    )


def _unpack_sample(packed: _PackedSample, n_features: int) -> Sample:
    size = floats(packed.size).copy()
    hyper = Hyperparameters(
        packed.noise, packed.variance, packed.scale, floats(packed.mean).copy(), packed.concentration
    )
    sums = floats(packed.sums).copy().reshape(len(size), -1)
    known = None if packed.known is None else floats(packed.known).copy().reshape(-1, sums.shape[1] + 1)
    counts = np.frombuffer(packed.counts, np.int64).copy()
    if len(hyper.mean) != n_features or counts.shape != size.shape:
        raise ValueError(f"a sample of {len(hyper.mean)} features and {len(counts)} classes, not {n_features}")
    recent = floats(packed.recent).copy()
    return Sample(np.zeros(0, np.int32), sums, size, recent, counts, hyper, known)
