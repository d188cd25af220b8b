"""What a model has to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedspan.report.markup import Html

#: The names of a model's features, where these are known.
Names = Sequence[str] | None


class Picture(NamedTuple):
    """A picture with its title, a remark and what its colours mean."""

    title: str
    body: Html
    remark: str = ""
    key: Sequence[tuple[int, str]] = ()
