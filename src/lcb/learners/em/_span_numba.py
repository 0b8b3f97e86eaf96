"""Compiled E-step of a span of users, block by block.

A span is one call, without Python's lock.  With a few calls for each block, two threads waited for the lock so often
that they were 1.5 times as fast as one.  BLAS is called by its address, as `np.dot` of Numba would copy each block.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from numpy.typing import NDArray

from lcb.learners.em._softmax_numba import softmax32, softmax64
from lcb.runtime.compiled import njit

_COMPILED = {"nogil": True, "cache": True, "error_model": "numpy"}
_MOST = 2**31 - 1  # BLAS counts with 32 bits


def sum_blocks(
    packed: NDArray[Any],
    weights: NDArray[Any],
    log_pi: NDArray[Any],
    users: slice,
    size: int,
    sums: NDArray[np.float64],
    mass: NDArray[np.float64],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Add the expected statistics (p, N) and users (N,) of each class to `sums` and `mass`, `size` users at a time.

    Statistics are `packed` (p, U), classes `weights` (N, p) and `log_pi` (N,).  Return `top` and `total`, (users,):
    `top` + log `total` is the log evidence of each.
    """
    own = packed[:, users]
    if own.strides[1] != own.itemsize or own.strides[0] > _MOST * own.itemsize:
        own = np.ascontiguousarray(own)
    n = own.shape[1]
    top, total = np.empty(n, own.dtype), np.empty(n, own.dtype)
    double = own.dtype == np.float64
    run, gemm = (_sum_blocks64, _find_gemm("dgemm")) if double else (_sum_blocks32, _find_gemm("sgemm"))
    run(gemm, own.ctypes.data, own.strides[0] // own.itemsize, weights, log_pi, min(size, n), sums, mass, top, total)
    return top, total


@cache
def _find_gemm(name: str) -> int:
    address: int = get_cython_function_address("scipy.linalg.cython_blas", name)
    return address


@intrinsic  # type: ignore[untyped-decorator]
def _multiply(typing_context: Any, gemm: Any, transpose: Any, m: Any, n: Any, k: Any, a: Any, b: Any, c: Any) -> Any:
    """Call BLAS: c = op(a) b, where a, b and c are (address, distance of columns), by columns; op transposes or not.

    `c` is an array that says the type of the numbers, too.
    """
    number = c.dtype

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, whole = context.get_value_type(number), ir.IntType(32)

        def keep(value: Any) -> Any:
            place = cgutils.alloca_once(builder, value.type)
            builder.store(value, place)
            return place

        def shorten(value: Any) -> Any:
            return keep(builder.trunc(value, whole))

        def locate(matrix: Any) -> tuple[Any, Any]:
            address = builder.inttoptr(builder.extract_value(matrix, 0), kind.as_pointer())
            return address, shorten(builder.extract_value(matrix, 1))

        letter = ir.IntType(8)
        own = builder.select(args[1], ir.Constant(letter, ord("T")), ir.Constant(letter, ord("N")))
        sizes = [shorten(value) for value in args[2:5]]
        target = context.make_array(signature.args[7])(context, builder, args[7])
        given = [keep(own), keep(ir.Constant(letter, ord("N"))), *sizes, keep(ir.Constant(kind, 1.0))]
        given += [*locate(args[5]), *locate(args[6]), keep(ir.Constant(kind, 0.0)), target.data, sizes[0]]
        called = ir.FunctionType(ir.VoidType(), [value.type for value in given]).as_pointer()
        builder.call(builder.inttoptr(args[0], called), given)
        return context.get_dummy_value()

    matrix = types.UniTuple(types.intp, 2)
    whole = types.intp
    return types.void(whole, types.boolean, whole, whole, whole, matrix, matrix, c), generate


@njit(**_COMPILED)
def _sum_blocks64(gemm, packed, step, weights, log_pi, size, sums, mass, top, total):  # type: ignore[no-untyped-def]
    p, n_classes = sums.shape
    resp, product = np.empty(n_classes * size), np.empty((p, n_classes))
    for i in range(0, len(top), size):
        n, first = min(size, len(top) - i), packed + i * 8
        block_resp = resp[: n_classes * n].reshape(n_classes, n)
        _multiply(gemm, False, n, n_classes, p, (first, step), (weights.ctypes.data, p), block_resp)
        softmax64(block_resp, log_pi, top[i : i + n], total[i : i + n], mass)
        _multiply(gemm, True, n_classes, p, n, (block_resp.ctypes.data, n), (first, step), product)
        sums += product


@njit(**_COMPILED)
def _sum_blocks32(gemm, packed, step, weights, log_pi, size, sums, mass, top, total):  # type: ignore[no-untyped-def]
    p, n_classes = sums.shape
    resp, product = np.empty(n_classes * size, np.float32), np.empty((p, n_classes), np.float32)
    for i in range(0, len(top), size):
        n, first = min(size, len(top) - i), packed + i * 4
        block_resp = resp[: n_classes * n].reshape(n_classes, n)
        _multiply(gemm, False, n, n_classes, p, (first, step), (weights.ctypes.data, p), block_resp)
        softmax32(block_resp, log_pi, top[i : i + n], total[i : i + n], mass)
        _multiply(gemm, True, n_classes, p, n, (block_resp.ctypes.data, n), (first, step), product)
        sums += product
