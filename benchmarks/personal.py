"""Personal classes: rounds beside ten lines of NumPy LinUCB in the same run, and a fit of 200,000 users.

    python benchmarks/personal.py [--users 200000]

A round is one decision and one update, K 20, d 10, N 10: by the verbs choose and update, and compiled for users of 20
steps.  The fit has d 6, N 10 and 10 rewards of each user, on two threads; peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from timing import in_turns, save  # noqa: E402

from bandits import N_ROUNDS, at_once, numpy_linucb, step_by_step  # noqa: E402
from lcb.bandits.over_classes.personal_classes import PersonalClasses  # noqa: E402
from lcb.evaluate.worlds.paper import equal_classes  # noqa: E402
from lcb.event_log import EventLog  # noqa: E402
from lcb.learners.personal.mixture import fit  # noqa: E402
from lcb.stats import UserStats  # noqa: E402

N_ARMS, D, N_CLASSES = 20, 10, 10
D_FIT, N_REWARDS, SPREAD, NOISE = 6, 10, 0.4, 0.5


def measure_rounds() -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    beta = rng.standard_normal((N_CLASSES, D))
    models = equal_classes(beta / np.linalg.norm(beta, axis=1, keepdims=True))
    bandit = PersonalClasses(models.with_covariance(np.tile(0.05 * np.eye(D), (N_CLASSES, 1, 1))))
    x = rng.uniform(-1, 1, (N_ROUNDS, N_ARMS, D))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    rewards = x @ models.beta[0] + 0.1 * rng.standard_normal((N_ROUNDS, N_ARMS))
    seconds = in_turns(
        {
            "numpy linucb": lambda: numpy_linucb(x, rewards),
            "personal classes, verbs": lambda: step_by_step(bandit, x, rewards),
            "personal classes, compiled": lambda: at_once(bandit, x, rewards),
        },
        turns=5,
    )
    unit, rows = seconds["numpy linucb"], []
    for name, spent in seconds.items():
        micro, ratio = 1e6 * spent / N_ROUNDS, unit / spent
        print(f"{name:28} {micro:8.2f} us of CPU a round   {ratio:6.2f} x NumPy LinUCB's rounds")
        rows.append({"what": name, "microseconds": micro, "ratio": ratio})
    return rows


def measure_fit(n_users: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLASSES, D_FIT))
    own = centres[rng.integers(0, N_CLASSES, n_users)] + SPREAD * rng.standard_normal((n_users, D_FIT))
    x = rng.standard_normal((n_users, N_REWARDS, D_FIT))
    reward = np.einsum("und,ud->un", x, own) + NOISE * rng.standard_normal((n_users, N_REWARDS))
    user = np.repeat(np.arange(n_users), N_REWARDS)
    stats = UserStats.from_rows(user, x.reshape(-1, D_FIT), reward.ravel())
    del own, x, reward, user
    before, cpu = time.perf_counter(), time.process_time()
    found = fit(EventLog(stats), N_CLASSES, rng=rng, n_threads=2)
    seconds, cpu = time.perf_counter() - before, time.process_time() - cpu
    distance = np.linalg.norm(centres[:, None] - found.models.beta[None], axis=2).min(axis=1).max()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"fit of {n_users:,} users, d {D_FIT}, N {N_CLASSES}: {seconds:.1f} s ({cpu:.1f} s of CPU, two threads), "
        f"{len(found.trace)} steps, peak memory {peak:.2f} GB, farthest centre {distance:.3f}"
    )
    return {"users": n_users, "seconds": seconds, "cpu_seconds": cpu, "peak_gb": peak, "farthest_centre": distance}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=200_000)
    asked = parser.parse_args()
    save("personal", [*measure_rounds(), measure_fit(asked.users)])


if __name__ == "__main__":
    main()
