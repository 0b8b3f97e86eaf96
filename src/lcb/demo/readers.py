"""A generated news front page: readers of a few kinds, articles of 21 categories, clicks.

Each kind of reader opens an article with a probability that is linear in its categories: an article of m categories
has features 1/m on each, and the weight of a category is how often readers of that kind open it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.evaluate.worlds.paper import SimulatedUsers
from lcb.features import fit_features
from lcb.models import LatentModels

CATEGORIES = (
    "arts", "books", "business", "cities", "climate", "education", "film", "food", "football", "gardening", "health",
    "history", "law", "music", "politics", "science", "technology", "tennis", "theatre", "travel", "weather",
)  # fmt: skip
KINDS = {
    "sport": (0.24, ("football", "tennis", "weather")),
    "culture": (0.22, ("arts", "books", "film", "music", "theatre")),
    "public affairs": (0.20, ("politics", "law", "business", "cities")),
    "tomorrow": (0.18, ("science", "technology", "climate", "health")),
    "home": (0.16, ("food", "gardening", "travel", "history", "education")),
}
FEATURES = fit_features("one-hot", CATEGORIES, [])
_OFTEN, _SELDOM = 0.7, 0.05


def reader_classes() -> LatentModels:
    """Return the true kinds of readers as classes."""
    beta = np.full((len(KINDS), len(CATEGORIES)), _SELDOM)
    for h, (_, liked) in enumerate(KINDS.values()):
        beta[h, [CATEGORIES.index(name) for name in liked]] = _OFTEN
    share = np.array([share for share, _ in KINDS.values()])
    click_variance = np.full(len(KINDS), _OFTEN * (1 - _OFTEN))
    return LatentModels(share, beta, click_variance, CATEGORIES)


def draw_articles(n_articles: int, rng: np.random.Generator) -> Floats:
    """Draw articles of 1 to 3 categories, as features (n, 21)."""
    member = np.zeros((n_articles, len(CATEGORIES)))
    for row in member:
        row[rng.choice(len(CATEGORIES), size=rng.integers(1, 4), replace=False)] = 1
    return FEATURES(member)


def click_probability(kind: str, categories: Sequence[str]) -> float:
    """Return the probability that a reader of this kind opens an article of these categories.

    >>> round(click_probability("culture", ["film", "law"]), 3)  # (0.7 + 0.05) / 2
    0.375
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of reader {kind!r}; the kinds are {', '.join(KINDS)}")
    x = FEATURES.of_names(categories)
    return float(reader_classes().beta[list(KINDS).index(kind)] @ x)


@dataclass(frozen=True)
class NewsFront:
    """The news front: each step offers `n_arms` of the catalogue's articles."""

    catalogue: Floats = field(repr=False)  # (articles, 21)
    n_arms: int = 20
    models: LatentModels = field(default_factory=reader_classes, repr=False)

    def draw(self, n_users: int, n_steps: int, rng: np.random.Generator) -> SimulatedUsers:
        """Draw new readers; a reward is 1 for a click, else 0."""
        label = rng.choice(self.models.n_classes, size=n_users, p=self.models.pi)
        order = rng.random((n_users, n_steps, len(self.catalogue)))
        offered = np.argpartition(order, self.n_arms - 1, axis=2)[:, :, : self.n_arms]
        contexts = self.catalogue[offered]
        means = np.matmul(contexts, self.models.beta[label][:, None, :, None])[..., 0]
        return SimulatedUsers(label, contexts, means, (rng.random(means.shape) < means).astype(np.float64))
