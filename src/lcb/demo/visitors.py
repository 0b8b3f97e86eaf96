"""The demo content that `lcb serve` passes to the service: headlines for an empty catalogue, and simulated visitors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files

import numpy as np

from lcb.demo.readers import CATEGORIES, KINDS, click_probability, reader_classes
from lcb.errors import InputError

HEADLINES = "headlines"  # the value of `--items` that stands for the headlines of the demo


def read_headlines() -> bytes:
    """Return the headlines as a JSON body of PUT /v1/items."""
    return (files("lcb.demo") / "headlines.json").read_bytes()


class SimulatedReaders:
    """Visitors who open headlines with the probabilities of the generated readers (`lcb.demo.readers`)."""

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self.rng = rng or np.random.default_rng()

    def check_catalogue(self, categories: Iterable[Sequence[str]]) -> None:
        """Refuse a catalogue that is empty, or whose items are not of the categories of the demo.

        >>> SimulatedReaders().check_catalogue([["film", "law"], ["chess"]])
        Traceback (most recent call last):
        lcb.errors.InputError: simulated visitors read only items of the 21 categories of the demo, not 'chess'; ...
        """
        items = list(categories)
        if not items:
            raise InputError("the catalogue is empty, so simulated visitors have nothing to read; start with headlines")
        unknown = sorted({name for item in items for name in item} - set(CATEGORIES))
        if unknown or not all(items):
            other = repr(unknown[0]) if unknown else "items without categories"
            raise InputError(
                f"simulated visitors read only items of the {len(CATEGORIES)} categories of the demo, not {other}; "
                "start the service with --items headlines and an empty store"
            )

    def draw_visitor(self) -> Callable[[Sequence[str]], bool]:
        """Return a reader of a random kind: a function from an item's categories to whether it is opened."""
        rng = self.rng
        kind = str(rng.choice(list(KINDS), p=reader_classes().pi))
        return lambda categories: bool(rng.random() < click_probability(kind, categories))
