"""Says of every failure which law was broken and by what."""

from __future__ import annotations

import pytest

from .discovery import NeedsAnExampleError

try:
    from . import protocol_examples  # noqa: F401
except NeedsAnExampleError as error:  # here once, and not in each file of laws
    raise pytest.UsageError(str(error)) from None

#: The parameters of tests that are things under a law.
UNDER_LAW = {"law", "example", "kind", "engine"}


class LawBrokenError(AssertionError):
    """Something that was found does not keep a law."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Let a failure be a sentence: the name of a test is the law, and its parameters say who is under it."""
    case = getattr(item, "callspec", None)
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        if case is None or not UNDER_LAW & set(case.params):
            raise
        law = item.originalname.removeprefix("test_").replace("_", " ")
        why = next((line for line in str(error).splitlines() if line.strip()), "no more is known")
        raise LawBrokenError(f"{case.id} breaks the law '{law}' ({type(error).__name__}: {why})") from error
