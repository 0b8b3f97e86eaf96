"""The pages of a running service: what readers are offered, how long a click takes, what an open dashboard costs.

    python benchmarks/pages.py [--parts readers clicks dashboard] [--readers 100] [--clicks 200] [--minutes 2]

readers     Each plays one kind of the generated readers through HTTP: opens what shares a category with it, passes the
            rest.  Counted is how many of the last 10 offers share one.  LCB has classes learned from the log of 4,000
            generated readers, as in `lcb demo`; Population LinUCB learns from the readers as they come.
clicks      In Chromium on loopback, from the click to the next headline in the page, drawn.
dashboard   CPU and memory of the service, and the page's heap, with one dashboard open for so many minutes: half of
            them idle, half with simulated visitors.  `--minutes 60` is the soak.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from lcb.demo import story as demo
from lcb.demo.readers import CATEGORIES, KINDS
from lcb.features import fit_features
from lcb.storage.models.folder import save_models

RUN = """
import json, sys
from lcb.cli.settings import run_service
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Learning, Limits, Settings
given = json.loads(sys.argv[1])
recommenders = tuple(RecommenderSpec(**one) for one in given.pop("recommenders"))
settings = Settings(items="headlines", recommenders=recommenders, learning=Learning(retrain_every=None),
                    log_level="warning", port=0, limits=Limits(visitor_rate=0, open_visits=10**6), **given)
run_service(settings, lambda address: print(address, flush=True))
"""
LCB = {"name": "lcb", "bandit": "thompson"}
POPULATION = {"name": "population", "bandit": "linucb", "scope": "everyone"}
N_STEPS = 20
CLICK = """([open]) => new Promise((told) => {
    const headline = document.querySelector('#deck .headline');
    const began = performance.now();
    new MutationObserver((_, watching) => {
        watching.disconnect();
        requestAnimationFrame(() => setTimeout(() => told(performance.now() - began)));
    }).observe(headline, {childList: true, characterData: true, subtree: true});
    document.querySelector(open ? '#deck .answer.open' : '#deck .answer.pass').click();
})"""


@contextmanager
def serving(folder: Path, **given: Any) -> Iterator[tuple[str, int]]:
    """A service of its own; its address and process."""
    settings = {"store": str(folder / f"{time.monotonic_ns()}.db"), "models": str(folder / "models"), **given}
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", RUN, json.dumps(settings)], env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip(), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def learned_models(folder: Path) -> None:
    """As `lcb demo` does."""
    rng = np.random.default_rng(0)
    fit = demo.fit_classes(demo.simulate_past_log(demo.build_world(rng), demo.N_PAST, rng), rng)
    save_models(fit.models, folder / "models", feature_map=fit_features("one-hot", CATEGORIES, []))
    print(f"{fit.models.n_classes} classes learned from {demo.N_PAST:,} generated readers ({fit.models.likelihood})")


# What readers are offered


def read(client: httpx.Client, liked: set[str]) -> list[bool]:
    """One reader; whether each offer shared a category with what they like."""
    seen, hits = client.post("/page/visit", json={"again": True}).json(), []
    while not seen["done"]:
        hits.append(bool(set(seen["offer"]["categories"]) & liked))
        body = {"decision_id": seen["offer"]["decision_id"], "opened": hits[-1]}
        seen = client.post("/page/answer", json=body).json()
    return hits


def readers(folder: Path, n: int) -> dict[str, Any]:
    found = {}
    kinds = [set(liked) for _, liked in KINDS.values()]
    order = [i % len(kinds) for i in range(n)]
    random.Random(0).shuffle(order)
    for name, spec in (("lcb", LCB), ("population", POPULATION)):
        with serving(folder, recommenders=[spec]) as (address, _), httpx.Client(base_url=address, timeout=60) as client:
            hits = np.array([read(client, kinds[i]) for i in order])
        late = hits[:, -10:].sum(axis=1)
        found[name] = {
            "mean": float(late.mean()), "least": int(late.min()), "share_of_readers_with_8": float((late >= 8).mean()),
            "opened_of_20": float(hits.sum(axis=1).mean()),
        }  # fmt: skip
        print(
            f"{name:10} of the last 10 offers {late.mean():.2f} are of the reader's kind, at least {late.min()}; "
            f"8 or more for {100 * (late >= 8).mean():.0f} % of {n} readers; {hits.sum(axis=1).mean():.1f} of 20 opened"
        )
    return found


# In a browser


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    path = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        )
        try:
            yield browser
        finally:
            browser.close()


def clicks(folder: Path, n: int) -> dict[str, float]:
    took = []
    with serving(folder, recommenders=[LCB, POPULATION]) as (address, _), chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        while len(took) < n:
            page.context.clear_cookies()
            page.goto(address)
            page.wait_for_function("() => document.querySelector('#deck .headline')?.textContent")
            page.click(".toggle")
            took += [page.evaluate(CLICK, [i % 3 == 0]) for i in range(N_STEPS - 1)]  # the last leads to the summary
    p50, p95 = statistics.median(took), statistics.quantiles(took, n=20)[-1]
    print(
        f"click to next headline: p50 {p50:.0f} ms, p95 {p95:.0f} ms, longest {max(took):.0f} ms ({len(took)} clicks)"
    )
    return {"p50_ms": p50, "p95_ms": p95, "longest_ms": max(took), "n": len(took)}


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> float:
    """Megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def heap(page: Any) -> float:
    """Megabytes of the page's heap after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return metrics["JSHeapUsedSize"] / 1e6


def spell(pid: int, seconds: float, page: Any = None) -> dict[str, Any]:
    """What so many seconds cost; the page's heap goes up and down, so the highest of each half is told."""
    began, before = time.monotonic(), cpu(pid)
    sizes, heaps = [rss(pid)], [] if page is None else [heap(page)]
    while (left := began + seconds - time.monotonic()) > 0:
        if page is None:
            time.sleep(min(left, 15))
        else:
            page.wait_for_timeout(1000 * min(left, 15))
            heaps.append(heap(page))
        sizes.append(rss(pid))
    share = 100 * (cpu(pid) - before) / (time.monotonic() - began)
    return {"cpu_percent": share, "rss_mb": sizes, "heap_mb": heaps}


