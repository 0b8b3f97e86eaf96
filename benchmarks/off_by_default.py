"""What features that are off by default cost a request: the service as it is beside one without their hooks.

    python benchmarks/off_by_default.py [--pairs 60] [--requests 1000] [--feature canary] [--json FILE]
    python benchmarks/off_by_default.py --against OTHER_CHECKOUT

Two services run at the same time, each with its own store, and answer the same requests: decisions with ids, as the
clients send them, and their rewards. They take turns in short blocks of a fixed number of requests; the order changes
from pair to pair. Every ratio is that of the service as it is (this checkout) by the other (without hooks, or the
other checkout) in the same pair; printed are the median and its 95 % interval, which follows from ranks alone. CPU is
the user and system time of all threads of the service; where `perf stat` can count the instructions of a process, they
are a second measure, which a busy machine does not change.

The other service is this checkout with its hooks cut out of the functions that have them (`CUTS`): the source of a
function is compiled again with one condition replaced. A hook that is no longer there under these words ends the
benchmark with an error, and so does one whose function the first requests do not reach. Left in, because nothing can be
taken out of one process:

  traces      nothing: `lcb.serve.tracing.trace` wraps the parts of a built application, and is called if asked for
  rules       the fields `exclude`, `seen` and `at_most`, for which the decoder of requests looks
  retention   the tables of a compacted log beside the table of events
  batches     the applying of decisions in runs, which single requests of one commit share

What these cost, --against shows: with a checkout of the commit before the features, such as
`git worktree add FOLDER c4590243` (before batches, rules, traces, canaries and retention), where lcb is installed in
.venv (pip install -e .). It also shows every other change since.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import builtins
import contextlib
import importlib
import inspect
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
RETRAIN, BANDIT = "0", "learned-classes"  # the default bandit, with models that are given
USERS, CONNECTIONS = 2000, 8
MEASURES = ("rate", "cpu_us", "p99_ms", "instructions")


class Cut(NamedTuple):
    """A hook: the function that has it, its words there, and what stands in their place while it is cut out."""

    feature: str
    module: str
    function: str
    words: str
    instead: str = "False"


CUTS = (
    Cut("canary", "lcb.serve.state.service_state", "ServiceState.model_for_newcomers",
        "self.canaries and (canary := self.canary) is not None and canary.takes(self.seed, name)"),
    Cut("canary", "lcb.serve.state.service_state", "ServiceState.model_for",
        "user.canary > 0 and (canary := self.canary) is not None and user.canary > canary.since"),
    Cut("canary", "lcb.serve.state.per_user.user_fold", "UserFold.start", "self.state.canaries and seq"),
    Cut("canary", "lcb.serve.state.world", "World._apply_decision",
        "user.canary and self.state.canary is not None and self.fold.is_teaching(row, body)"),
    Cut("canary", "lcb.serve.state.world", "World._apply_decision", "if user.canary:\n", "if False:\n"),
    Cut("canary", "lcb.serve.state.world", "World._apply_reward", "self._compare_canary(user, row.seq)", "pass"),
    Cut("canary", "lcb.serve.log.decision_runs", "apply_run", " or user.canary", ""),
    Cut("canary", "lcb.serve.web.app", "App.start", "self.canaries.start()", "pass"),
    Cut("rules", "lcb.serve.strict_json", "count_pairs_of_request", 'exclude := getattr(request, "exclude", None)'),
    Cut("rules", "lcb.serve.decide.decisions", "compute_digest", "not request.has_rules", "True"),
    Cut("rules", "lcb.serve.decide.decisions", "Decisions.begin", "request.has_rules"),
    Cut("rules", "lcb.serve.decide.decisions", "Decisions.finish", "begun.rules is None", "True"),
    Cut("rules", "lcb.serve.service", "Service._decide",
        "request.seen is not None and not self.world.has_seen(request.user)"),
    Cut("rules", "lcb.serve.state.world", "World.apply", "if self.seen:", "if False:"),
    Cut("rules", "lcb.serve.log.decision_runs", "apply_run", " or world.seen", ""),
    Cut("retention", "lcb.serve.decide.decisions", "Decisions.begin", "logged is None and world.store.inline"),
    Cut("retention", "lcb.serve.state.reward_slots", "RewardSlots.get",
        "found.seq <= self.world.state.archived_upto"),
    Cut("batches", "lcb.serve.web.endpoint", "Endpoint.__call__", "release is not None"),
)  # fmt: skip
FEATURES = tuple(dict.fromkeys(cut.feature for cut in CUTS))


def find_function(module: str, name: str) -> FunctionType:
    """Return a function or method; exit if there is none of this name."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    if not isinstance(found, FunctionType):
        sys.exit(f"{module} has no function {name}; correct CUTS, where a hook of it is named")
    return found


