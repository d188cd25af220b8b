"""Waiting for somebody else's code no longer than was said."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `function` returns, or raise what it raises, or `TimeoutError`; it is left behind then.

    >>> within(1.0, int, "7")
    7
    """
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(function(*arguments))
        except BaseException as error:  # whatever it is, who waits gets it
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="fedspan-patience").start()
    try:
        return done.result(timeout=seconds)
    except TimeoutError:
        if done.done():
            raise
        raise TimeoutError(f"nothing came of it within {seconds:g} seconds") from None
