"""The live numbers that the dashboard gets from a running service."""

from __future__ import annotations

import asyncio

import pytest

from lcb.demo.readers import KINDS
from lcb.serve.audit import trail
from lcb.serve.events import Actor
from lcb.serve.pages import live as live_state
from lcb.serve.pages.live import Live, _quantile
from support.http_inside import inside
from support.news_front import front, read

SPORT = set(KINDS["sport"][1])


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


def watched(tmp_path, drill):
    """`drill(live, clock, app, client)` with a clock that moves when it is moved."""

    async def main():
        async with inside(front(tmp_path)) as (app, client):
            clock = Clock()
            await drill(Live(app, app.pages.visitors, clock), clock, app, client)

    asyncio.run(main())


def test_rates_are_counted_by_the_second_and_a_running_second_is_not_told(tmp_path):
    async def drill(live, clock, app, client):
        await read(client, SPORT, 3)
        assert [row for row in live.read_state(0)["rates"] if row["decisions"]] == []
        clock.now += 1
        assert live.read_state(0)["rates"] == [{"t": 1_000_000.0, "decisions": 4, "rewards": 3}]
        clock.now += 1.5
        assert live.read_state(1_000_001)["rates"] == [{"t": 1_000_001.0, "decisions": 0, "rewards": 0}]

    watched(tmp_path, drill)


def test_at_most_five_minutes_of_rates_are_kept(tmp_path):
    async def drill(live, clock, app, client):
        for _ in range(400):
            clock.now += 1
            live.read_state(0)
        assert len(live._rates) == 300

    watched(tmp_path, drill)


def test_clicks_are_counted_by_recommender_and_model_in_half_minutes(tmp_path):
    async def drill(live, clock, app, client):
        seen = await read(client, SPORT, 10)
        opened = sum(step["opened"] for step in seen["past"])
        (row,) = live.read_state(0)["ctr"]
        assert row == {"t": 999_990.0, "recommender": "reader", "model": 1, "ctr": opened / 11, "decisions": 11}
        clock.now += 60
        await read(client, SPORT, 1)
        assert [row["t"] for row in live.read_state(0)["ctr"]] == [999_990.0, 1_000_050.0]
        assert [row["t"] for row in live.read_state(1_000_049)["ctr"]] == [1_000_050.0]

    watched(tmp_path, drill)


def test_the_picture_agrees_with_the_api(tmp_path):
    async def drill(live, clock, app, client):
        for _ in range(3):
            await read(client, SPORT, study=True)
        await live.measure()
        state, trials = live.read_state(0), (await client.get("/v1/trials")).json()["recommenders"]
        assert [(row["name"], row["users"], row["mean"]) for row in state["trial"]] == [
            (row["name"], row["n_users"], row["mean"]) for row in trials
        ]
        models = (await client.get("/v1/models")).json()
        assert [row["version"] for row in state["models"]] == [row["version"] for row in models["versions"]]
        assert state["seq"] == state["store"]["events"] == app.service.world.seq
        assert state["store"]["bytes"] > 0
        assert state["store"]["healthy"]
        assert sum(row["users"] for row in state["users_per_model"]) == 3
        assert sum(row["users"] for row in state["concentration"]) == app.service.world.users_per_model.get(1, 0)

    watched(tmp_path, drill)


def test_only_requests_that_serve_users_count_as_slow(tmp_path):
    async def drill(live, clock, app, client):
        for route, seconds in (("GET /static/vega.js", 2.0), ("GET /page/dashboard/charts", 1.0)):
            app.metrics.observe(route, 200, seconds)
        assert live.read_state(0)["requests"] == {"p50_ms": None, "p99_ms": None, "errors": 0}
        assert live.read_state(0)["slowest"] == []
        for _ in range(99):
            app.metrics.observe("POST /v1/decisions", 200, 0.004)
        app.metrics.observe("POST /page/answer", 503, 0.2)
        assert live.read_state(0)["requests"] == {"p50_ms": 5.0, "p99_ms": 5.0, "errors": 1}
        assert live.read_state(0)["slowest"][0]["route"] == "POST /page/answer"
        app.metrics.observe("POST /v1/rewards", 200, 0.2)
        assert live.read_state(0)["requests"]["p99_ms"] == 250.0

    watched(tmp_path, drill)


def test_the_chart_of_the_classes_is_made_once_a_version(tmp_path):
    async def drill(live, clock, app, client):
        first = live.read_state(0)["classes"]
        assert first is live.read_state(0)["classes"]
        assert first["model"] == 1
        assert first["words"][0] == "football, tennis, weather"
        await app.service.activate(0, "a test")
        assert live.read_state(0)["classes"] is None

    watched(tmp_path, drill)


@pytest.mark.parametrize(("times", "q", "ms"), [([], 0.5, None), ([0] * 14, 0.5, None), ([1] + [0] * 13, 0.99, 1.0)])
def test_a_quantile_is_as_fine_as_the_buckets(times, q, ms):
    assert _quantile(times, q) == ms


def test_a_dashboard_that_missed_events_counts_anew_and_reads_the_trail_again(tmp_path, monkeypatch):
    async def drill(live, clock, app, client):
        await read(client, SPORT, 3)
        clock.now += 1
        assert live.read_state(0)["rates"]
        with monkeypatch.context() as patch:
            patch.setattr(live, "_count_waiting", fail)
            await app.service.record("a test", Actor("ann", "127.0.0.1"))
        assert app.service.journal.broken is None
        assert app.service.watchers.n_failed["Live.watch_audit"] == 1
        state = live.read_state(0)
        assert state["rates"] == state["ctr"] == []
        assert state["audit"] == trail.read_trail(app.service.store, 20)[::-1]
        assert any("a test" in str(entry) for entry in state["audit"])
        await read(client, SPORT, 3)
        clock.now += 1
        assert live.read_state(0)["rates"] == [{"t": clock.now - 1, "decisions": 4, "rewards": 3}]

    def fail():
        raise MemoryError

    watched(tmp_path, drill)


def test_events_that_wait_to_be_counted_are_bounded_in_bytes(tmp_path, monkeypatch):
    """A decision over thousands of arms takes megabytes."""

    async def drill(live, clock, app, client):
        monkeypatch.setattr(live_state, "_MOST_BYTES", 2000)
        await read(client, SPORT, 12)
        assert sum(len(row.body) for rows, _, _ in live._waiting for row in rows) < 2000
        clock.now += 1
        assert live.read_state(0)["rates"] == [{"t": 1_000_000.0, "decisions": 13, "rewards": 12}]

    watched(tmp_path, drill)
