"""Latent models in a folder: numbers in safetensors, words in a manifest.

    models-<sha12>.safetensors    pi (N,), beta (N, d), sigma2 (N,), where known covariance (N, d, d), and of personal
                                  models with noise per arm arms (A, d) and arm_sigma2 (A,); of a mixture the
                                  statistics of each class, sums (N, p); float64
    manifest.json                 format, format_version, n_classes, n_features, features, likelihood, provenance,
                                  personal (true, or left out), sha256 (of the tensors file), lcb (version),
                                  feature_map (where there is one),
                                  manifest_sha256 (of the rest)

The manifest names the tensors file by its sha256.  Renaming the new manifest over the old one switches models in one
step: before it the old models load, after it the new ones.  The old tensors file is deleted last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from lcb.arrays import Floats
from lcb.errors import InputError, ModelError, OutputError
from lcb.features import FeatureMap
from lcb.models import LatentModels
from lcb.stats import n_packed
from lcb.storage.files import create_folders
from lcb.storage.models.item_effects import ITEM_TENSORS, pack_effects, unpack_effects
from lcb.version import __version__

_FORMAT = "lcb-models"
_VERSION = 1
_MANIFEST = "manifest.json"
_KEYS = {
    "n_classes": int,
    "n_features": int,
    "features": list,
    "likelihood": str,
    "provenance": dict,
    "sha256": str,
    "lcb": str,
}
_TENSORS = ("pi", "beta", "sigma2", "covariance", "arms", "arm_sigma2", "sums")
_OURS = re.compile(r"models-[0-9a-f]{12}\.safetensors|(tensors|manifest)\.tmp")
_AGAIN = "save the models again, or restore them from a backup"


def save_models(
    models: LatentModels,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    feature_map: FeatureMap | None = None,
) -> None:
    """Write `models` into `folder`, created if missing; with `overwrite`, models already there are replaced.

    `feature_map` computed the features that the models were learned from; it is stored with them.

    After a crash the folder holds the old models or the new; the next save removes temporary files.

    >>> from tempfile import TemporaryDirectory
    >>> models = LatentModels(pi=[1.0], beta=[[0.5, 2.0]], sigma2=[0.25], features=("age", "hour"))
    >>> with TemporaryDirectory() as folder:
    ...     save_models(models, f"{folder}/models")
    ...     load_models(f"{folder}/models").beta
    array([[0.5, 2. ]])
    """
    place = Path(folder)
    manifest, tensors = pack_models(models, feature_map)
    try:
        with _create_folder(place), _lock_folder(place):
            _check_replaceable(place, overwrite)
            _replace(place, tensors, manifest)
    except OSError as error:
        remedy = "free disk space, check its permissions, or give another folder"
        raise OutputError(f"{folder} could not be written ({error.strerror or error}); {remedy}") from None


def pack_models(models: LatentModels, feature_map: FeatureMap | None = None) -> tuple[bytes, bytes]:
    """Return the bytes of the manifest and of the tensors, to store elsewhere than in a folder."""
    values = {name: getattr(models, name) for name in _TENSORS}
    kept = {name: np.ascontiguousarray(array) for name, array in values.items() if array is not None}
    if models.item_effects is not None:
        kept |= pack_effects(models.item_effects)[0]
    tensors = save(kept)
    return _build_manifest(models, tensors, feature_map), tensors


def unpack_models(manifest: bytes, tensors: bytes, place: str) -> tuple[LatentModels, FeatureMap | None]:
    """Unpack what `pack_models` returned and verify its checksums; error messages call it `place`."""
    read = _parse_manifest(manifest, place)
    return _build_models(read, tensors, place), _build_feature_map(read, place)


def check_models_folder(folder: str | os.PathLike[str]) -> None:
    """Raise OutputError if `save_models` could not write this folder, before a long computation starts."""
    place = Path(folder)
    if place.is_dir():
        _check_replaceable(place, overwrite=True)
    elif place.exists():
        raise OutputError(f"{place} is a file; give the path of a folder")
    nearest = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise OutputError(f"{folder} cannot be made under {nearest}; check its permissions, or give another folder")


def load_models(folder: str | os.PathLike[str]) -> LatentModels:
    """Read the models of a folder; raises ModelError unless the files are exactly what `save_models` wrote."""
    place = Path(folder)
    manifest = _read_manifest(place)
    try:
        data = (place / _name_tensors_file(manifest["sha256"])).read_bytes()
    except FileNotFoundError:
        if _read_manifest(place) != manifest:  # replaced meanwhile
            return load_models(folder)
        raise ModelError(f"{folder} has lost its {_name_tensors_file(manifest['sha256'])}; {_AGAIN}") from None
    except OSError as error:
        raise ModelError(f"{folder} could not be read ({error.strerror}); check its permissions") from None
    return _build_models(manifest, data, str(folder))


def load_feature_map(folder: str | os.PathLike[str]) -> FeatureMap | None:
    """Return the feature map stored with the models of a folder, or None."""
    return _build_feature_map(_read_manifest(Path(folder)), str(folder))


# Writing


def _build_manifest(models: LatentModels, tensors: bytes, feature_map: FeatureMap | None) -> bytes:
    if feature_map is not None and feature_map.n_features != models.n_features:
        words = f"the models have {models.n_features} features, their feature map makes {feature_map.n_features}"
        raise ModelError(f"{words}; give the map they were learned with")
    provenance = dict(models.provenance)
    try:
        survives = json.loads(json.dumps(provenance, allow_nan=False)) == provenance
    except (TypeError, ValueError, RecursionError):
        survives = False
    if not survives:
        raise ModelError(
            "provenance cannot be stored as JSON without change; "
            "use dicts with string keys, lists, strings, finite numbers, truth values and None"
        )
    manifest = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "n_classes": models.n_classes,
        "n_features": models.n_features,
        "features": list(models.features),
        "likelihood": models.likelihood,
        "levels": models.levels and list(models.levels),
        "provenance": provenance,
        "sha256": _compute_sha256(tensors),
        "lcb": __version__,
        **({"feature_map": feature_map.to_json()} if feature_map else {}),
        **({"personal": True} if models.personal else {}),
        **({"item_effects": pack_effects(models.item_effects)[1]} if models.item_effects else {}),
    }
    return json.dumps(manifest | {"manifest_sha256": _compute_seal(manifest)}, indent=2).encode()


@contextmanager
def _create_folder(place: Path) -> Iterator[None]:
    """Create a folder and its missing parents, and sync them to disk after the `with` block.

    If the block raises, those of them that are empty are removed.
    """
    if place.exists() and not place.is_dir():
        raise OutputError(f"{place} is a file; give the path of a folder")
    missing = [path for path in (place, *place.parents) if not path.exists()]
    with create_folders(place):
        yield
        for path in missing:
            _sync(path.parent)


@contextmanager
def _lock_folder(place: Path) -> Iterator[None]:
    """Hold a lock on the folder, so that one process writes at a time."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_replaceable(place: Path, overwrite: bool) -> None:
    names = sorted(path.name for path in place.iterdir())
    path = place / _MANIFEST
    says_so = path.is_file() and f'"{_FORMAT}"'.encode() in path.read_bytes()
    if names and not says_so and not any(map(_OURS.fullmatch, names)):
        raise OutputError(f"{place} holds {names[0]} and no models; give an empty or a new folder")
    if _MANIFEST in names and not overwrite:
        raise OutputError(f"{place} already holds models; give another folder, or allow overwriting")


