"""The generators: exact identities, and the models' statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedspan.datasets import make_few_shot_tasks, make_mixed_regression, make_subspace_sites
from fedspan.errors import InputError

MAKERS: list[Callable[..., Any]] = [
    lambda seed: make_subspace_sites(9, 2, 3, 5, tail=0.1, seed=seed),
    lambda seed: make_few_shot_tasks(7, 4, 2, 5, 2, noise=0.1, seed=seed),
    lambda seed: make_mixed_regression(sizes=[3, 4, 5], n_clusters=2, n_features=6, seed=seed),
]


def orthonormal(U: np.ndarray) -> bool:
    return np.allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-12)


@pytest.mark.parametrize("make", MAKERS)
def test_the_seed_decides_everything(make: Callable[[int], Any]) -> None:
    one, again, other = make(3), make(3), make(4)
    arrays = [key for key, value in one.items() if isinstance(value, np.ndarray)]
    assert all(np.array_equal(one[key], again[key]) for key in arrays)
    assert not np.array_equal(one.X, other.X)
    assert np.array_equal(one.sites, other.sites)


@pytest.mark.parametrize("make", MAKERS)
def test_a_generator_can_say_what_it_made(make: Callable[[int], Any]) -> None:
    made = make(3)
    rows, columns = made.X.shape
    assert f"{rows} x {columns}, float64" in made.describe()
    assert "seed 3" in made.describe()
    assert f"sites:           {len(set(made.sites.tolist()))}, with" in made.describe()


# ---- rows near a subspace


def subspace_error(X: np.ndarray, U: np.ndarray) -> float:
    """Frobenius error of the first principal directions of X (rows, no centring) against U."""
    _, vectors = np.linalg.eigh(X.T @ X)
    V = vectors[:, -U.shape[1] :]
    return float(np.linalg.norm(U - V @ (V.T @ U)))


def test_subspace_shapes_and_sites() -> None:
    made = make_subspace_sites(12, 3, 4, 5, seed=0)
    assert made.X.shape == (20, 12)
    assert made.sites.tolist() == [f"site-0{i}" for i in range(4) for _ in range(5)]
    assert made.basis.shape == (12, 3)
    assert orthonormal(made.basis)
    assert made.eigenvalues.tolist() == [15.0] * 3 + [1.0] + [0.0] * 8


def test_without_a_tail_one_more_direction_is_used() -> None:
    made = make_subspace_sites(30, 4, 2, 50, seed=1)
    assert np.linalg.matrix_rank(made.X) == 5
    outside = made.X - made.X @ made.basis @ made.basis.T
    assert np.linalg.matrix_rank(outside, tol=1e-8) == 1


def test_the_covariance_is_the_models() -> None:
    rows = 100_000
    made = make_subspace_sites(7, 2, 1, rows, spike=9.0, step=2.0, tail=0.5, seed=2)
    U = made.basis
    C = made.X.T @ made.X / rows
    # The deviation of an entry is at most 9 sqrt(2 / rows) = 0.04; bounds are five of them or more.
    np.testing.assert_allclose(U.T @ C @ U, 9.0 * np.eye(2), atol=0.2)
    P = np.eye(7) - U @ U.T
    outside = np.linalg.eigvalsh(P @ C @ P)[::-1]
    np.testing.assert_allclose(outside, [2.0, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0], atol=0.06)
    np.testing.assert_allclose(U.T @ C @ P, 0.0, atol=0.1)
    assert abs(made.X.mean()) < 0.02
    assert made.eigenvalues.tolist() == [9.0, 9.0, 2.0, 0.5, 0.5, 0.5, 0.5]


def test_the_spike_is_turned_towards_no_direction() -> None:
    weight = np.mean([make_subspace_sites(8, 2, 1, 1, seed=s).basis ** 2 for s in range(400)], axis=0).sum(axis=1)
    np.testing.assert_allclose(weight, 2 / 8, atol=0.06)  # each deviates by about 0.011


def test_the_paper_setting_has_the_predicted_error() -> None:
    made = make_subspace_sites(seed=1000)
    assert made.X.shape == (1800, 1000)
    one_site, all_sites = subspace_error(made.X[:600], made.basis), subspace_error(made.X, made.basis)
    # First order: (15/14) sqrt(r / (15 (q - r - 1))) is 0.0923 for 600 rows and 0.0514 for 1800.
    assert 0.075 < one_site < 0.115
    assert 0.044 < all_sites < 0.063


def test_the_full_rank_setting_is_harder() -> None:
    made = make_subspace_sites(tail=0.015, seed=1000)
    assert 0.180 < subspace_error(made.X, made.basis) < 0.195
    assert 0.325 < subspace_error(made.X[:600], made.basis) < 0.350


# ---- tasks with a shared representation


def test_tasks_are_exactly_linear_without_noise() -> None:
    made = make_few_shot_tasks(9, 6, 3, 5, 5, seed=0)
    assert made.X.shape == (30, 9)
    assert orthonormal(made.basis)
    assert np.linalg.matrix_rank(made.coef) == 3
    np.testing.assert_allclose(made.coef, made.loadings @ made.basis.T)
    for k in range(6):
        rows = made.task == k
        assert rows.sum() == 5
        np.testing.assert_allclose(made.y[rows], made.X[rows] @ made.basis @ made.loadings[k], atol=1e-12)


def test_task_statistics() -> None:
    made = make_few_shot_tasks(50, 400, 4, 30, 3, noise=0.5, seed=1)
    noise = made.y - np.einsum("nd,nd->n", made.X, made.coef[made.task])
    assert abs(noise.std() - 0.5) < 0.02
    assert abs(np.corrcoef(noise, made.y - noise)[0, 1]) < 0.05
    assert abs(made.X.std() - 1) < 0.01
    assert abs(made.X.mean()) < 0.01
    assert abs(made.loadings.std() - 1) < 0.1
    assert abs(made.loadings.mean()) < 0.15


def test_the_papers_tasks_have_its_singular_values() -> None:
    singular = np.linalg.svd(make_few_shot_tasks(600, 600, 4, 1, 1, seed=0).coef, compute_uv=False)[:4]
    assert 24 < singular[0] < 27.5
    assert singular[0] / singular[3] < 1.25


def test_rows_are_split_so_that_every_site_sees_every_task() -> None:
    made = make_few_shot_tasks(3, 2, 1, 5, 2, seed=0)
    assert made.task.tolist() == [0] * 5 + [1] * 5
    assert made.sites.tolist() == ["site-0" + c for c in "0001100011"]


def test_tasks_are_split_so_that_every_task_has_one_site() -> None:
    made = make_few_shot_tasks(3, 5, 1, 2, 2, split="tasks", seed=0)
    assert made.sites.tolist() == ["site-0" + c for c in "0000001111"]
    other = make_few_shot_tasks(3, 5, 1, 2, 2, split="rows", seed=0)
    assert np.array_equal(made.X, other.X)  # the split moves no data


def test_new_tasks_can_share_a_known_representation() -> None:
    old = make_few_shot_tasks(8, 5, 2, 3, 1, seed=0)
    U = old.basis.copy()
    new = make_few_shot_tasks(8, 4, 2, 6, 1, basis=old.basis, seed=1)
    assert np.array_equal(new.basis, U)
    assert np.array_equal(old.basis, U)
    np.testing.assert_allclose(new.coef @ (np.eye(8) - U @ U.T), 0.0, atol=1e-12)
    np.testing.assert_allclose(new.y, np.einsum("nd,nd->n", new.X, new.coef[new.task]), atol=1e-12)


# ---- a mixture of regressions


@pytest.mark.parametrize(
    ("configuration", "sizes", "proportions"),
    [
        ("C1", {50: 200}, [1 / 3, 1 / 3, 1 / 3]),
        ("C2", {10: 900, 50: 20}, [1 / 3, 1 / 3, 1 / 3]),
        ("C3", {10: 900, 50: 20}, [0.2, 0.3, 0.5]),
    ],
)
def test_the_papers_configurations(configuration: str, sizes: dict[int, int], proportions: list[float]) -> None:
    made = make_mixed_regression(configuration, seed=0)
    assert made.X.shape == (10_000, 100)
    names, rows = np.unique(made.sites, return_counts=True)
    assert dict(zip(*np.unique(rows, return_counts=True), strict=True)) == sizes
    assert len(made.labels) == len(names)
    np.testing.assert_allclose(made.proportions, proportions)
    frequencies = np.bincount(made.labels, minlength=3) / len(names)
    np.testing.assert_allclose(frequencies, proportions, atol=4 * np.sqrt(0.25 / len(names)))
    assert configuration in made.name


def per_row(made: Any) -> np.ndarray:
    """Cluster of each row, through the names of the sites."""
    return made.labels[np.searchsorted(np.unique(made.sites), made.sites)]


def test_rows_follow_their_sites_model_exactly_without_noise() -> None:
    made = make_mixed_regression(sizes=[4, 1, 9, 3], n_clusters=2, n_features=5, noise=0.0, seed=3)
    assert made.sites.tolist() == ["site-00"] * 4 + ["site-01"] + ["site-02"] * 9 + ["site-03"] * 3
    assert set(made.labels.tolist()) == {0, 1}
    np.testing.assert_allclose(made.y, np.einsum("nd,nd->n", made.X, made.coef[per_row(made)]), atol=1e-12)


def test_mixture_statistics() -> None:
    made = make_mixed_regression("C3", noise=0.5, n_features=60, seed=1)
    noise = made.y - np.einsum("nd,nd->n", made.X, made.coef[per_row(made)])
    assert abs(noise.std() - 0.5) < 0.02
    assert abs(made.X.std() - 1) < 0.01
    lengths = np.linalg.norm([make_mixed_regression(sizes=[1], n_features=60, seed=s).coef for s in range(200)], axis=2)
    assert abs((lengths**2).mean() - 1) < 0.05


def test_the_papers_least_squares_error_is_reached_with_true_labels() -> None:
    errors = []
    for seed in range(3):
        made = make_mixed_regression("C1", seed=seed)
        cluster = per_row(made)
        fits = [np.linalg.lstsq(made.X[cluster == j], made.y[cluster == j])[0] for j in range(3)]
        errors.append(np.linalg.norm(np.array(fits) - made.coef, axis=1).max())
    # Expected 0.2 sqrt(d / (N_j - d - 1)) = 0.035 per cluster; the largest of three is a little more.
    assert 0.034 < np.mean(errors) < 0.043


def test_a_cluster_of_probability_zero_has_no_site() -> None:
    made = make_mixed_regression(sizes=[1] * 50, n_clusters=2, proportions=[0.0, 1.0], n_features=2, seed=0)
    assert set(made.labels.tolist()) == {1}


# ---- refusals


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: make_subspace_sites(5, 5, seed=0), "rank=5 must be a whole number between 1 and 4"),
        (lambda: make_subspace_sites(5, 2, 0, seed=0), "n_sites=0 must"),
        (lambda: make_subspace_sites(5, 2, 1, 0, seed=0), "rows_per_site=0 must"),
        (lambda: make_subspace_sites(5, 2, spike=1.0, seed=0), "must satisfy spike > step >= tail"),
        (lambda: make_subspace_sites(5, 2, tail=2.0, seed=0), "must satisfy spike > step >= tail"),
        (lambda: make_subspace_sites(5, 2, tail=-1.0, seed=0), "tail=-1.0 must be a finite number"),
        (lambda: make_subspace_sites(5, 2, seed=None), "seed=None must"),
        (lambda: make_few_shot_tasks(5, 3, 4, seed=0), "rank=4 must be a whole number between 1 and 3"),
        (lambda: make_few_shot_tasks(5, 3, 1, 2, 3, seed=0), "n_sites=3 .* since every site needs a row of each"),
        (
            lambda: make_few_shot_tasks(5, 3, 1, 9, 4, split="tasks", seed=0),
            "n_sites=4 .* since every site needs a task",
        ),
        (lambda: make_few_shot_tasks(5, 3, 1, 9, 2, split="both", seed=0), "split='both' must be one of"),
        (lambda: make_few_shot_tasks(5, 3, 1, 9, 2, noise=-1, seed=0), "noise=-1 must"),
        (lambda: make_few_shot_tasks(5, 3, 1, 9, 2, basis=np.eye(5), seed=0), r"basis has shape \(5, 5\)"),
        (lambda: make_few_shot_tasks(5, 3, 1, 9, 2, basis=np.ones((5, 1)), seed=0), "orthonormal columns"),
        (lambda: make_mixed_regression("C4", seed=0), "configuration='C4' must be one of 'C1', 'C2', 'C3'"),
        (lambda: make_mixed_regression(seed=0), "needs a configuration"),
        (lambda: make_mixed_regression("C1", sizes=[1], seed=0), "already sets sizes and proportions"),
        (lambda: make_mixed_regression("C1", proportions=[1, 0, 0], seed=0), "already sets sizes"),
        (lambda: make_mixed_regression("C3", n_clusters=2, seed=0), "must be n_clusters=2 probabilities"),
        (lambda: make_mixed_regression(sizes=[1.5], seed=0), "sizes must be a list of whole numbers"),
        (lambda: make_mixed_regression(sizes=[1, 0], seed=0), "sizes must"),
        (lambda: make_mixed_regression(sizes=[], seed=0), "sizes must"),
        (lambda: make_mixed_regression(sizes=[1], proportions=[0.5, 0.5, 0.5], seed=0), "that sum to 1"),
        (lambda: make_mixed_regression(sizes=[1], proportions=[1.5, -0.5, 0.0], seed=0), "that sum to 1"),
    ],
)
def test_the_impossible_is_refused_with_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()
