"""The page: the sections in order, with style and script inside."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from typing import Any

from fedspan.durable.whole_file import write_whole
from fedspan.errors import InputError
from fedspan.federation.record import RunRecord
from fedspan.report.markup import Html, esc, join, pairs
from fedspan.report.models.labelled_rows import Judged
from fedspan.report.models.map_pictures import map_of
from fedspan.report.models.model_section import models_section
from fedspan.report.models.picture import names_in, pictures_of, pixel_names, steps_of
from fedspan.report.models.scatter_map import Scatter, scatter_section
from fedspan.report.sections.metrics import metrics_section
from fedspan.report.sections.privacy_section import privacy_section
from fedspan.report.sections.rerun import rerun_section
from fedspan.report.sections.run_sections import (
    failures_section,
    requested_section,
    run_header,
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

    The file is replaced at once: a reader sees the old report or the new one. Only its owner may read it (mode 0600),
    because a map shows every row. The same input gives the same bytes.

    Parameters
    ----------
    path : path
        The file to write; its folder must exist.
    title : str
    records : sequence of RunRecord
        One per fit, in order: a scaler's, then a PCA's. Or a single record.
    models : sequence of estimators
        Fitted models, or pipelines of them, whose pictures are drawn.
    sites : mapping of site name to dict(rows=int, columns=int), optional
    scatter : Scatter, optional
        The map of rows. Default: that of the last model that has one.
    settings : mapping of name to text, optional
        What was requested: files, seed, anything to be kept beside the result.
    judged : Judged, optional
        Labelled rows to evaluate a detector, the last of the models: its ROC curve, and the point of the threshold
        that it learned without them.
    image : (height, width), optional
        Where the columns are the pixels of an image, line by line: components, centres and landmarks are drawn as
        images. Columns named ``pixel_0_0``, ``pixel_0_1``, ... are recognised.
    study : str, optional
        The text of the study file, for running it again. Default: lines of Python.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a", "b"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", title="A demo", records=[record])
    ...     path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"path={str(path)!r} can't be written: its folder does not exist")
    records = [records] if isinstance(records, RunRecord) else list(records)
    for record in records:
        if not isinstance(record, RunRecord):
            raise InputError(f"records must be RunRecord objects (an estimator's run_), not a {type(record).__name__}")
    for name, value, kind in (("scatter", scatter, Scatter), ("judged", judged, Judged)):
        if value is not None and not isinstance(value, kind):
            raise InputError(f"{name} must be a fedspan.report.{kind.__name__}, not a {type(value).__name__}")
    names = None if image is None else pixel_names(_checked_image(image))
    _check_sites(sites or {})
    mapped = None
    if scatter is None:
        maps = [(map_of(step), step) for model in models for step in steps_of(model)]
        scatter, mapped = next((found for found in reversed(maps) if found[0] is not None), (None, None))
    parts = []
    if scatter is not None:
        beside = [] if mapped is None else pictures_of(mapped, names_in(mapped, names), beside_map=True)
        parts.append(scatter_section(scatter, beside, next((one.remark for one in records if one.remark), "")))
    if models or judged is not None or image is not None:
        parts.append(models_section(models, mapped, judged=judged, names=names))
    parts += [requested_section(records, settings), sites_section(records, sites), traffic_section(records)]
    parts += [stopped_section(records), metrics_section(records), failures_section(records)]
    parts += [privacy_section(records), rerun_section(records, study)]
    navigation = Html(f'<nav aria-label="Sections">{join(part.link for part in parts)}</nav>')
    script = asset("points.js") + asset("scatter.js") if scatter is not None else ""
    write_page(path, title, join([run_header(title, records, sites), navigation, *parts], "\n"), script)
    return path


def write_index(
    path: str | os.PathLike[str], *, title: str, lead: str, reports: Mapping[str, Mapping[str, str]]
) -> Path:
    """Write a page with a title, a sentence and links to reports beside or below it.

    `reports` are facts about each report by its address, relative to `path`; the entry ``"title"`` names it.
    """
    sections = []
    for link, facts in reports.items():
        heading = Html(f'<h2><a href="{esc(link)}">{esc(facts["title"])}</a></h2>')
        rows = pairs((name, text) for name, text in facts.items() if name != "title")
        sections.append(Html(f"<section>{heading}{rows}</section>"))
    body = Html(f'<h1>{esc(title)}</h1><p class="result">{esc(lead)}</p>{join(sections)}')
    write_page(Path(path), title, body)
    return Path(path)


def write_page(path: Path, title: str, body: Html, script: str = "", style: str = "", *, reload: int = 0) -> None:
    """Write a whole page around its body; it has its style and script inside, and allows them by their digests alone.

    That is a second protection, in case a hostile name gets past the escaping. `style` is added to that of reports.
    With `reload` the page loads itself again after that many seconds.
    """
    style = asset("report.css") + style
    again = f'<meta http-equiv="refresh" content="{reload}">' if reload else ""
    allowed = f"style-src {_source(style)}; script-src {_source(script)}"
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"{again}"
        f"<title>{esc(title)}</title><style>{style}</style></head>\n"
        f"<body><main>{body}\n"
        "<footer>Written by fedspan. This page loads nothing.</footer></main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )
    # Half of a surrogate pair, as in a file name that is not UTF-8, has no bytes: it becomes a question mark.
    write_whole(path, page.encode("utf-8", "replace"))


def asset(name: str) -> str:
    """Return a style sheet or script of this package."""
    return files("fedspan.report").joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'" if text else "'none'"


def _check_sites(sites: Mapping[str, Mapping[str, Any]]) -> None:
    for name, site in sites.items():
        for key, value in site.items():
            if key not in ("rows", "columns") or not isinstance(value, Integral) or value < 0:
                raise InputError(
                    f"sites[{name!r}] has {key}={value!r}, but may have rows and columns, as whole numbers"
                )


def _checked_image(image: Any) -> tuple[int, int]:
    if not isinstance(image, tuple | list) or len(image) != 2 or not all(type(n) is int and n > 0 for n in image):
        raise InputError(f"image={image!r} must be a height and a width in pixels, such as (28, 28)")
    return image[0], image[1]
