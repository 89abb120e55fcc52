"""The map of a query's neighbourhood: principal components of all episodes' vectors together."""

import numpy as np
import pytest

from teleport.report.page.maps import shared_map


@pytest.mark.parametrize("dim", [3, 200])  # fewer and more dimensions than vectors
def test_the_map_is_the_first_two_principal_components(dim):
    vectors_EBD = np.random.default_rng(0).normal(size=(3, 10, dim)) * np.linspace(3, 1, dim)
    points = shared_map(vectors_EBD)
    flat = vectors_EBD.reshape(30, dim)
    left, sizes, _ = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * sizes[:2]
    expected *= np.where(expected[0] < 0, -1, 1)
    assert points.shape == (3, 10, 2)
    assert points.reshape(30, 2) == pytest.approx(expected)
    assert (points[0, 0] >= 0).all()


def test_one_dimension_and_equal_vectors():
    assert np.isfinite(shared_map(np.ones((2, 3, 1)))).all()
    assert shared_map(np.ones((2, 3, 5))) == pytest.approx(np.zeros((2, 3, 2)))
