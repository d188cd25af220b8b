"""The few-shot problems that several test files share."""

from __future__ import annotations

import pytest

from .few_shot_examples import with_noise, without_noise


@pytest.fixture(scope="module")
def data():
    return without_noise()


@pytest.fixture(scope="module")
def noisy():
    return with_noise()
