"""Searches of all messages of a run for the true rows, whatever protocol sent them.

The true rows are at hand, so this is no attack: it looks for messages that contain rows, in the forms of `SEARCHES`.
What it finds is a fact. What it does not find may be there in another form.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedspan.arrays import Matrix
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.parts.bit_searches import search_digests, search_xor
from fedspan.audit.parts.cell_searches import search_arrays, search_cells, search_texts
from fedspan.audit.parts.combinations import search_differences, search_planes
from fedspan.audit.parts.low_bit_search import search_low_bits
from fedspan.audit.parts.rotations import search_rotations
from fedspan.audit.parts.search_task import Findings, VectorTask
from fedspan.audit.parts.vector_searches import (
    search_functions,
    search_rows,
    search_scaled_columns,
    search_some_columns,
)
from fedspan.audit.sent_values import Sent
from fedspan.audit.true_table import TrueTable

#: What is searched for, and the name of each search on the card.
SEARCHES = {
    "rows": "rows as they are, centred, standardised, scaled to a range or with the columns in another order, also "
    "rounded, in single precision, as text, or as bytes in hexadecimal, base64, base85 or compressed",
    "scaled rows": "rows times a factor, with or without an offset, both common to the row",
    "functions": "rows whose cells went through a logarithm, an exponential, a root, a power or a sigmoid, also with a "
    "factor and an offset",
    "some columns": "neighbouring columns of rows, three or more",
    "scaled columns": "three or more rows with a factor and an offset of each column",
    "rotated rows": "three or more rows that were rotated, shifted or scaled together, by their mutual distances; "
    "also where these, or their inner products, were sent",
    "low bits": "rows in the low bits or last decimals of numbers",
    "differences": "rows, or their squares, as differences of two vectors of one site or of totals, with their counts "
    "or any other weights",
    "two rows": "sums of two rows with any weights",
    "cells": "numbers in double precision that equal cells, also in names of keys",
    "digests": "digests of rows and of cells of numbers without a key",
    "XOR": "three or more neighbouring cells of rows whose bits were combined with one constant",
    "texts": "cells of text and their digests without a key, also in names of keys",
    "arrays per row": "arrays with one entry per row",
}
#: Searches of vectors that are as wide as the rows, in this order: what one recognises the next ones leave out.
_OF_VECTORS = (
    search_rows,
    search_functions,
    search_low_bits,
    search_differences,
    search_planes,
    search_scaled_columns,
    search_rotations,
    search_some_columns,
)
#: The most places that an entry names.
_NAMED = 3


class RowSearch:
    """The searches of one set of messages; `tables` are the true rows as they are, and as the model saw them.

    `entries` has one entry of a card for each search that found something, `remarks` what was searched for and what was
    cut short.
    """

    def __init__(self, sent: Sent, table: TrueTable, tables: Sequence[Matrix]) -> None:
        self.sent, self.table, self.findings = sent, table, Findings()
        distinct: list[Matrix] = []
        for given in tables:
            rows = np.where(np.isfinite(given), given, 0.0)
            if rows.shape[1] and not any(rows.shape == other.shape and (rows == other).all() for other in distinct):
                distinct.append(rows)
        for rows in distinct:
            if rows.shape[1] > 1 and len(np.unique(rows, axis=0)) > 1:
                task = VectorTask(sent, table, rows, self.findings)
                for search in _OF_VECTORS:
                    search(task)
            search_cells(sent, table, rows, self.findings)
            search_digests(sent, np.ascontiguousarray(rows), self.findings)
            search_xor(sent, np.ascontiguousarray(rows), self.findings)
        search_texts(sent, table, self.findings)
        search_arrays(sent, table, distinct[0] if distinct else np.empty((len(table.numbers), 0)), self.findings)

    @property
    def entries(self) -> tuple[LeakEntry, ...]:
        """One entry for each search that found something."""
        n = max(1, len(self.table.numbers))
        made = []
        for name in SEARCHES:
            found = self.findings.found[name]
            if not found.places:
                continue
            named = list(found.places)[:_NAMED]
            more = len(found.places) - len(named)
            where = "; ".join(map(str, named)) + (f"; and {more} more" if more else "")
            form = f" ({', '.join(sorted(found.forms))})" if found.forms else ""
            parts = {"texts": "texts of cells of ", "cells": "cells of ", "arrays per row": "entries for "}.get(
                name, ""
            )
            many = f"{parts}{len(found.rows)} of {n} rows" if found.rows else "values"
            made.append(
                LeakEntry(
                    f"search: {name}",
                    where,
                    "the messages; the true rows serve only to recognise them",
                    f"The messages contain {many}{form}: {where}.",
                    {"found": len(found.rows) / n} if found.rows else {},
                    {},
                    {"rows": len(found.rows), "messages": len(found.places)},
                )
            )
        return tuple(made)

    @property
    def remarks(self) -> list[str]:
        """What was searched, what for, what was found, and what was cut short."""
        searched = SEARCHES if len(self.table.numbers) else {"arrays per row": SEARCHES["arrays per row"]}
        found = [name for name in SEARCHES if self.findings.found[name].places]
        result = f"Found: {', '.join(found)}." if found else "No row was found; rows may be there in another form."
        lines = [
            f"Replies in the journal that were searched: {self.sent.replies}. {result}"
            " The journal has the totals of sums, and not the parts of single sites that make them up.",
            *(f"Searched for {what}." for what in searched.values()),
        ]
        if not len(self.table.numbers):
            lines.append("The other searches need the true rows (--truth, truth=).")
        if self.sent.longest:
            lines.append(f"The journal is large: of each value the first {self.sent.longest} entries were searched.")
        if self.findings.cut:
            cut = "; ".join(self.findings.cut.values())
            lines.append(f"Searches that were cut short or not possible: {cut}.")
        if self.findings.unsure:
            lines.append(
                f"Arrays that are as long as their site's table, which may be by chance: "
                f"{'; '.join(map(str, list(self.findings.unsure)[:_NAMED]))}."
            )
        return lines