def _replace(place: Path, tensors: bytes, manifest: bytes) -> None:
    name = _name_tensors_file(_compute_sha256(tensors))
    before = {path.name for path in place.iterdir()}
    try:
        _write(place / "tensors.tmp", tensors)
        os.replace(place / "tensors.tmp", place / name)
        _sync(place)
        _write(place / "manifest.tmp", manifest)
        os.replace(place / "manifest.tmp", place / _MANIFEST)
        _sync(place)
    finally:
        replaced = (place / _MANIFEST).exists() and (place / _MANIFEST).read_bytes() == manifest
        _sweep(place, kept={name} if replaced else before)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(place: Path, kept: set[str]) -> None:
    """Delete all files that `save_models` wrote, except those in `kept`."""
    for path in place.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in kept:
            path.unlink()


# Reading


def _read_manifest(place: Path) -> dict[str, Any]:
    path = place / _MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"{path} is missing; give a folder that save_models or `lcb learn` wrote") from None
    except OSError as error:
        raise ModelError(f"{path} could not be read ({error.strerror}); check its permissions") from None
    return _parse_manifest(data, str(path))


def _parse_manifest(data: bytes, path: str) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON ({error}); {_AGAIN}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ModelError(f"{path} is not of format {_FORMAT}; give a folder that save_models or `lcb learn` wrote")
    if manifest.get("format_version") != _VERSION:
        came = manifest.get("format_version")
        raise ModelError(f"{path} has format_version {came!r}, wanted {_VERSION}; install the lcb that wrote it")
    seal = manifest.pop("manifest_sha256", None)
    for key, kind in _KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise ModelError(f"{path} has no {key} of type {kind.__name__}; {_AGAIN}")
    if seal != _compute_seal(manifest):
        raise ModelError(f"{path} was changed after it was written; {_AGAIN}")
    return manifest


