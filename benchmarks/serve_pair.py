"""Two checkouts of lcb side by side: rate, CPU and latency of `benchmarks/serve.py`, in interleaved pairs.

    python benchmarks/serve_pair.py OTHER_CHECKOUT [--pairs 10] [--seconds 4] [--store postgresql://...]

Both must have their own environment in .venv.  The same requests (`serve.lua`, `serve.py` of this checkout) are sent to
each in turn, the first of a pair alternating; every ratio is this checkout's number by the other's of the same pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KEYS = ("rate", "cpu_us", "p50_ms", "p99_ms")


def measure(checkout: Path, given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Measure one checkout once, with the interpreter and the package of that checkout."""
    found = folder / "found.json"
    command = [checkout / ".venv/bin/python", HERE / "serve.py", "--rounds", 1, "--seconds", given.seconds]
    command += ["--bandit", given.bandit, "--json", found]
    command += ["--store", given.store] if given.store else []
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    one: dict[str, float] = json.loads(found.read_text())["lcb"][0]
    if one["bad"]:
        sys.exit(f"{checkout}: {one['bad']:.0f} requests were refused; look at its log, and measure again")
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--bandit", default="thompson")
    parser.add_argument("--store", help="postgresql:// address of a server for both; SQLite files when not given")
    given = parser.parse_args()
    ours, theirs = HERE.parent, given.other.resolve()
    for checkout in (ours, theirs):
        if not (checkout / ".venv/bin/python").exists():
            sys.exit(f"{checkout} has no .venv/bin/python; install lcb there (pip install -e .) and run this again")
    ratios: dict[str, list[float]] = {key: [] for key in KEYS}
    with tempfile.TemporaryDirectory() as name:
        for i in range(given.pairs):
            order = (ours, theirs) if i % 2 == 0 else (theirs, ours)
            found = {checkout: measure(checkout, given, Path(name)) for checkout in order}
            for key in KEYS:
                ratios[key].append(found[ours][key] / found[theirs][key])
            print("  ".join(f"{key} {found[ours][key]:.1f} / {found[theirs][key]:.1f}" for key in KEYS), flush=True)
    for key, each in ratios.items():
        print(f"{key} / the other's: median {statistics.median(each):.3f}, {min(each):.3f}-{max(each):.3f}")


if __name__ == "__main__":
    main()
