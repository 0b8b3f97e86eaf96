"""An exp that the compiler can vectorise.

Numba calls libm once per element; this computes the exponent by bit operations and the rest by a polynomial, so a loop
handles four or eight elements at a time: the softmax of EM is 3.7 to 5.3 times faster, the draw of a class in blocked
Gibbs 4 times.  (A log and a log gamma of this kind made collapsed Gibbs 0.9 to 1.3 times as fast, so it uses libm's.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from lcb.runtime.compiled import njit

COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},  # without ninf and nnan: infinities are respected
}


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing_context: Any, value: Any) -> Any:
    """Reinterpret the bits of a float as an integer."""
    whole = types.int64 if value == types.float64 else types.int32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(whole))

    return whole(value), generate


@intrinsic  # type: ignore[untyped-decorator]
def _from_bits(typing_context: Any, value: Any) -> Any:
    """Reinterpret the bits of an integer as a float."""
    number = types.float64 if value == types.int64 else types.float32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(number))

    return number(value), generate


@njit(**(COMPILED | {"fastmath": {"contract"}}))
def fast_exp(value):  # type: ignore[no-untyped-def]
    """Return exp of a number of at most 700; numbers below -700 count as -700."""
    x = max(value, -700.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # rounds to an integer k, which is in the low bits
    k = shifted - 6755399441055744.0
    r = x - k * 6.93147180369123816490e-01 - k * 1.90821492927058770002e-10
    q = r * (1 / 479001600) + 1 / 39916800
    q = q * r + 1 / 3628800
    q = q * r + 1 / 362880
    q = q * r + 1 / 40320
    q = q * r + 1 / 5040
    q = q * r + 1 / 720
    q = q * r + 1 / 120
    q = q * r + 1 / 24
    q = q * r + 1 / 6
    q = q * r + 0.5
    q = q * r + 1.0
    return (q * r + 1.0) * _from_bits((_bits(shifted) + 1023) << 52)


@njit(**(COMPILED | {"fastmath": {"contract"}}))
def fast_exp32(value):  # type: ignore[no-untyped-def]
    """The same in float32, down to -87; relative error below 3e-7."""
    x = max(value, np.float32(-87.0))
    shifted = x * np.float32(1.4426950408889634) + np.float32(12582912.0)
    k = shifted - np.float32(12582912.0)
    r = x - k * np.float32(0.693359375) - k * np.float32(-2.12194440e-4)
    q = r * np.float32(1 / 720) + np.float32(1 / 120)
    q = q * r + np.float32(1 / 24)
    q = q * r + np.float32(1 / 6)
    q = q * r + np.float32(0.5)
    q = q * r + np.float32(1.0)
    return (q * r + np.float32(1.0)) * _from_bits(np.int32((_bits(shifted) + 127) << 23))
