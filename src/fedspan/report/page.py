"""The page: the sections in order, style and script inlined, written in one go."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from typing import Any

from fedspan.errors import InputError
from fedspan.federation.record import RunRecord
from fedspan.report.markup import Html, esc, join
from fedspan.report.models.map_pictures import beside_the_map, map_of
from fedspan.report.models.model_attributes import names_in, pixel_names, steps_of
from fedspan.report.models.model_section import models_section
from fedspan.report.models.scatter_map import Scatter, scatter_section
from fedspan.report.sections.labelled_rows import Judged
from fedspan.report.sections.metrics import metrics_section
from fedspan.report.sections.privacy_section import privacy_section
from fedspan.report.sections.rerun import again_section
from fedspan.report.sections.run_sections import (
    asked_section,
    failures_section,
    header,
    sites_section,
    stopped_section,
)
from fedspan.report.sections.traffic import traffic_section


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    records: Sequence[RunRecord] | RunRecord,
    models: Sequence[Any] = (),
    sites: Mapping[str, Mapping[str, Any]] | None = None,
    scatter: Scatter | None = None,
    settings: Mapping[str, object] | None = None,
    judged: Judged | None = None,
    image: tuple[int, int] | None = None,
    study: str | None = None,
) -> Path:
    """Write the report of a few runs as one HTML file that opens offline.

    The file is replaced in one go: whoever opens it sees the old report or the new one. Only its owner may read it
    (mode 0600), because a map shows every row. The same input gives the same bytes.

    Parameters
    ----------
    path : path
        The file to write; its folder must be there.
    title : str
    records : sequence of RunRecord
        One per fit, in order: a scaler's, then a PCA's. A single record will do.
    models : sequence of estimators
        Fitted models, or pipelines of them, whose pictures are drawn.
    sites : mapping of site name to dict(rows=int, columns=int), optional
    scatter : Scatter, optional
        The map of rows. Default: that of the last model that has one.
    settings : mapping of name to text, optional
        What was asked: files, seed, anything to be kept beside the result.
    judged : Judged, optional
        Rows with labels to judge a detector by, the last of the models: its ROC curve, and the point of the threshold
        that it learned without them.
    image : (height, width), optional
        Where the columns are the pixels of an image, line by line: components, centres and landmarks are drawn as
        images. Columns that are named ``pixel_0_0``, ``pixel_0_1``, ... are known to be.
    study : str, optional
        The text of the study file, for running it again. Default: lines of Python.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a", "b"), stopped="finished")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", title="A demo", records=[record])
    ...     path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"path={str(path)!r} cannot be written: its folder is not there")
    records = [records] if isinstance(records, RunRecord) else list(records)
    for record in records:
        if not isinstance(record, RunRecord):
            raise InputError(f"records must be RunRecord objects (an estimator's run_), not a {type(record).__name__}")
    if scatter is not None and not isinstance(scatter, Scatter):
        raise InputError(f"scatter must be a fedspan.report.Scatter, not a {type(scatter).__name__}")
    mapped = None
    if scatter is None:
        maps = [(map_of(step), step) for model in models for step in steps_of(model)]
        scatter, mapped = next((found for found in reversed(maps) if found[0] is not None), (None, None))
    if judged is not None and not isinstance(judged, Judged):
        raise InputError(f"judged must be a fedspan.report.Judged, not a {type(judged).__name__}")
    image = _checked_image(image)
    checked = (title, records, list(models), _checked(sites), scatter, settings, mapped)
    page = render(*checked, judged=judged, image=image, study=study)
    write_page(path, page)
    return path


def render(
    title: str,
    records: Sequence[RunRecord],
    models: Sequence[Any] = (),
    sites: Mapping[str, Mapping[str, Any]] | None = None,
    scatter: Scatter | None = None,
    settings: Mapping[str, object] | None = None,
    mapped: Any = None,
    *,
    judged: Judged | None = None,
    image: tuple[int, int] | None = None,
    study: str | None = None,
) -> str:
    """Return the page as text; `mapped` is the model whose map it has."""
    parts: dict[str, Html] = {}
    names = None if image is None else pixel_names(image)
    if scatter is not None:
        beside = [] if mapped is None else beside_the_map(mapped, names_in(mapped, names))
        parts["map"] = scatter_section(scatter, beside)
    if models or judged is not None or image is not None:
        parts["models"] = models_section(models, mapped, judged=judged, names=names)
    parts |= {
        "asked": asked_section(records, settings),
        "sites": sites_section(records, sites),
        "rounds": traffic_section(records),
        "stopped": stopped_section(records),
        "metrics": metrics_section(records),
        "failures": failures_section(records),
        "privacy": privacy_section(records),
        "again": again_section(records, study),
    }
    links = join(Html(f'<a href="#{key}">{_LINKS[key]}</a>') for key in parts)
    script = _part("points.js") + _part("scatter.js") if "map" in parts else ""
    navigation = Html(f'<nav aria-label="Sections">{links}</nav>')
    return shell(title, join([header(title, records, sites), navigation, *parts.values()], chr(10)), script)


def shell(title: str, body: Html, script: str = "") -> str:
    """Return a whole page around its body: style and script inlined, and allowed by their digests alone."""
    style = _part("report.css")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{esc(title)}</title><style>{style}</style></head>\n"
        f"<body><main>{body}\n"
        "<footer>Written by fedspan. This page loads nothing.</footer></main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


_LINKS = {
    "asked": "Asked",
    "sites": "Sites",
    "rounds": "Rounds and bytes",
    "stopped": "Why it stopped",
    "metrics": "Metrics",
    "failures": "Failures",
    "privacy": "Privacy",
    "again": "Run it again",
    "models": "Models",
    "map": "Map",
}


def _checked(sites: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Mapping[str, Any]] | None:
    for name, site in (sites or {}).items():
        for key, value in site.items():
            if key not in ("rows", "columns") or not isinstance(value, Integral) or value < 0:
                raise InputError(
                    f"sites[{name!r}] has {key}={value!r}, but may have rows and columns, as whole numbers"
                )
    return sites


def _checked_image(image: Any) -> tuple[int, int] | None:
    if image is None:
        return None
    if not isinstance(image, tuple | list) or len(image) != 2 or not all(type(n) is int and n > 0 for n in image):
        raise InputError(f"image={image!r} must be a height and a width in pixels, such as (28, 28)")
    return image[0], image[1]


def _policy(style: str, script: str) -> str:
    """Allow our own style and script and nothing else: a second lock, should a hostile name get past the escaping."""

    def source(text: str) -> str:
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        return f"'sha256-{digest}'" if text else "'none'"

    allowed = f"style-src {source(style)}; script-src {source(script)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _part(name: str) -> str:
    return files("fedspan.report").joinpath(name).read_text(encoding="utf-8")


def write_page(path: Path, page: str) -> None:
    """Write a file beside `path`, then put it in its place."""
    # Half of a surrogate pair, as in a file name that is not UTF-8, has no bytes: it becomes a question mark.
    content = page.encode("utf-8", "replace")
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
