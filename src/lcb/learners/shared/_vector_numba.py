"""log, exp and log gamma that the compiler can turn into vector code.

Numba calls libm once per element; these are polynomials after the exponent is split off by its bits, so a loop
over classes runs four or eight at a time.  Relative error below 1e-14 on the ranges the samplers use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from lcb._compiled import njit

COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},  # infinities keep their meaning
}


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing_context: Any, value: Any) -> Any:
    """A number as the whole number with the same bits."""
    whole = types.int64 if value == types.float64 else types.int32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(whole))

    return whole(value), generate


@intrinsic  # type: ignore[untyped-decorator]
def _from_bits(typing_context: Any, value: Any) -> Any:
    """A whole number as the number with the same bits."""
    number = types.float64 if value == types.int64 else types.float32

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(number))

    return number(value), generate


@njit(**(COMPILED | {"fastmath": {"contract"}}))
def fast_log(x):  # type: ignore[no-untyped-def]
    """Log of a positive, normal number."""
    bits = _bits(x) - 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
    exponent = _from_bits(((bits >> 52) & 0xFFF ^ 0x800) | 0x4330000000000000) - (4503599627370496.0 + 2048.0)
    mantissa = _from_bits((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD)
    f = mantissa - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = z * 1.479819860511658591e-01 + 1.531383769920937332e-01
    r = r * z + 1.818357216161805012e-01
    r = r * z + 2.222219843214978396e-01
    r = r * z + 2.857142874366239149e-01
    r = r * z + 3.999999999940941908e-01
    r = r * z + 6.666666666666735130e-01
    half = 0.5 * f * f
    return exponent * 6.93147180369123816490e-01 - (
        (half - (s * (half + r * z) + exponent * 1.90821492927058770002e-10)) - f
    )


@njit(**(COMPILED | {"fastmath": {"contract"}}))
def fast_exp(value):  # type: ignore[no-untyped-def]
    """exp of a number that is at most 700; below -700 a number next to 0."""
    x = max(value, -700.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # rounds to a whole number k, kept in the low bits
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


@njit(**COMPILED)
def fast_log_gamma(x):  # type: ignore[no-untyped-def]
    """Log gamma of a positive number: Stirling's series eight steps up, and down again."""
    product = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0)
    return stirling(x + 8.0) - fast_log(product)


@njit(**COMPILED)
def stirling(x):  # type: ignore[no-untyped-def]
    """Log gamma of a number that is at least 8."""
    inverse = 1.0 / x
    square = inverse * inverse
    tail = square * (-691.0 / 360360.0) + 1.0 / 1188.0
    tail = tail * square - 1.0 / 1680.0
    tail = tail * square + 1.0 / 1260.0
    tail = tail * square - 1.0 / 360.0
    tail = tail * square + 1.0 / 12.0
    return (x - 0.5) * fast_log(x) - x + 0.9189385332046727 + tail * inverse