def cut_out(function: FunctionType, cuts: Sequence[Cut], mark: str | None = None) -> CodeType:
    """Return the code of a function without these hooks; with `mark`, each call adds it to `builtins.lcb_reached`."""
    source = textwrap.dedent(inspect.getsource(function))
    for cut in cuts:
        if (n := source.count(cut.words)) != 1:
            sys.exit(f"{cut.module} {cut.function} has {cut.words!r} {n} times, wanted once; correct CUTS")
        source = source.replace(cut.words, cut.instead)
    tree = ast.parse(source)
    made = tree.body[0]
    assert isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef)
    made.decorator_list = []
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    if mark is not None:
        made.body[:0] = ast.parse(f"lcb_reached.add({mark!r})").body
    place: dict[str, Any] = {}
    flags = importlib.import_module("__future__").annotations.compiler_flag
    exec(compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec", flags), place)
    code: CodeType = place[made.name].__code__
    return code


def group_cuts(features: Sequence[str]) -> dict[tuple[str, str], list[Cut]]:
    """Return the hooks of these features by the function that has them."""
    found: dict[tuple[str, str], list[Cut]] = {}
    for cut in CUTS:
        if cut.feature in features:
            found.setdefault((cut.module, cut.function), []).append(cut)
    return found


def serve(features: Sequence[str], arguments: Sequence[str]) -> None:
    """Serve without the hooks of these features; a line on standard input ends the stage that notes what is reached."""
    from serve import RUN

    reached: set[str] = set()
    builtins.lcb_reached = reached  # type: ignore[attr-defined]
    functions, last = dict[str, FunctionType](), dict[str, CodeType]()
    for (module, name), cuts in group_cuts(features).items():
        place, function = f"{module} {name}", find_function(module, name)
        marked, last[place] = cut_out(function, cuts, place), cut_out(function, cuts)
        functions[place] = function
        function.__code__ = marked

    def finish() -> None:
        sys.stdin.readline()
        missed = functions.keys() - reached
        for place, function in functions.items():
            function.__code__ = last[place]
        print(f"not reached: {', '.join(sorted(missed))}" if missed else f"cut out of {len(last)}", flush=True)

    threading.Thread(target=finish, daemon=True).start()
    sys.argv[1:] = arguments
    exec(RUN, {"__name__": "served"})


class Served(NamedTuple):
    """A service that runs."""

    name: str
    process: subprocess.Popen[str]
    port: int


@contextlib.contextmanager
def running(name: str, command: Sequence[str], folder: Path) -> Iterator[Served]:
    from serve import free_port, wait_until_ready

    port = free_port()
    store = str(folder / f"{name}.db")
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [*command, store, str(folder / "models"), str(port), RETRAIN, BANDIT],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        wait_until_listening(process, port, folder / f"{name}.log")
        wait_until_ready(f"http://127.0.0.1:{port}")
        yield Served(name, process, port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_until_listening(process: subprocess.Popen[str], port: int, log: Path) -> None:
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"a service ended before it answered; its log: {log.read_text()[-2000:]}")


def build_block(block: int, n: int, arms: str) -> list[bytes]:
    """Return `n` requests as they are sent: decisions, each before its reward; one in twenty is of a new user."""
    sent = []
    for i in range(n // 2):
        user = f"n-{block}-{i}" if i % 20 == 0 else f"u-{(block * n // 2 + i) % USERS}"
        id = f"d-{block}-{i}"
        sent.append(build_request("/v1/decisions", f'{{"user":"{user}","arms":{arms},"decision_id":"{id}"}}'))
        sent.append(build_request("/v1/rewards", f'{{"decision_id":"{id}","reward":{i % 2}}}'))
    return sent


def build_request(path: str, body: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


async def send_block(port: int, requests: Sequence[bytes]) -> list[float]:
    """Send pairs of requests over several connections, each after the answer before it; return the seconds."""
    pairs, took = iter(list(zip(requests[::2], requests[1::2], strict=True))), list[float]()

    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for pair in pairs:
            for one in pair:
                began = time.perf_counter()
                writer.write(one)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                took.append(time.perf_counter() - began)
                if b" 200 " not in head.partition(b"\r\n")[0]:
                    sys.exit(f"a request was refused: {body.decode()[:300]}; measure again where that does not happen")
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*[send() for _ in range(CONNECTIONS)])
    return took


_PERF = ("perf", "stat", "-x", ",", "-e", "instructions:u")


def can_count_instructions() -> bool:
    """Whether `perf stat` counts the instructions of a process on this machine; virtual machines often cannot."""
    try:
        done = subprocess.run([*_PERF, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0 and done.stderr[:1].isdigit()


def count_instructions(pid: int) -> subprocess.Popen[str]:
    """Start to count the instructions of a process, until SIGINT."""
    counter = subprocess.Popen([*_PERF, "-p", str(pid)], stderr=subprocess.PIPE, text=True)
    time.sleep(0.1)  # until it counts
    return counter


def measure(served: Served, requests: Sequence[bytes], counts: bool) -> dict[str, float]:
    from serve import cpu

    counter = count_instructions(served.process.pid) if counts else None
    before, began = cpu(served.process.pid), time.perf_counter()
    took = sorted(asyncio.run(send_block(served.port, requests)))
    seconds, used = time.perf_counter() - began, cpu(served.process.pid) - before
    n = len(requests)
    found = {"rate": n / seconds, "cpu_us": 1e6 * used / n, "p99_ms": 1e3 * took[math.ceil(0.99 * n) - 1]}
    if counter is not None:
        counter.send_signal(signal.SIGINT)
        found["instructions"] = int(counter.communicate()[1].split(",")[0]) / n
    return found


def find_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median that follows from ranks; the range if there are fewer than 6 values.

    >>> find_interval(range(1, 21))
    (6, 15)
    """
    ordered, n = sorted(values), len(values)
    tail, rank = 0.0, 0
    while (tail := tail + math.comb(n, rank) / 2**n) <= 0.025:
        rank += 1
    rank = max(rank, 1)
    return ordered[rank - 1], ordered[n - rank]


def compare(ours: Served, theirs: Served, given: argparse.Namespace, arms: str) -> dict[str, list[dict[str, float]]]:
    """Measure both in turn; the first blocks are not counted, and after them the hooks are cut out for good."""
    found: dict[str, list[dict[str, float]]] = {ours.name: [], theirs.name: []}
    n_first = -(-2 * USERS // given.requests) + 2
    counts = can_count_instructions()
    for block in range(n_first + given.pairs):
        requests = build_block(block, given.requests, arms)
        for served in (ours, theirs) if block % 2 == 0 else (theirs, ours):
            one = measure(served, requests, counts and block >= n_first)
            if block >= n_first:
                found[served.name].append(one)
        if block == n_first - 2 and given.against is None:  # the next block is the first without marks
            theirs.process.stdin.write("\n")  # type: ignore[union-attr]
            theirs.process.stdin.flush()  # type: ignore[union-attr]
            said = theirs.process.stdout.readline().strip()  # type: ignore[union-attr]
            if not said.startswith("cut out of"):
                sys.exit(f"{said}; send requests that come there, or correct CUTS")
            print(
                f"hooks are {said} functions; the first {(n_first - 1) * given.requests:,} requests came to all of them"
            )
    if not counts:
        print("instructions are not counted: `perf stat -e instructions:u` does not work here")
    return found


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2].split(","), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--requests", type=int, default=1000, help="of a block; half are decisions")
    parser.add_argument("--feature", choices=FEATURES, action="append", help="cut out this one alone; may come again")
    parser.add_argument("--against", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import numpy as np

    from lcb.models import LatentModels
    from lcb.storage.models.folder import save_models
    from serve import RUN

    rng = np.random.default_rng(0)
    arms = json.dumps([{"id": f"article-{i:05d}", "x": rng.normal(size=6).round(6).tolist()} for i in range(20)])
    other, command = "without hooks", [sys.executable, __file__, "--serve", ",".join(given.feature or FEATURES)]
    if given.against is not None:
        python = given.against.resolve() / ".venv/bin/python"
        if not python.exists():
            sys.exit(
                f"{given.against} has no .venv/bin/python; install lcb there (pip install -e .) and run this again"
            )
        other, command = "other checkout", [str(python), "-c", RUN]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_models(LatentModels(np.full(5, 0.2), rng.normal(size=(5, 6)), np.full(5, 0.1)), folder / "models")
        with (
            running("as it is", [sys.executable, "-c", RUN], folder) as ours,
            running(other, command, folder) as theirs,
        ):
            found = compare(ours, theirs, given, arms)
    for key in [key for key in MEASURES if key in found[ours.name][0]]:
        one, two = ([each[key] for each in found[name]] for name in (ours.name, other))
        ratios = [a / b for a, b in zip(one, two, strict=True)]
        low, high = find_interval(ratios)
        print(
            f"{key:12} as it is {statistics.median(one):10.1f}  {other} {statistics.median(two):10.1f}  "
            f"ratio: median {statistics.median(ratios):.3f}, {low:.3f}-{high:.3f}"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
