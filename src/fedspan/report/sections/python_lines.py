"""The Python lines that run recorded fits again, from what their records keep as text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sklearn.base import RegressorMixin

from fedspan import aggregation, estimators, privacy
from fedspan.federation import Policy, SecureSum
from fedspan.federation.record import RunRecord
from fedspan.federation.view import stable_text

_CALLS = {
    **{name: f"fs.aggregation.{name}" for name in aggregation.__all__},
    **{name: f"fs.privacy.{name}" for name in privacy.__all__},
    "SecureSum": "fs.SecureSum",
    "dict": "dict",
}


def python_lines(records: Sequence[RunRecord]) -> str:
    """Return the lines, with ``X`` for the rows and ``sites`` for the site of each.

    What a record cannot give back as Python, such as a whole array, stands in a comment.

    Examples
    --------
    >>> record = RunRecord("FedPCA", {"n_components": "2", "random_state": "None"}, 0, seed=7, sites=("a", "b"))
    >>> print(python_lines([record]))
    import fedspan as fs
    <BLANKLINE>
    # X: all rows; sites: the site of each
    # (for sites on machines of their own: fed = fs.connect(kit, ...))
    fed = fs.federate(X, sites=sites, seed=7)
    model = fs.FedPCA(n_components=2).fit(fed)
    """
    lines = ["import fedspan as fs", "", _ABOUT.format("".join(sorted({_more(record)[1] for record in records})))]
    seen: dict[tuple[str, ...], str] = {(): "fed"}  # the federation by the lenses that it is seen through
    for i, record in enumerate(records):
        before = records[i - 1] if i else None
        name = "model" if len(records) == 1 else f"model_{i}"
        if before is None or (record.number, record.policy) != (before.number + 1, before.policy):
            lines += _federation(records[i:])
            seen = {(): "fed"}
        elif len(record.lenses) == len(before.lenses) + 1 and before.lenses in seen:
            seen[record.lenses] = f"seen_{i}"
            lines.append(f"seen_{i} = model_{i - 1}.transform({seen[before.lenses]})")
        if record.lenses not in seen:
            lines.append(f"# seen through {', '.join(record.lenses)}: transform fed first, by the models that did")
        lines += _fit(record, name, seen.get(record.lenses, "fed") + _subset(record))
    return "\n".join(lines)


_ABOUT = "# X: all rows; sites: the site of each{}\n# (for sites on machines of their own: fed = fs.connect(kit, ...))"


def _federation(records: Sequence[RunRecord]) -> list[str]:
    """Return the federation of the first of the records, with the seed of the first run that has none of its own."""
    first = records[0]
    usual = {field.name: repr(getattr(Policy(), field.name)) for field in fields(Policy)}
    asked = {key: "True" if text == repr(SecureSum()) else text for key, text in first.policy.items()}
    given, left = _arguments(asked, usual)
    policy = f", policy=fs.Policy({', '.join(given)})" if given else ""
    seed = next((record.seed for record in records if record.settings.get("random_state", "None") == "None"), 0)
    said = " ".join(first.conditions.split())
    rehearsed = [f"# rehearsed, by fed.corrupt or fed.with_faults: {said}"] if said else []
    more = max((_more(record)[0] for record in records), key=len)
    return [f"fed = fs.federate(X{more}, sites=sites, seed={seed}{policy})", *left, *rehearsed]


def _more(record: RunRecord) -> tuple[str, str]:
    """Return what a federation needs beside rows for this run, as arguments and in words."""
    kind = _estimator(record.what)
    if kind is None or not issubclass(kind, RegressorMixin):
        return "", ""
    task = "task" in inspect.signature(kind.fit).parameters
    return ", y" + (", task=task" if task else ""), "; y: their targets" + ("; task: their tasks" if task else "")


def _estimator(what: str) -> Any:
    """Return the estimator of this name, or None."""
    found = getattr(estimators, what) if what in estimators.__all__ else None
    return found if inspect.isclass(found) else None


def _subset(record: RunRecord) -> str:
    """Return the choice of sites where every call went to the same ones, and not to all."""
    asked = {frozenset(call.asked) for call in record.calls}
    if len(asked) != 1 or asked == {frozenset(record.sites)}:
        return ""
    return f".subset({sorted(asked.pop())!r})"


def _fit(record: RunRecord, name: str, fed: str) -> list[str]:
    kind = _estimator(record.what)
    if kind is not None:
        usual = {key: stable_text(parameter.default) for key, parameter in inspect.signature(kind).parameters.items()}
        given, left = _arguments(record.settings, {**usual, "verbose": record.settings.get("verbose", "0")})
        return [*left, f"{name} = fs.{record.what}({', '.join(given)}).fit({fed})"]
    module, dot, function = record.what.rpartition(".")
    if not dot:
        return ["# then steps were called on the federation itself: see the calls of this report"]
    given, left = _arguments(record.settings, {})
    return [*left, f"from {module} import {function}", f"{name} = {fed}.run({', '.join([function, *given])})"]


def _arguments(settings: Mapping[str, Any], usual: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return settings other than the usual ones as arguments, and comments on those that are no Python."""
    given, left = [], []
    for key, text in settings.items():
        if str(text) == usual.get(key):
            continue
        source = _source(str(text)) if str(key).isidentifier() else None
        if source is None:
            left.append(" ".join(f"# {key}: {text}".split()))
        else:
            given.append(f"{key}={source}")
    return given, left


def _source(text: str) -> str | None:
    """Return a setting's text as Python that means the same, or None.

    Examples
    --------
    >>> _source("Krum(f=1)"), _source("tuple(8, 4)"), _source("array(3, 2) float64 #1f"), _source("my_function")
    ('fs.aggregation.Krum(f=1)', '(8, 4)', None, None)
    """
    try:
        return ast.unparse(_Mended().visit(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):  # whatever a record may hold
        return None


class _Mended(ast.NodeTransformer):
    """Names where they are found, sequences as they are written; a LookupError for what is unknown."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in ("nan", "inf"):
            return ast.parse(f"float({node.id!r})", mode="eval").body
        return ast.parse(_CALLS[node.id], mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        if called in ("list", "tuple"):
            items = [self.visit(item) for item in node.args]
            return ast.List(items, ast.Load()) if called == "list" else ast.Tuple(items, ast.Load())
        if called.startswith("np.") and len(node.args) == 1:  # np.float64(0.5)
            mended: ast.AST = self.visit(node.args[0])
            return mended
        return self.generic_visit(node)
