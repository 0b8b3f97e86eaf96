import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from lcb.errors import InputError
from lcb.learners.spectral.tensor_power import tensor_power, whitening


def orthogonal_tensor(k, n, rng):
    vectors = np.linalg.qr(rng.standard_normal((k, k)))[0][:n]
    values = rng.uniform(1, 3, n)
    return np.einsum("h,hi,hj,hk->ijk", values, vectors, vectors, vectors), values, vectors


def symmetric_noise(k, size, rng):
    noise = rng.standard_normal((k, k, k))
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    noise = sum(noise.transpose(order) for order in orders) / 6
    starts = rng.standard_normal((2000, k))
    starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    norm = np.abs(np.einsum("ijk,si,sj,sk->s", noise, starts, starts, starts, optimize=True)).max()
    return size * noise / norm


@settings(max_examples=30, deadline=None)
@given(seed=integers(0, 2**32 - 1), k=integers(1, 8))
def test_orthogonal_tensors_are_taken_apart_exactly(seed, k):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, k + 1))
    tensor, values, vectors = orthogonal_tensor(k, n, rng)
    found, directions = tensor_power(tensor, rng, n_components=n)
    order = np.argsort(-values)
    np.testing.assert_allclose(found, values[order], rtol=1e-9)
    np.testing.assert_allclose(directions, vectors[order], atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_fewer_components_than_there_are_are_the_largest(seed):
    rng = np.random.default_rng(seed)
    tensor, values, _ = orthogonal_tensor(6, 6, rng)
    np.testing.assert_allclose(tensor_power(tensor, rng, n_components=2)[0], np.sort(values)[:-3:-1], rtol=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_noise_moves_a_component_no_further_than_its_size(seed):  # Theorem 5.1: 5 |E| for values, 8 |E| / lambda
    rng = np.random.default_rng(seed)
    tensor, values, vectors = orthogonal_tensor(5, 5, rng)
    size = 0.03
    found, directions = tensor_power(tensor + symmetric_noise(5, size, rng), rng)
    nearest = np.argmax(np.abs(directions @ vectors.T), axis=1)
    assert sorted(nearest) == list(range(5))
    assert np.abs(found - values[nearest]).max() < 5 * size
    assert (np.linalg.norm(directions - vectors[nearest], axis=1) < 8 * size / values[nearest]).all()


def test_refinement_undoes_what_deflation_adds():
    """Each component is a fixed point of the tensor with the others taken away."""
    rng = np.random.default_rng(3)
    tensor = orthogonal_tensor(4, 4, rng)[0] + symmetric_noise(4, 0.1, rng)
    values, vectors = tensor_power(tensor, rng)
    cubes = np.einsum("h,hi,hj,hk->hijk", values, vectors, vectors, vectors)
    for h in range(4):
        rest = tensor - cubes.sum(axis=0) + cubes[h]
        moved = np.einsum("ijk,j,k->i", rest, vectors[h], vectors[h])
        np.testing.assert_allclose(moved, values[h] * vectors[h], atol=1e-5)


def test_whitened_components_are_orthonormal_and_come_back():
    rng = np.random.default_rng(0)
    beta, pi = rng.standard_normal((3, 6)), np.array([0.5, 0.3, 0.2])
    white, back = whitening(np.einsum("h,hi,hj->ij", pi, beta, beta), 3)
    directions = np.sqrt(pi)[:, None] * beta @ white
    np.testing.assert_allclose(directions @ directions.T, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(directions @ back.T, np.sqrt(pi)[:, None] * beta, atol=1e-10)
    tensor = np.einsum("h,ha,hb,hc->abc", pi, *[beta @ white] * 3)
    values, vectors = tensor_power(tensor, rng)
    np.testing.assert_allclose(1 / values**2, pi[::-1], rtol=1e-8)
    np.testing.assert_allclose(values[:, None] * vectors @ back.T, beta[::-1], atol=1e-6)


def test_the_tensor_is_left_as_it_was():
    tensor = orthogonal_tensor(3, 3, np.random.default_rng(0))[0]
    before = tensor.copy()
    tensor_power(tensor, np.random.default_rng(0))
    np.testing.assert_array_equal(tensor, before)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e200])
def test_any_scale_gives_finite_components(size):
    tensor = size * orthogonal_tensor(3, 3, np.random.default_rng(0))[0]
    values, vectors = tensor_power(tensor, np.random.default_rng(0), n_starts=5, n_iterations=30)
    assert np.isfinite(values).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)


@pytest.mark.parametrize(
    "tensor, settings_, words",
    [
        (np.zeros((2, 2)), {}, "wanted"),
        (np.zeros((2, 2, 3)), {}, "wanted"),
        (np.zeros((0, 0, 0)), {}, "wanted"),
        (np.float64(1.0), {}, "wanted"),
        (np.full((2, 2, 2), np.nan), {}, "not finite"),
        (np.arange(8.0).reshape(2, 2, 2), {}, "symmetric"),
        (np.ones((2, 2, 2)), {"n_components": 3}, "1 to k=2"),
        (np.ones((2, 2, 2)), {"n_components": 0}, "1 to k=2"),
        (np.ones((2, 2, 2)), {"n_starts": 0}, "at least 1"),
        (np.ones((2, 2, 2)), {"n_iterations": 0}, "at least 1"),
    ],
)
def test_wrong_tensors_are_refused(tensor, settings_, words):
    with pytest.raises(InputError, match=words):
        tensor_power(tensor, np.random.default_rng(0), **settings_)


def test_whitening_refuses_more_components_than_the_rank():
    with pytest.raises(InputError, match="1 positive eigenvalues, 2 are needed"):
        whitening(np.diag([1.0, 0.0]), 2)
