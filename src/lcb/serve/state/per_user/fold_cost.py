"""What it takes to fold users again whose rewards changed: measured, and estimated for the next changes."""

from __future__ import annotations

from collections import OrderedDict

_MOST = 10_000  # users whose number of events is remembered
_FIRST = 30e-6  # seconds for an event, before anything is measured
_WEIGHT = 10_000  # events that the mean of the last measurements is over


class FoldCost:
    """Seconds by the clock, which on busy cores are more than those of the processor.

    >>> cost = FoldCost()
    >>> cost.note("ann", 10_000, 0.8)
    >>> round(cost.estimate("ann", 10), 2), round(cost.estimate("ben", 100), 4)
    (0.55, 0.0055)
    """

    def __init__(self) -> None:
        self.per_event = _FIRST
        self._sizes: OrderedDict[str, int] = OrderedDict()  # events of a user when last folded

    def note(self, user: str, n_events: int, seconds: float) -> None:
        """Note that to fold these events of a user took these seconds."""
        self.per_event += (seconds - n_events * self.per_event) / (n_events + _WEIGHT)
        self._sizes[user] = n_events
        self._sizes.move_to_end(user)
        if len(self._sizes) > _MOST:
            self._sizes.popitem(last=False)

    def estimate(self, user: str, fewest: int) -> float:
        """Return the seconds that folding a user will take; they have at least `fewest` events."""
        return self.per_event * max(self._sizes.get(user, 0), fewest)
