"""Learning the classes beside the mixtures of regressions people use: flexmix (R) and bnpy.

    python benchmarks/mixtures.py [--bnpy PYTHON]

flexmix is asked through `Rscript` where R has it; bnpy through an interpreter that has it.  What is missing is named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from timing import in_turns, save
from workloads import make

from lcb.learners.em import gaussian as em
from lcb.learners.gibbs import collapsed as gibbs
from lcb.learners.shared.users import find_users
from lcb.models import LatentModels
from lcb.models.prior import Prior
from lcb.runtime import parallel

HERE = Path(__file__).parent


def flexmix(n_users: int = 20_000, steps: int = 3) -> dict[str, object]:
    """CPU seconds per EM iteration on M, theirs and ours."""
    work = make("M", n_users)
    stats, prior = work.stats(), Prior.scaled(work.stats())
    models = LatentModels(np.full(30, 1 / 30), work.beta, np.full(30, 0.2))
    with parallel.threads(1) as run:
        ours = in_turns({"step": lambda: em.step(find_users(stats, run), models, prior, False)}, turns=20)["step"]
    found: dict[str, object] = {"what": "EM iteration on M", "ours_seconds": ours}
    if shutil.which("Rscript") is None:
        return {**found, "missing": "Rscript"}
    rows = np.column_stack([np.repeat(np.arange(n_users), 20), work.reward.ravel(), work.x.reshape(-1, 6)])
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(np.asfortranarray(rows).astype("<f8").tobytes(order="F"))
        file.flush()
        words = ["Rscript", str(HERE / "flexmix.R"), file.name, str(len(rows)), "6", "30", str(steps)]
        answer = subprocess.run(words, capture_output=True, text=True)
    if answer.returncode:
        return {**found, "missing": answer.stderr.strip().splitlines()[-1]}
    theirs = float(answer.stdout)
    return {**found, "flexmix_seconds": theirs, "ratio": theirs / ours}


_BNPY = """
import inspect, json, sys, tempfile, os, time
os.environ["BNPYOUTDIR"] = tempfile.mkdtemp()
import numpy as np
inspect.getargspec = lambda f: tuple(inspect.getfullargspec(f))[:4]  # what bnpy 0.1.7 asks of older versions
np.float, np.int, np.bool = float, int, bool
import bnpy
data = np.load(sys.argv[1])
before = time.process_time()
model, _ = bnpy.run(
    bnpy.data.XData(X=data["x"], Y=data["y"]), "DPMixtureModel", "GaussRegressYFromFixedX", "memoVB", nLap=60, nTask=1,
    nBatch=1, K=20, initname="randexamples", moves="merge,delete", m_startLap=5, printEvery=1000,
    output_path=os.environ["BNPYOUTDIR"],
)
print(json.dumps({"seconds": time.process_time() - before, "classes": int(model.obsModel.K)}))
"""


def bnpy(python: str | None) -> dict[str, object]:
    """CPU seconds to five classes on S."""
    work = make("S", 1000)
    stats = work.stats()
    gibbs.fit(stats, rng=np.random.default_rng(0), n_sweeps=20)  # compiles
    before = time.process_time()
    ours = gibbs.fit(stats, rng=np.random.default_rng(0))
    seconds = time.process_time() - before
    found: dict[str, object] = {
        "what": "Dirichlet process on S", "ours_seconds": seconds, "ours_classes": ours.models.n_classes
    }  # fmt: skip
    if python is None:
        return {**found, "missing": "an interpreter with bnpy (--bnpy)"}
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, x=work.x.reshape(-1, 10), y=work.reward.reshape(-1, 1))
        file.flush()
        answer = subprocess.run([python, "-c", _BNPY, file.name], capture_output=True, text=True)
    if answer.returncode:
        return {**found, "missing": answer.stderr.strip().splitlines()[-1]}
    theirs = json.loads(answer.stdout.splitlines()[-1])
    return {
        **found, "bnpy_seconds": theirs["seconds"], "bnpy_classes": theirs["classes"],
        "ratio": theirs["seconds"] / seconds,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bnpy", metavar="PYTHON", help="an interpreter that has bnpy")
    rows = [flexmix(), bnpy(parser.parse_args().bnpy)]
    for row in rows:
        print(
            ", ".join(
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )
    save("mixtures", rows)


if __name__ == "__main__":
    main()
