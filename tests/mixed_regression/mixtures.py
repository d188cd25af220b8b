"""Small mixtures of regressions and of classes for the tests of mixed regression."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import expit

import fedspan as fs
from fedspan.linalg import SiteStack


def mixture(seed=0, sizes=(8,) * 40, k=2, d=5, noise=0.1, apart=1.0, covariances=False, proportions=None):
    """Return X, y, site names, labels, models and sizes; with `covariances` every cluster has one of its own."""
    rng = np.random.default_rng(seed)
    sizes = np.asarray(sizes)
    models = apart * rng.normal(size=(k, d)) / np.sqrt(d)
    labels = rng.permutation(np.resize(np.arange(k), len(sizes)))
    if proportions is not None:
        labels = rng.choice(k, size=len(sizes), p=proportions)
    shapes = [np.eye(d)] * k
    if covariances:
        shapes = [np.linalg.qr(rng.normal(size=(d, d)))[0] * np.exp(rng.uniform(-0.8, 0.8, d)) for _ in range(k)]
    X = np.concatenate([rng.normal(size=(n, d)) @ shapes[z].T for n, z in zip(sizes, labels, strict=True)])
    y = np.einsum("nd,nd->n", X, models[np.repeat(labels, sizes)]) + noise * rng.normal(size=len(X))
    sites = np.repeat([f"{i:04d}" for i in range(len(sizes))], sizes)
    return X, y, sites, labels, models, sizes


def federation(made, **options):
    return fs.federate(made[0], made[1], sites=made[2], **options)


def near(made, seed=0, off=0.2):
    return made[4] + off * np.random.default_rng(seed).normal(size=made[4].shape)


def lopsided(seed):
    """Three clusters, the third one only at small sites: the largest sites miss it."""
    rng = np.random.default_rng(seed)
    models = rng.normal(size=(3, 6)) / np.sqrt(6)
    labels = np.concatenate([np.resize([0, 1], 30), np.resize([0, 1, 2], 60)])
    sizes = np.concatenate([np.full(30, 30), np.full(60, 10)])
    X = rng.normal(size=(sizes.sum(), 6))
    y = np.einsum("nd,nd->n", X, models[np.repeat(labels, sizes)]) + 0.1 * rng.normal(size=len(X))
    return X, y, np.repeat([f"{i:04d}" for i in range(90)], sizes), labels, models, sizes


def classes(seed=0, sizes=(30,) * 40, k=2, d=3, strength=3.0):
    rng = np.random.default_rng(seed)
    models = strength * rng.normal(size=(k, d)) / np.sqrt(d)
    labels = np.resize(np.arange(k), len(sizes))
    X = rng.normal(size=(sum(sizes), d))
    p = expit(np.einsum("nd,nd->n", X, models[np.repeat(labels, sizes)]))
    sites = np.repeat([f"{i:04d}" for i in range(len(sizes))], sizes)
    return X, (rng.random(len(p)) < p).astype(float), sites, labels, models


def stack_of(made):
    return SiteStack(made[0], made[1], made[5])


def warned(model, *data, **options):
    """Return what a fit warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*data, **options)
    return [str(warning.message) for warning in caught]
