"""Metrics of a running service in the Prometheus format.

Requests are counted in plain dictionaries; Prometheus objects are built only when /metrics is read.  That takes some
milliseconds of the event loop, and at most a twentieth of its time: whoever asks more often gets the text of a moment
ago.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

Gauge = tuple[str, str, float]  # name, help text, value
Counts = tuple[str, str, str, Mapping[str, int]]  # name, help text, label, count by value of the label
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOWEST = 10
_SHARE, _BURST = 0.05, 0.2  # of the time that rendering may take, and seconds of it at once
_WORK = ("/v1/", "/page/visit", "/page/answer")


def is_work(route: str) -> bool:
    """Whether a route serves users, as opposed to pages, static files and monitoring.

    >>> [is_work(route) for route in ("POST /v1/decisions", "POST /page/answer", "GET /static/vega.js", "GET /metrics")]
    [True, True, False, False]
    """
    return route.partition(" ")[2].startswith(_WORK)


class Metrics:
    """Requests by route and status, their times, the slowest ones; `gauges` and `counts` read the service."""

    def __init__(
        self,
        gauges: Callable[[], Iterable[Gauge]] = tuple,
        counts: Callable[[], Iterable[Counts]] = tuple,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.gauges, self.counted = gauges, counts
        self.clock, self.cpu_clock = clock, cpu_clock
        self.started = time.monotonic()
        self.counts: dict[tuple[str, int], int] = {}
        self.times: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}
        self.slowest: list[tuple[float, str, float]] = []  # seconds, route, time; only routes of `is_work`
        self.refused: dict[int, int] = {}  # connections closed by a limit, by status
        self.n_aborted = 0
        self.n_unforeseen = 0
        self.n_failed_trainings = 0
        self._text = b""  # as last rendered
        self._left, self._then = _BURST, clock()  # seconds that rendering may take, and when that was so
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def observe(self, route: str, status: int, seconds: float) -> None:
        key = (route, status)
        self.counts[key] = self.counts.get(key, 0) + 1
        times = self.times.get(route)
        if times is None:
            times = self.times[route] = [0] * (len(BOUNDS) + 1)
            self.sums[route] = 0.0
        times[bisect_left(BOUNDS, seconds)] += 1
        self.sums[route] += seconds
        if (len(self.slowest) < _SLOWEST or seconds > self.slowest[-1][0]) and is_work(route):
            self.slowest = sorted([*self.slowest, (seconds, route, time.time())], reverse=True)[:_SLOWEST]

    def render(self) -> bytes:
        """Return the metrics as text: those of now, or of a moment ago if rendering has taken too much of the time."""
        now = self.clock()
        self._left, self._then = min(self._left + _SHARE * (now - self._then), _BURST), now
        if self._left > 0 or not self._text:
            began = self.cpu_clock()
            self._text = generate_latest(self._registry)
            self._left -= self.cpu_clock() - began
        return self._text

    def collect(self) -> Iterator[Metric]:
        """Build the Prometheus objects; called when /metrics is read."""
        requests = CounterMetricFamily("lcb_requests", "Requests answered.", labels=["route", "status"])
        for (route, status), n in self.counts.items():
            requests.add_metric([route, str(status)], n)
        yield requests
        seconds = HistogramMetricFamily(
            "lcb_request_seconds", "Time to answer, including the commit.", labels=["route"]
        )
        for route, times in self.times.items():
            total, buckets = 0, []
            for bound, n in zip((*BOUNDS, float("inf")), times, strict=True):
                total += n
                buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
            seconds.add_metric([route], buckets, self.sums[route])
        yield seconds
        refused = CounterMetricFamily(
            "lcb_refused_connections", "Closed by a limit; 0: without an answer.", labels=["status"]
        )
        for status, n in self.refused.items():
            refused.add_metric([str(status)], n)
        yield refused
        aborted = CounterMetricFamily("lcb_aborted_connections", "Closed by the client before the answer was complete.")
        aborted.add_metric([], self.n_aborted)
        yield aborted
        uptime = ("lcb_uptime_seconds", "Seconds since the service started.", time.monotonic() - self.started)
        for name, text, value in (*self.gauges(), uptime):
            yield GaugeMetricFamily(name, text, value=float(value))
        for name, text, label, counts in self.counted():
            family = CounterMetricFamily(name, text, labels=[label])
            for which, n in counts.items():
                family.add_metric([which], n)
            yield family
        failed = CounterMetricFamily("lcb_failed_trainings", "Trainings that failed.")
        failed.add_metric([], self.n_failed_trainings)
        yield failed
        unforeseen = CounterMetricFamily("lcb_unforeseen_errors", "Answers with status 500.")
        unforeseen.add_metric([], self.n_unforeseen)
        yield unforeseen
