"""The section on repeating the runs: versions, processor and threads, and the study file or lines of Python."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import ClassifierMixin, RegressorMixin

from fedspan import aggregation, federation, privacy
from fedspan.federation import Policy
from fedspan.federation.record import RunRecord, plain
from fedspan.federation.site.steps import dotted_name
from fedspan.federation.versions import versions
from fedspan.report.markup import Html, PageSection, esc, few, join, note, pairs, panel, section
from fedspan.report.sections.call_totals import run_names

_LONGEST = 50_000
#: The classes of fedspan that settings may hold, as Python calls them.
_CALLS = {
    dotted_name(getattr(room, name)): f"{prefix}.{name}"
    for prefix, room, names in (
        ("fs.aggregation", aggregation, aggregation.__all__),
        ("fs.privacy", privacy, privacy.__all__),
        ("fs", federation, ["SecureSum"]),
    )
    for name in names
}


def rerun_section(records: Sequence[RunRecord], study: str | None = None) -> PageSection:
    """Return what is needed to repeat the runs: versions at the time, and the `study` or lines of Python."""
    runs: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, record in zip(run_names(records), records, strict=True):
        runs.setdefault(tuple(record.versions.items()), []).append(name)
    silent = runs.pop((), [])
    panels = []
    for found, names in runs.items():
        which = "" if len(names) == len(records) else f" of {few(names)}"
        panels.append(panel(f"Versions{which} at the coordinator", pairs(found)))
    if silent or not records:
        panels.append(panel("Versions where this report was written", pairs(versions().items())))
    if silent:
        panels.append(note(f"The record of {few(silent)} has no versions, because the run has not ended."))
    lines = Html("")
    if study is not None:
        lines = panel("The study file: fedspan run STUDY.toml", _code(study))
    elif records:
        lines = panel("In Python", _code(python_lines(records)))
    lead = (
        "The same versions, rows, settings and seed give the same result; on the same kind of processor and with the "
        "same number of BLAS threads to the last bit."
    )
    body = Html(f'<div class="rerun"><div>{lines}</div><div>{join(panels)}</div></div>')
    return section("rerun", "Run it again", body, lead=lead)


def _code(text: str) -> Html:
    return Html(f'<pre tabindex="0">{esc(text.strip(), _LONGEST)}</pre>')


def python_lines(records: Sequence[RunRecord]) -> str:
    """Return the Python lines that repeat recorded fits, with ``X`` for the rows and ``sites`` for the site of each.

    What a record can't give back as Python, such as a whole array, stands in a comment.

    Examples
    --------
    >>> record = RunRecord("FedPCA", {"n_components": 2, "random_state": None}, 0, seed=7, sites=("a", "b"))
    >>> print(python_lines([record]))
    import fedspan as fs
    <BLANKLINE>
    # X: all rows; sites: the site of each
    # (for sites on machines of their own: fed = fs.connect(kit, ...))
    fed = fs.federate(X, sites=sites, seed=7)
    model = fs.FedPCA(n_components=2).fit(fed)
    """
    more = "".join(sorted({_columns(record)[1] for record in records}))
    lines = ["import fedspan as fs", "", f"# X: all rows; sites: the site of each{more}"]
    lines.append("# (for sites on machines of their own: fed = fs.connect(kit, ...))")
    seen: dict[tuple[str, ...], str] = {(): "fed"}  # the federation by its transforms
    for i, record in enumerate(records):
        before = records[i - 1] if i else None
        name = "model" if len(records) == 1 else f"model_{i}"
        if before is None or (record.number, record.policy) != (before.number + 1, before.policy):
            lines += _federation(records[i:])
            seen = {(): "fed"}
        elif len(record.transforms) == len(before.transforms) + 1 and before.transforms in seen:
            seen[record.transforms] = f"seen_{i}"
            lines.append(f"seen_{i} = model_{i - 1}.transform({seen[before.transforms]})")
        if record.transforms not in seen:
            lines.append(f"# seen through {', '.join(record.transforms)}: transform fed first, by the models that did")
        lines += _fit(record, name, seen.get(record.transforms, "fed") + _subset(record))
    return "\n".join(lines)


def _federation(records: Sequence[RunRecord]) -> list[str]:
    """Return the federation of the first of the records, with the seed of the first run that has none of its own."""
    first = records[0]
    given, left = _arguments(first.policy, plain(Policy())["fields"])
    policy = f", policy=fs.Policy({', '.join(given)})" if given else ""
    seed = next((record.seed for record in records if record.settings.get("random_state") is None), 0)
    conditions = " ".join(first.conditions.split())
    rehearsed = [f"# rehearsed, by fed.corrupt or fed.with_faults: {conditions}"] if conditions else []
    more = max((_columns(record)[0] for record in records), key=len)
    return [f"fed = fs.federate(X{more}, sites=sites, seed={seed}{policy})", *left, *rehearsed]


def _columns(record: RunRecord) -> tuple[str, str]:
    """Return what a federation needs beside rows for this run, as arguments and in words."""
    kind = _estimator(record.what)
    learns = kind is not None and (kind.learns_target or issubclass(kind, RegressorMixin | ClassifierMixin))
    if not learns:
        return "", ""
    task = "task" in inspect.signature(kind.fit).parameters
    return ", y" + (", task=task" if task else ""), "; y: their targets" + ("; task: their tasks" if task else "")


def _estimator(what: str) -> Any:
    """Return the estimator of this name, or None."""
    package = importlib.import_module("fedspan")  # by name: a lower layer does not import the package
    found = getattr(package, what) if what in package.ESTIMATORS else None
    return found if inspect.isclass(found) else None


def _subset(record: RunRecord) -> str:
    """Return the choice of sites where every call went to the same ones, and not to all."""
    called = {frozenset(call.asked) for call in record.calls}
    if len(called) != 1 or called == {frozenset(record.sites)}:
        return ""
    return f".subset({sorted(called.pop())!r})"


def _fit(record: RunRecord, name: str, fed: str) -> list[str]:
    kind = _estimator(record.what)
    if kind is not None:
        usual = {key: plain(parameter.default) for key, parameter in inspect.signature(kind).parameters.items()}
        given, left = _arguments(record.settings, {**usual, "verbose": record.settings.get("verbose")})
        return [*left, f"{name} = fs.{record.what}({', '.join(given)}).fit({fed})"]
    module, dot, function = record.what.rpartition(".")
    if not dot:
        return ["# then steps were called on the federation itself: see the calls of this report"]
    given, left = _arguments(record.settings, {})
    return [*left, f"from {module} import {function}", f"{name} = {fed}.run({', '.join([function, *given])})"]


def _arguments(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return settings other than the usual ones as arguments, and comments on those that have no Python form."""
    given, left = [], []
    for key, value in settings.items():
        if key in usual and value == usual[key]:
            continue
        source = as_python(value) if str(key).isidentifier() else None
        if source is None:
            left.append(" ".join(f"# {key}: {described(value)}".split()))
        else:
            given.append(f"{key}={source}")
    return given, left


def as_python(value: Any) -> str | None:
    """Return a recorded setting (`fedspan.federation.record.plain`) as Python that means the same, or None."""
    if isinstance(value, list):
        items = [as_python(item) for item in value]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    if not isinstance(value, dict):
        return repr(value)
    if set(value) == {"float"}:
        return f"float({value['float']!r})"
    inside = value.get("fields", {}) if "class" in value else value
    fields = {key: as_python(item) for key, item in inside.items()}
    if "name" in value or None in fields.values():
        return None
    if "class" not in value:
        return f"{{{', '.join(f'{key!r}: {item}' for key, item in fields.items())}}}"
    called = _CALLS.get(value["class"])
    return None if called is None else f"{called}({', '.join(f'{key}={item}' for key, item in fields.items())})"


def described(value: Any) -> str:
    """Return a recorded setting as Python, or where it has no such form, what it is."""
    found = as_python(value)
    if found is not None or not isinstance(value, dict):
        return str(value) if found is None else found
    if value.get("class") == "array":
        return f"array ({', '.join(map(str, value['shape']))}) {value['dtype']} #{value['digest']}"
    return str(value.get("name") or value.get("class") or value)
