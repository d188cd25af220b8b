"""A small language to choose rows by: ``age >= 18 and (ward in ['A', 'B'] or dose is missing)``.

It is parsed here, and can do nothing but compare columns with values and with each other::

    rows    = all ("or" all)*
    all     = one ("and" one)*
    one     = "not" one | "(" rows ")" | operand test
    test    = ("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") operand
            | ["not"] "in" "[" value ("," value)* "]"
            | "is" ["not"] "missing"
    operand = column | value
    column  = a name of letters, digits and underscores | `any name in back quotes`
    value   = 12 | -0.5 | 1e3 | 'text' | "text" | true | false

Comparisons are those of pandas. A missing cell is unequal to everything, and neither smaller nor greater than anything,
so that ``not age < 18`` keeps the rows without an age, as ``age != 18`` does. A column of times is compared with text
such as ``'2026-01-31'`` or ``'2026-01-31 12:00'``; a column of text that is compared with a date must be written like
that in all its cells, and is then compared as times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedspan.datasets.sources.filter_compare import COMPARISONS, Column, Operand, Rows, Value, compare
from fedspan.datasets.sources.filter_words import Word, words
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Test = Callable[["pd.DataFrame"], Rows]

_DEEPEST = 50


class RowFilter:
    """Which rows to keep.

    Parameters
    ----------
    text : str
        A condition in the language above.

    Attributes
    ----------
    columns : tuple of str
        The columns that it looks at.

    Examples
    --------
    >>> import pandas as pd
    >>> wanted = RowFilter("age >= 18 and not ward in ['C']")
    >>> wanted.columns
    ('age', 'ward')
    >>> wanted(pd.DataFrame({"age": [17, 40, 50], "ward": ["A", "A", "C"]})).tolist()
    [False, True, False]
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parser = _Parser(words(text), text)
        self._test = parser.whole()
        self.columns = tuple(dict.fromkeys(parser.columns))

    def __repr__(self) -> str:
        return f"RowFilter({self.text!r})"

    def __call__(self, frame: pd.DataFrame) -> Rows:
        """Return which rows of a frame to keep (n,)."""
        return self._test(frame)


class _Parser:
    """Recursive descent: one method for each line of the grammar."""

    def __init__(self, found: Sequence[Word], text: str) -> None:
        self._words = list(found)
        self._text = text
        self._at = 0
        self._depth = 0
        self.columns: list[str] = []

    def whole(self) -> Test:
        test = self._rows()
        if self._next.kind != "end":
            raise self._unexpected("'and', 'or' or the end")
        return test

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _take(self, *wanted: str) -> bool:
        if self._next.kind in ("word", "sign") and self._next.text in wanted:
            self._at += 1
            return True
        return False

    def _unexpected(self, wanted: str) -> InputError:
        found = "it ends" if self._next.kind == "end" else f"there is {self._next.text!r}"
        return InputError(
            f"the row filter {self._text!r}: at character {self._next.at + 1} {found} instead of {wanted}"
        )

    def _rows(self) -> Test:
        return self._joined("or", self._all, np.logical_or)

    def _all(self) -> Test:
        return self._joined("and", self._one, np.logical_and)

    def _joined(self, word: str, part: Callable[[], Test], join: Callable[[Rows, Rows], Rows]) -> Test:
        tests = [part()]
        while self._take(word):
            tests.append(part())

        def joined(frame: pd.DataFrame) -> Rows:
            rows = tests[0](frame)
            for test in tests[1:]:
                rows = join(rows, test(frame))
            return rows

        return tests[0] if len(tests) == 1 else joined

    def _one(self) -> Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InputError(f"the row filter is nested more than {_DEEPEST} deep")
        try:
            if self._take("not"):
                inner = self._one()
                return lambda frame: ~inner(frame)
            if self._take("("):
                inner = self._rows()
                if not self._take(")"):
                    raise self._unexpected("')'")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Test:
        left = self._operand()
        if self._take("is"):
            turned, column = self._take("not"), self._column_of(left, "is missing")
            if not self._take("missing"):
                raise self._unexpected("'missing'")
            return lambda frame: np.asarray(column.of(frame).isna() != turned)
        if self._take("not"):
            if self._next.text != "in":
                raise self._unexpected("'in'")
            inner = self._listed(left)
            return lambda frame: ~inner(frame)
        if self._next.text == "in":
            return self._listed(left)
        if self._next.kind != "sign" or self._next.text not in COMPARISONS:
            raise self._unexpected("a comparison such as '==' or '<', 'in', or 'is missing'")
        sign = self._next.text
        self._at += 1
        right = self._operand()
        if isinstance(left, Value) and isinstance(right, Value):
            raise InputError(
                f"the row filter {self._text!r} compares {left.value!r} with {right.value!r}: name a column"
            )
        return lambda frame: compare(sign, left, right, frame)

    def _listed(self, left: Operand) -> Test:
        self._take("in")
        column = self._column_of(left, "in")
        if not self._take("["):
            raise self._unexpected("'[' and a list of values")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take("]"):
            raise self._unexpected("',' or ']'")

        def listed(frame: pd.DataFrame) -> Rows:
            rows = np.zeros(len(frame), dtype=bool)
            for value in values:
                rows |= compare("==", column, value, frame)
            return rows

        return listed

    def _column_of(self, operand: Operand, what: str) -> Column:
        if isinstance(operand, Value):
            raise InputError(f"the row filter {self._text!r}: before {what!r} stands {operand.value!r}, not a column")
        return operand

    def _operand(self) -> Operand:
        word = self._next
        if word.kind == "name" or (word.kind == "word" and not word.reserved):
            self._at += 1
            self.columns.append(word.text)
            return Column(word.text)
        return self._value()

    def _value(self) -> Value:
        word = self._next
        if word.kind == "value":
            self._at += 1
            return Value(word.value)
        raise self._unexpected("a value such as 12, 'text' or true" if self._at else "a column or a value")