def halves(values: list[float]) -> str:
    middle = (len(values) + 1) // 2
    first, second = max(values[:middle]), max(values[middle:])
    return f"{values[0]:.1f} MB at first, at most {first:.1f} and {second:.1f} in each half"


def dashboard(folder: Path, minutes: float, per_minute: float) -> dict[str, Any]:
    found = {}
    half = 30 * minutes
    for name, visitors in (("idle", 0.0), (f"{per_minute:g} visitors a minute", per_minute)):
        given = {"recommenders": [LCB, POPULATION], "simulated_visitors": visitors}
        with serving(folder, **given) as (address, pid), chromium() as browser:
            time.sleep(5)
            without = spell(pid, max(20.0, half / 10))
            page = browser.new_page(viewport={"width": 1440, "height": 2400})
            page.goto(f"{address}/dashboard")
            page.wait_for_selector("#chart-rates canvas", timeout=60_000)
            page.wait_for_timeout(15_000)  # the charts are there, the bundle is made
            opened = spell(pid, half, page)
            assert page.inner_text("#stream") == "Live"
        found[name] = {"without": without, "open": opened, "seconds": half}
        print(
            f"{name}: {opened['cpu_percent']:.2f} % of a core with a dashboard open for {half:.0f} s "
            f"({without['cpu_percent']:.2f} % without)\n    service's memory {halves(opened['rss_mb'])}\n"
            f"    page's heap {halves(opened['heap_mb'])}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("readers", "clicks", "dashboard")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--clicks", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--visitors", type=float, default=6.0, help="simulated, a minute")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        learned_models(folder)
        if "readers" in given.parts:
            found["readers"] = readers(folder, given.readers)
        if "clicks" in given.parts:
            found["clicks"] = clicks(folder, given.clicks)
        if "dashboard" in given.parts:
            found["dashboard"] = dashboard(folder, given.minutes, given.visitors)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