def _build_models(manifest: dict[str, Any], data: bytes, folder: str) -> LatentModels:
    if _compute_sha256(data) != manifest["sha256"]:
        raise ModelError(f"{folder} is damaged: its tensors have another sha256 than its manifest says; {_AGAIN}")
    tensors = _parse_tensors(data, manifest, folder)
    try:
        return LatentModels(
            tensors["pi"],
            tensors["beta"],
            tensors["sigma2"],
            features=tuple(manifest["features"]),
            provenance=manifest["provenance"],
            likelihood=manifest["likelihood"],
            levels=manifest["levels"] and tuple(manifest["levels"]),
            covariance=tensors.get("covariance"),
            personal=manifest.get("personal") is True,
            arms=tensors.get("arms"),
            arm_sigma2=tensors.get("arm_sigma2"),
            sums=tensors.get("sums"),
            item_effects=unpack_effects(tensors, manifest.get("item_effects")),
        )
    except ModelError as error:
        raise ModelError(f"{folder} holds no models: {error}; {_AGAIN}") from None


def _build_feature_map(manifest: dict[str, Any], folder: str) -> FeatureMap | None:
    kept = manifest.get("feature_map")
    if kept is None:
        return None
    try:
        return FeatureMap.from_json(kept)
    except InputError as error:
        raise ModelError(f"{folder} has {error}") from None


def _parse_tensors(data: bytes, manifest: dict[str, Any], folder: str) -> dict[str, Floats]:
    try:
        tensors: dict[str, Floats] = load(data)
    except (SafetensorError, KeyError) as error:
        raise ModelError(f"{folder} has tensors that are not safetensors ({error}); {_AGAIN}") from None
    n_classes, n_features = manifest["n_classes"], manifest["n_features"]
    wanted = {"pi": (n_classes,), "beta": (n_classes, n_features), "sigma2": (n_classes,)}
    if "covariance" in tensors:
        wanted["covariance"] = (n_classes, n_features, n_features)
    if "arms" in tensors or "arm_sigma2" in tensors:
        n_arms = len(tensors.get("arms", ()))
        wanted |= {"arms": (n_arms, n_features), "arm_sigma2": (n_arms,)}
    if "sums" in tensors:
        wanted["sums"] = (n_classes, n_packed(n_features))
    own = {name: values for name, values in tensors.items() if name not in ITEM_TENSORS}
    shapes = {name: values.shape for name, values in own.items()}
    if shapes != wanted:
        raise ModelError(f"{folder} has tensors of shapes {shapes}, its manifest says {wanted}; {_AGAIN}")
    for name, values in own.items():
        if values.dtype != np.float64:
            raise ModelError(f"{folder} has {name} as {values.dtype}, wanted float64; {_AGAIN}")
    features = [name for name in manifest["features"] if isinstance(name, str)]
    if len(features) != n_features:
        raise ModelError(f"{folder} names {len(features)} features of {n_features}; {_AGAIN}")
    return tensors


def _name_tensors_file(sha256: str) -> str:
    return f"models-{sha256[:12]}.safetensors"


def _compute_seal(manifest: dict[str, Any]) -> str:
    return _compute_sha256(json.dumps(manifest, sort_keys=True).encode())


def _compute_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
