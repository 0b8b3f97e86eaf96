"""Item effects among the tensors of saved models.

item_effect, item_variance and item_count (n,) are float64; the ids are UTF-8 bytes with the place where each ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lcb.errors import ModelError
from lcb.models.item_effects import ItemEffects

_VALUES = ("effect", "variance", "count")
_NUMBERS = ("prior_mean", "prior_variance", "noise")
_UNLIKE = ("unlike", "unlike_variance")  # only where items may be unlike the others
_KEYS = (set(_NUMBERS), {*_NUMBERS, *_UNLIKE})
_DTYPES = {
    **dict.fromkeys((f"item_{name}" for name in _VALUES), np.float64),
    "item_ids": np.uint8,
    "item_ends": np.int64,
}
ITEM_TENSORS = tuple(_DTYPES)


def pack_effects(effects: ItemEffects) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors, and the numbers for the manifest."""
    ids = [id.encode() for id in effects.ids]
    ends = np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)), dtype=np.int64)
    tensors = {f"item_{name}": np.ascontiguousarray(getattr(effects, name)) for name in _VALUES}
    tensors |= {"item_ids": np.frombuffer(b"".join(ids), np.uint8), "item_ends": ends}
    return tensors, {name: getattr(effects, name) for name in (*_NUMBERS, *(_UNLIKE if effects.unlike else ()))}


def unpack_effects(tensors: Mapping[str, Any], manifest: object) -> ItemEffects | None:
    """Return the effects; None if there are none; raises ModelError if they are not what `pack_effects` returned."""
    found = {name: tensors[name] for name in ITEM_TENSORS if name in tensors}
    if not found and manifest is None:
        return None
    if len(found) < len(_DTYPES) or not isinstance(manifest, dict) or set(manifest) not in _KEYS:
        raise ModelError("item effects are not complete")
    for name, values in found.items():
        if values.dtype != _DTYPES[name] or values.ndim != 1:
            raise ModelError(
                f"{name} has {values.ndim} dimensions of {values.dtype}, wanted 1 of {_DTYPES[name].__name__}"
            )
    ends, text = found["item_ends"], found["item_ids"].tobytes()
    starts = np.concatenate([[0], ends[:-1]])[: len(ends)]
    if (ends < starts).any() or (int(ends[-1]) if len(ends) else 0) != len(text):
        raise ModelError("the ids of item effects are cut wrongly")
    try:
        ids = tuple(text[begin:end].decode() for begin, end in zip(starts.tolist(), ends.tolist(), strict=True))
        numbers = (float(manifest[name]) for name in (*_NUMBERS, *(_UNLIKE if "unlike" in manifest else ())))
        return ItemEffects(ids, *(found[f"item_{name}"] for name in _VALUES), *numbers)
    except (UnicodeDecodeError, TypeError, ValueError) as error:
        raise ModelError(f"item effects cannot be read ({error})") from None
