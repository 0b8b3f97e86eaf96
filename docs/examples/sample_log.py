"""Writes a sample log: 300 readers of a news page, 20 stories each, and whether they opened them.

    python docs/examples/sample_log.py events.csv

Every second reader opens 80 % of the sport stories and 10 % of the others; the rest open arts and science as often.
"""

from __future__ import annotations

import csv
import random
import sys

SECTIONS = ("sport", "arts", "science")
OPENED = ((0.8, 0.1, 0.1), (0.1, 0.6, 0.6))  # probability by kind of reader and section


def write_log(path: str, n_users: int = 300, n_events: int = 20) -> None:
    rng = random.Random(0)
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "reward", *SECTIONS])
        for u in range(n_users):
            for _ in range(n_events):
                section = rng.randrange(len(SECTIONS))
                opened = rng.random() < OPENED[u % 2][section]
                rows.writerow([f"reader{u}", int(opened), *(int(i == section) for i in range(len(SECTIONS)))])
    sys.stdout.write(f"wrote {path}: {n_users * n_events:,} events of {n_users} readers\n")


if __name__ == "__main__":
    write_log(sys.argv[1])
