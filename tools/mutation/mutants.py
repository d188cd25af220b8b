"""The mutants of a file: Cosmic Ray's, without those in annotations, which nothing evaluates."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tools.mutation.sampling import Place, Position

BITWISE = ("BitAnd", "BitOr", "BitXor", "LShift", "RShift", "Invert")


@dataclass(frozen=True)
class Mutant:
    """One change: the operator's `occurrence`-th in the file at `path`, at line and column `start`."""

    path: Path
    operator: str
    occurrence: int
    start: Position
    end: Position

    def __str__(self) -> str:
        return f"{self.path}:{self.start[0]}:{self.start[1]} {self.operator.removeprefix('core/')} {self.occurrence}"

    @property
    def package(self) -> str:
        """The folder of ``src/fedspan`` that the file is in."""
        return self.path.parts[self.path.parts.index("fedspan") + 1]

    @property
    def place(self) -> Place:
        """What is changed, whatever it is changed into."""
        return str(self.path), self.start, self.end

    def source(self) -> str:
        """Return the file with the change."""
        changed = mutate_code(self.path.read_text(), get_operator(self.operator)(), self.occurrence)
        assert changed is not None, self
        return changed

    def diff(self) -> str:
        """Return the changed lines, old and new."""
        lines = difflib.unified_diff(self.path.read_text().splitlines(), self.source().splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, in an order that is always the same."""
    source = path.read_text()
    skipped = list(_not_evaluated(ast.parse(source)))
    nodes = list(ast_nodes(get_ast(source)))
    for name in filter(_worthwhile, sorted(operator_names())):
        operator = get_operator(name)
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if not any(first <= start < last for first, last in skipped):
                yield Mutant(path, name, occurrence, start, end)


def _worthwhile(name: str) -> bool:
    """Return whether an operator is used: none with settings, nor one that makes a bitwise operation of arithmetic.

    Floating-point numbers have none, so that any test at all would notice, and the score would be too good.
    """
    *_, before, after = ("", *name.split("_"))
    return not get_operator(name).arguments() and (after not in BITWISE or before in BITWISE)


def _not_evaluated(tree: ast.Module) -> Iterator[tuple[Position, Position]]:
    """Yield where annotations, and imports for them alone, begin and end."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            parts.append(node)
        for part in parts:
            if part is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)  # type: ignore[attr-defined]
