"""Features of items from their categories, and products of arm and user features.

A `FeatureMap` turns the categories of an item into features.  It is made once, from past users, and kept with the
models that were learned with it; learning, evaluation and the service all take features from it:

    x = scale * [(v - mean) @ directions, 1]          one-hot, multi-hot: directions = I, mean = 0
                                                      pca:k: the k main directions of the items' 0/1 vectors

The vector v of an item with m categories depends on the map:

    one-hot, pca:k    1 / m on each of its categories      its reward is the mean of those of its categories
    multi-hot         1 on each of its categories          its reward is their sum

Items may have numbers of their own, such as an embedding (`inputs`).  They follow the categories in v, and

    raw               are features as they are
    pca:k             give their k main directions, beside the categories, one-hot
    one-hot, ...      are not used

factors:k are k numbers of each item that were learned from rewards (`lcb.learners.effects.factors`).  Every item is
then a category of its own, known by its id, and an item that was not learned from has the mean of the others.

Features of the user alone add the same number to `beta . x` of every arm, and so never change the choice; crossed with
the features of the arm, they do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lcb.arrays import Floats
from lcb.errors import CategoryError, InputError

_NAMED = 30  # categories listed in an error
_SPEC = re.compile(r"(one-hot|multi-hot|raw|pca:(\d+))(\+1)?")
_ROWS = 1 << 14  # items mapped at a time


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Maps memberships of `categories`, 0 or 1, (..., C), to features, (..., d)."""

    spec: str  # one-hot, multi-hot, raw, pca:6, each with or without +1 for a constant; factors:5
    categories: tuple[str, ...]  # of factors: the ids of the items
    mean: Floats = field(repr=False)  # (C + m,)
    directions: Floats = field(repr=False)  # (C + m, k)
    scale: float
    constant: bool
    inputs: tuple[str, ...] = ()  # (m,) names of the items' own numbers, which follow the categories

    @property
    def n_features(self) -> int:
        return self.directions.shape[1] + self.constant

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        if self.is_learned:
            names: tuple[str, ...] = tuple(f"factor{i + 1}" for i in range(self.directions.shape[1]))
        elif self.spec.startswith("pca"):
            kept = self.categories if self.inputs else ()
            names = (*kept, *(f"pca{i + 1}" for i in range(self.directions.shape[1] - len(kept))))
        else:
            names = (*self.categories, *self.inputs)
        return (*names, "constant") if self.constant else names

    @property
    def is_learned(self) -> bool:
        """Whether the features are factors, learned from rewards."""
        return is_learned(self.spec)

    @property
    def arms(self) -> Floats:
        """The features of each category by itself, (C, d)."""
        return self._scale(self.directions) if self.is_learned else self(np.eye(len(self.categories)))

    def __call__(self, member: ArrayLike) -> Floats:
        given, n_categories = np.asarray(member), len(self.categories)
        if given.shape[-1] != len(self.mean):
            names = (*self.categories, *self.inputs)
            raise InputError(
                f"vectors over {given.shape[-1]} categories, but the map was fitted on {len(self.mean)} "
                f"({', '.join(names[:3])}, ...); give those"
            )
        if given.ndim == 2 and len(given) > _ROWS:
            return np.concatenate([self(given[i : i + _ROWS]) for i in range(0, len(given), _ROWS)])
        v = _weigh(given[..., :n_categories], self.spec)
        if self.inputs:
            v = np.concatenate([v, given[..., n_categories:]], axis=-1)
        return self._scale((v - self.mean) @ self.directions)

    def _scale(self, x: Floats) -> Floats:
        if self.constant:
            x = np.concatenate([x, np.full((*x.shape[:-1], 1), 1 / self.scale)], axis=-1)
            return x * (self.scale * np.sqrt(0.5))
        return x * self.scale

    def of_names(self, names: Sequence[str]) -> Floats:
        """Return the features of an item with these categories, (d,).

        >>> fit_features("one-hot", ["arts", "law", "film"], []).of_names(["film", "arts"])
        array([0.5, 0. , 0.5])
        >>> fit_features("multi-hot", ["arts", "law", "film"], []).of_names(["film", "arts"])
        array([1., 0., 1.])
        """
        if self.is_learned:
            words = "the models know items by factors that were learned from rewards, not by categories"
            raise CategoryError(f"{words}; send the id alone", 0)
        if self.inputs:
            raise InputError(
                f"the models know items by {len(self.inputs)} numbers of their own "
                f"({', '.join(self.inputs[:3])}, ...), not by categories alone; give x"
            )
        return self(self._find_member(names))

    def of_item(self, id: str) -> Floats:
        """Return the factors of an item, (d,); those of an item that was not learned from are the mean.

        >>> factors = fit_factors(["a", "b"], np.array([[1.0, 0.0], [0.0, 1.0]]))
        >>> factors.of_item("b").round(2), factors.of_item("new").round(2)
        (array([0.  , 0.71, 0.71]), array([0.35, 0.35, 0.71]))
        """
        place = self._position.get(id)
        return self._scale(self.directions.mean(axis=0) if place is None else self.directions[place])

    def of_vector(self, numbers: ArrayLike, names: Sequence[str] = ()) -> Floats:
        """Return the features of an item with these numbers of its own, (m,), and these categories, (d,)."""
        own = np.asarray(numbers, np.float64)
        if own.shape != (len(self.inputs),):
            raise InputError(f"{own.size} numbers of an item, the models know {len(self.inputs)}; give those")
        return self(np.concatenate([self._find_member(names) if names else np.zeros(len(self.categories)), own]))

    def _find_member(self, names: Sequence[str]) -> Floats:
        """Return the memberships of an item with these categories, (C,)."""
        member = np.zeros(len(self.categories))
        for place, name in enumerate(names):
            if name not in self._position:
                more = ", ..." if len(self.categories) > _NAMED else ""
                known = ", ".join(self.categories[:_NAMED]) + more
                raise CategoryError(f"unknown category {name!r}; the categories are {known}", place)
            if member[self._position[name]]:
                raise CategoryError(f"category {name!r} is named twice in {', '.join(names)}; name it once", place)
            member[self._position[name]] = 1.0
        if not len(names):
            raise InputError("the item has no categories; give at least one")
        return member

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.categories)}

    def to_json(self) -> dict[str, Any]:
        """Return the map as JSON, with floats exact, for the folder of the models."""
        return {
            "spec": self.spec,
            "categories": list(self.categories),
            "mean": self.mean.tolist(),
            "directions": self.directions.tolist(),
            "scale": self.scale,
            "constant": self.constant,
            **({"inputs": list(self.inputs)} if self.inputs else {}),
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> FeatureMap:
        """Build the map from the result of `to_json`.

        >>> features = fit_features("pca:2+1", ["a", "b", "c"], [[1, 0, 0], [0, 1, 0], [0, 1, 1]])
        >>> bool((FeatureMap.from_json(features.to_json()).arms == features.arms).all())
        True
        """
        try:
            categories, mean = tuple(map(str, kept["categories"])), np.array(kept["mean"], np.float64)
            directions = np.array(kept["directions"], np.float64)
            scale, constant, inputs = float(kept["scale"]), bool(kept["constant"]), tuple(kept.get("inputs", ()))
            found = cls(str(kept["spec"]), categories, mean, directions, scale, constant, inputs)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the feature map cannot be read ({error}); fit and save it again") from None
        n = len(categories) + len(inputs)
        if mean.shape != (n,) or directions.ndim != 2 or len(directions) != n or not np.isfinite(directions).all():
            raise InputError(
                f"the feature map has {n} categories, a mean of shape {mean.shape} and directions of shape "
                f"{directions.shape}, which do not fit; fit and save it again"
            )
        return found


def is_learned(spec: str | None) -> bool:
    """Whether these features are learned from rewards: factors:K, or factors, whose number is to be chosen."""
    return spec is not None and (spec == "factors" or spec.startswith("factors:"))


def fit_factors(ids: Sequence[str], factors: Floats) -> FeatureMap:
    """Return the map from the ids of items to factors (n, k), which were learned from rewards, beside a constant."""
    kept = np.array([[float(f"{value:.6g}") for value in row] for row in factors.tolist()])
    longest = float(np.linalg.norm(kept, axis=1).max())
    spec, mean = f"factors:{kept.shape[1]}", np.zeros(len(kept))
    return FeatureMap(spec, tuple(ids), mean, kept, 1 / max(longest, 1e-300), constant=True)


def uses_inputs(spec: str) -> bool:
    """Whether features of this kind use the numbers of the items' own, where there are any."""
    return spec.startswith(("raw", "pca"))


def _weigh(member: ArrayLike, spec: str) -> Floats:
    """Return vectors over categories from 0/1 memberships, (..., C); an item without categories has zeros."""
    ones = np.asarray(member, np.float64)
    if spec.startswith("multi-hot"):
        return ones
    return np.asarray(ones / np.maximum(ones.sum(axis=-1, keepdims=True), 1.0))


def fit_features(
    spec: str,
    categories: Sequence[str],
    member: ArrayLike,
    weights: ArrayLike | None = None,
    inputs: Sequence[str] = (),
) -> FeatureMap:
    """Fit a map on the memberships (n, C) of items that past users met, scaled so that features have length at most 1.

    `weights` (n,) say how often each item was met (default: once).  With `inputs`, `member` is (n, C + m): the names of
    the items' own numbers, which follow the memberships.

    >>> member = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1]]
    >>> fit_features("one-hot", ["arts", "law", "film"], member).arms
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    >>> fit_features("pca:1+1", ["arts", "law", "film"], member).arms.round(2)
    array([[ 0.71,  0.71],
           [-0.51,  0.71],
           [-0.29,  0.71]])
    """
    found = _SPEC.fullmatch(spec)
    if not found:
        raise InputError(
            f"features {spec!r}; give one-hot, multi-hot, raw or pca:K, each with or without +1 for a constant, as "
            "pca:6+1"
        )
    if inputs and found[1] != "one-hot" and found[1] != "multi-hot":
        return _fit_inputs(spec, tuple(categories), np.asarray(member), weights, tuple(inputs), found)
    if found[1] == "raw":
        raise InputError("features raw, but the items have no numbers of their own; import them with --item-features")
    constant, n = found[3] is not None, len(categories)
    mean: Floats = np.zeros(n)
    directions: Floats = np.eye(n)
    if found[2]:
        k = int(found[2])
        if not 1 <= k <= n:
            raise InputError(f"features {spec}: {n} categories have pca:1 to pca:{n}")
        v = np.asarray(member, np.float64)
        w = np.ones(len(v)) if weights is None else np.asarray(weights, np.float64)
        if not w.sum() > 1:
            raise InputError(f"features {spec} from {w.sum():g} vectors; the main directions need at least 2")
        mean = w @ v / w.sum()
        directions = _main_directions(((v - mean) * w[:, None]).T @ (v - mean), k)
    ball = np.eye(n)  # the mean of several categories is no longer than the longest of them; their sum can be
    if spec.startswith("multi-hot") and np.size(member):
        ball = np.concatenate([ball, np.asarray(member, np.float64)])
    longest = float(np.linalg.norm((ball - mean) @ directions, axis=1).max())
    return FeatureMap(spec, tuple(categories), mean, directions, 1 / max(longest, 1e-300), constant)


def _fit_inputs(
    spec: str,
    categories: tuple[str, ...],
    member: NDArray[Any],
    weights: ArrayLike | None,
    inputs: tuple[str, ...],
    parsed: re.Match[str],
) -> FeatureMap:
    """Fit a map on items with numbers of their own: as they are, or their main directions, beside the categories."""
    n, m = len(categories), len(inputs)
    mean, directions = np.zeros(n + m), np.eye(n + m)
    if parsed[2]:
        k = int(parsed[2])
        if not 1 <= k <= m:
            raise InputError(f"features {spec}: items with {m} numbers of their own have pca:1 to pca:{m}")
        w = np.ones(len(member)) if weights is None else np.asarray(weights, np.float64)
        if not np.count_nonzero(w) > 1:
            raise InputError(f"features {spec} from {np.count_nonzero(w)} items; the main directions need at least 2")
        total, square = np.zeros(m), np.zeros((m, m))
        for i in range(0, len(member), _ROWS):
            own = np.asarray(member[i : i + _ROWS, n:], np.float64)
            part = own * w[i : i + _ROWS, None]
            total += part.sum(axis=0)
            square += part.T @ own
        mean[n:] = total / w.sum()
        found = _main_directions(square - np.outer(mean[n:], mean[n:]) * w.sum(), k)
        directions = np.zeros((n + m, n + k))
        directions[:n, :n], directions[n:, n:] = np.eye(n), found
    plain = FeatureMap(spec, categories, mean, directions, 1.0, False, inputs)
    longest = float(np.linalg.norm(plain(member), axis=1).max())
    return replace(plain, scale=1 / max(longest, 1e-300), constant=parsed[3] is not None)


def _main_directions(covariance: Floats, k: int) -> Floats:
    """Return the k eigenvectors of the largest eigenvalues, (C, k), signed so that their largest entry is positive."""
    directions = np.linalg.eigh(covariance)[1][:, ::-1][:, :k]
    largest = (np.abs(directions) > np.abs(directions).max(axis=0) - 1e-9).argmax(axis=0)
    return directions * np.sign(directions[largest, range(k)])


def cross(x: Floats, user_x: Floats) -> Floats:
    """Return the arm's features, then their products with the user's: (..., d) and (..., q) -> (..., d + d q).

    >>> cross(np.array([[1.0, 2.0]]), np.array([[10.0]]))
    array([[ 1.,  2., 10., 20.]])
    """
    products = (x[..., :, None] * user_x[..., None, :]).reshape(*x.shape[:-1], -1)
    return np.concatenate([x, products], axis=-1)


def cross_names(features: Sequence[str], user_features: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the features of `cross`.

    >>> cross_names(["sport", "arts"], ["age"])
    ('sport', 'arts', 'sport*age', 'arts*age')
    """
    return (*features, *(f"{name}*{user}" for name in features for user in user_features))
