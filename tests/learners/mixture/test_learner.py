"""The learner `mixture`: from a log to models, to a folder, and on from there."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lcb
from lcb.cli.app import run
from lcb.errors import InputError, ModelError
from lcb.evaluate.worlds.paper import SimulatedWorld, equal_classes
from lcb.models import LatentModels
from lcb.recommenders.mixture import Mixture

WORLD = SimulatedWorld(equal_classes(np.eye(4)[:2] + 0.1, noise=0.1), n_arms=8)


def rows_of_users(n_users: int = 90, n_steps: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    user, x = np.repeat(np.arange(n_users), n_steps), rng.normal(size=(n_users * n_steps, 4))
    means = np.einsum("ij,ij->i", x, WORLD.models.beta[(user % 3 == 0).astype(int)])
    return user, x, means + 0.1 * rng.normal(size=len(user))


@pytest.fixture(scope="module")
def models() -> LatentModels:
    return lcb.fit(lcb.EventLog.from_rows(*rows_of_users()), rng=np.random.default_rng(1), learner="mixture").models


def test_the_classes_and_their_number_are_found(models: LatentModels) -> None:
    assert models.n_classes == 3
    assert models.new_class == 2
    assert 0 < models.pi[2] < 0.03
    np.testing.assert_allclose(sorted(models.pi)[1:], [1 / 3, 2 / 3], atol=0.02)
    np.testing.assert_allclose(np.sort(models.beta[:2], axis=0), np.sort(WORLD.models.beta, axis=0), atol=0.05)
    assert abs(np.sqrt(models.sigma2[0]) / 0.1 - 1) < 0.1
    assert models.sums is not None
    assert models.sums[:, -1].sum() == 720
    assert models.spread is not None
    assert models.spread[:2].max() < 0.05 < models.spread[2].min()


def test_a_saved_mixture_goes_on_where_learning_stopped(models: LatentModels, tmp_path) -> None:
    lcb.save_models(models, tmp_path / "models")
    loaded = lcb.load_models(tmp_path / "models")
    mixture = Mixture(4, rng=np.random.default_rng(2), models=loaded, memory=np.inf, share_memory=np.inf, n_samples=1)
    for name in ("pi", "beta", "covariance", "sums"):  # before the first user it is what was learned
        np.testing.assert_allclose(getattr(mixture.seats.models(), name), getattr(models, name), rtol=1e-9, atol=1e-12)
    users = WORLD.draw(40, 8, np.random.default_rng(3))
    regret = users.regret(mixture.serve(range(40), users.contexts, users.rewards, np.random.default_rng(4)))
    unaware = Mixture(4, rng=np.random.default_rng(2))
    from_nothing = users.regret(unaware.serve(range(40), users.contexts, users.rewards, np.random.default_rng(4)))
    assert regret.mean() < 0.8 * from_nothing.mean()
    mixture.start("next")
    after = mixture.seats.models()
    assert after.sums is not None
    np.testing.assert_allclose(after.sums[:, -1].sum(), 720 + 40 * 8)  # also after refits
    at = mixture.seats.samples[0].hyper.concentration
    assert after.pi[-1] == pytest.approx(at / (130 + at))


def test_models_that_are_no_mixture_are_refused(models: LatentModels) -> None:
    with pytest.raises(InputError, match="these models are no mixture"):
        Mixture(4, rng=np.random.default_rng(0), models=WORLD.models)
    with pytest.raises(InputError, match="models of 4 features for a mixture of 5"):
        Mixture(5, rng=np.random.default_rng(0), models=models)
    with pytest.raises(ModelError, match=r"sums of shape \(1, 2\)"):
        LatentModels(models.pi, models.beta, models.sigma2, sums=np.zeros((1, 2)))


def test_wrong_input_is_refused() -> None:
    user, x, reward = rows_of_users(10)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="every reward is 0"):
        lcb.fit(lcb.EventLog.from_rows(user, x, 0 * reward), rng=rng, learner="mixture")
    with pytest.raises(InputError, match="n_samples=0"):
        lcb.fit(lcb.EventLog.from_rows(user, x, reward), rng=rng, learner="mixture", n_samples=0)


def test_the_command_line_learns_and_shows_the_new_class(tmp_path, capsys) -> None:
    user, x, reward = rows_of_users(60)
    events, models = tmp_path / "events.csv", tmp_path / "models"
    lines = [",".join(map(str, (u, r, *row))) for u, r, row in zip(user, reward, x, strict=True)]
    events.write_text("user,reward,a,b,c,d\n" + "\n".join(lines) + "\n")
    command = ["learn", str(events), "--columns", "a,b,c,d", "--learner", "mixture", "--out", str(models)]
    assert run(command) == 0
    assert "3 classes, as the sampler found" in capsys.readouterr().out
    assert run(["show", str(models), "--json", str(tmp_path / "shown.json")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert rows[-1][0] == "new"
    assert 0 < float(rows[-1][1].rstrip("%")) < 5
    assert json.loads((tmp_path / "shown.json").read_text())["new_class"] == 3
