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
from collections.abc import Iterator, Sequence
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
    spec, mean = f"factors:{factors.shape[1]}", np.zeros(len(kept))
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
    if inputs and found[2]:
        return next(_fit_directions([spec], tuple(categories), np.asarray(member), weights, tuple(inputs)))[0]
    if inputs and found[1] == "raw":
        return _fit_raw(spec, tuple(categories), np.asarray(member), tuple(inputs))
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


def fit_many(
    specs: Sequence[str],
    categories: Sequence[str],
    member: NDArray[Any],
    weights: ArrayLike | None = None,
    inputs: Sequence[str] = (),
) -> Iterator[tuple[FeatureMap, Floats]]:
    """Yield the map of each specification, as `fit_features` does, and the features of all items, (n, d).

    Of items with numbers of their own the main directions are computed once, for the largest pca:K.

    >>> member = np.random.default_rng(0).normal(size=(9, 3))
    >>> [(one.spec, x.shape) for one, x in fit_many(["pca:1+1", "pca:2+1", "raw"], (), member, inputs=["a", "b", "c"])]
    [('pca:1+1', (9, 2)), ('pca:2+1', (9, 3)), ('raw', (9, 3))]
    """
    together = [spec for spec in specs if inputs and spec.startswith("pca:") and _SPEC.fullmatch(spec)]
    if together:
        yield from _fit_directions(together, tuple(categories), member, weights, tuple(inputs))
    for spec in specs:
        if spec not in together:
            own = inputs if uses_inputs(spec) else ()
            used = member if own else member[:, : len(categories)]
            fitted = fit_features(spec, categories, used, weights, own)
            yield fitted, fitted(used)


def _fit_raw(spec: str, categories: tuple[str, ...], member: NDArray[Any], inputs: tuple[str, ...]) -> FeatureMap:
    """Fit a map that takes the items' own numbers as they are, beside the categories."""
    n = len(categories) + len(inputs)
    plain = FeatureMap(spec, categories, np.zeros(n), np.eye(n), 1.0, False, inputs)
    longest = float(np.linalg.norm(plain(member), axis=1).max())
    return replace(plain, scale=1 / max(longest, 1e-300), constant=spec.endswith("+1"))


def _fit_directions(
    specs: Sequence[str],
    categories: tuple[str, ...],
    member: NDArray[Any],
    weights: ArrayLike | None,
    inputs: tuple[str, ...],
) -> Iterator[tuple[FeatureMap, Floats]]:
    """Yield maps to main directions of the items' own numbers, beside the categories, and the features of all items."""
    n, m = len(categories), len(inputs)
    sizes = [int(spec.removeprefix("pca:").removesuffix("+1")) for spec in specs]
    for spec, k in zip(specs, sizes, strict=True):
        if not 1 <= k <= m:
            raise InputError(f"features {spec}: items with {m} numbers of their own have pca:1 to pca:{m}")
    w = np.ones(len(member)) if weights is None else np.asarray(weights, np.float64)
    if not np.count_nonzero(w) > 1:
        raise InputError(f"features {specs[0]} from {np.count_nonzero(w)} items; the main directions need at least 2")
    most = max(sizes)
    mean, directions = np.zeros(n + m), np.zeros((n + m, n + most))
    mean[n:], square = _sum_inputs(member, n, w)
    directions[:n, :n], directions[n:, n:] = np.eye(n), _main_directions(square, most)
    whole = FeatureMap(f"pca:{most}", categories, mean, directions, 1.0, False, inputs)(member)
    length = np.sqrt(np.cumsum(whole**2, axis=1)[:, [n + k - 1 for k in sizes]].max(axis=0))
    for spec, k, longest in zip(specs, sizes, length.tolist(), strict=True):
        constant, scale = spec.endswith("+1"), 1 / max(longest, 1e-300)
        fitted = FeatureMap(spec, categories, mean, directions[:, : n + k], scale, constant, inputs)
        x = whole[:, : n + k] * scale
        yield fitted, np.column_stack([x, np.ones(len(x))]) * np.sqrt(0.5) if constant else x


def _sum_inputs(member: NDArray[Any], n: int, w: Floats) -> tuple[Floats, Floats]:
    """Return the mean of the numbers that follow the n categories, and their scatter, block by block.

    Blocks of float32 are multiplied as such, less the mean; sums are of float64.
    """
    m = member.shape[1] - n
    total, square = np.zeros(m), np.zeros((m, m))
    blocks = [slice(i, i + _ROWS) for i in range(0, len(member), _ROWS)]
    for block in blocks:
        total += w[block] @ member[block, n:]
    mean = total / w.sum()
    kind = np.float32 if member.dtype == np.float32 else np.float64
    for block in blocks:
        own = member[block, n:] - mean.astype(kind)
        square += (own * w[block, None].astype(kind)).T @ own
    return mean, square


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
