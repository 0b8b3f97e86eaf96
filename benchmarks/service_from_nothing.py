"""A service that starts from nothing, learns from its own decisions, and serves by every version it makes.

    python benchmarks/service_from_nothing.py [--worlds kinds,...] [--first 0] [--seeds 3] [--users 1500] [--versions]

12 items of three categories are on offer at every one of 20 steps; 50 users come at a time, and after every 50 users
the service learns, in this process, what its learning process would learn.  Beside it one LinUCB for all users, of the
same width as the warm-up, serves the same people.  Both draw 1 % of their decisions uniformly.

    kinds     three kinds of people: 0.4 for the items of their own category, 0.1 for the others
    alike     everybody likes the items of one category with 0.4, the others with 0.1
    unique    the rates of a user are drawn for every category, from 0.05 to 0.45
    appeal    as kinds, and items differ: rates are multiplied by 0.5 to 1.5
    newcomer  as kinds, and one more item, of twice the rates of its category, comes when half of the users have come
    unlike    one to three kinds of people, whose rates of the categories are drawn from 0.1 to 0.45; the one more item
              has for everybody 0.15 more than the best

Printed: the mean rate of what was shown, as a share of the rate of the best item of every user; for all users and for
blocks of 150.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from timing import save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import CHOSEN
from support.from_nothing import WORLDS, draw_rates, serve

SERVED = {"lcb-auto": CHOSEN, "linucb-population": RecommenderSpec("lcb", "linucb", "everyone")}
BLOCK = 150  # users


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--versions", action="store_true", help="print what every version is")
    parser.add_argument("--only", default=",".join(SERVED))
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for world in asked.worlds.split(","):
        for seed in range(asked.first, asked.first + asked.seeds):
            rates = draw_rates(world, asked.users, np.random.default_rng((seed, 3)))
            best = rates.max(axis=1)
            for name in asked.only.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    found, lines = serve(SERVED[name], rates, seed, Path(folder))
                parts = [slice(begin, begin + BLOCK) for begin in range(0, asked.users, BLOCK)]
                blocks = [float(found[part].mean() / best[part].mean()) for part in parts]
                share = float(found.mean() / best.mean())
                rows.append({"world": world, "seed": seed, "algorithm": name, "share": share, "blocks": blocks})
                words = " ".join(f"{one:.2f}" for one in blocks)
                by_chance = rates.mean() / best.mean()
                print(f"{world}, seed {seed}, {name}: {share:.3f}; {words}; by chance {by_chance:.2f}", flush=True)
                if asked.versions:
                    print("\n".join(f"    {line}" for line in lines))
    save("service_from_nothing", rows)


if __name__ == "__main__":
    main()
