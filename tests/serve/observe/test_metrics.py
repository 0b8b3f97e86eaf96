"""How often the metrics are rendered: as often as they are asked for, until that takes too much of the time."""

from __future__ import annotations

import pytest

from lcb.serve.observe.metrics import Metrics

COST = 0.004  # seconds of CPU time that rendering takes here


class Rendering:
    """Metrics under a simulated clock; each rendering takes `COST`."""

    def __init__(self) -> None:
        self.n, self.now, self.used = 0, 100.0, 0.0
        self.metrics = Metrics(gauges=self.read, clock=lambda: self.now, cpu_clock=lambda: self.used)

    def read(self):
        self.n += 1
        self.used += COST
        return [("lcb_rendered", "How often.", self.n)]


@pytest.fixture
def rendering() -> Rendering:
    return Rendering()


def test_who_asks_now_and_then_sees_what_is_true_now(rendering):
    for _ in range(1000):
        rendering.now += 0.1
        assert b"lcb_rendered %.1f\n" % (rendering.n + 1) in rendering.metrics.render() + b"\n"


def test_a_few_who_ask_at_once_see_what_is_true_now(rendering):
    for i in range(20):
        assert b"lcb_rendered %.1f\n" % (i + 1) in rendering.metrics.render()


def test_who_asks_all_the_time_gets_a_text_that_is_not_old_for_a_twentieth_of_the_time(rendering):
    rendered_at, ages = 0.0, []
    for _ in range(50_000):
        rendering.now += 0.0002
        n = rendering.n
        rendering.metrics.render()
        rendered_at = rendering.now if rendering.n > n else rendered_at
        ages.append(rendering.now - rendered_at)
    seconds = 50_000 * 0.0002
    assert rendering.n * COST < 0.06 * seconds + 0.25
    assert max(ages) < 30 * COST
