"""``fedspan run``: fit a study's models, and leave models, records and a report in its output folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sklearn.base import clone

from fedspan.base import FedEstimator
from fedspan.checks import duration, whole_number
from fedspan.cli.console import print_line, print_table
from fedspan.cli.study.run_folder import check_image, judged_rows, make_folder, write_run_report
from fedspan.cli.study.study_file import Study, read_study
from fedspan.cli.study.study_tables import SiteTable, per_reason, study_tables, taken_as_missing, words_in_words
from fedspan.durable.whole_file import write_whole
from fedspan.engines.local.embedded import LocalFederation
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.errors import InputError
from fedspan.federation import Federation, Observer, RunRecord
from fedspan.federation.record import strict_json
from fedspan.progress import ProgressBar
from fedspan.report import LivePage
from fedspan.report.models.picture import names_in, names_out
from fedspan.statistics.regression.parts.regression_model import FedRegression


def run(
    study: Path,
    out: Path | None,
    kit: Path | None,
    detach: bool,
    hours: float,
    resume: bool,
    live: bool,
    partial: bool = False,
    every: str | None = None,
    rounds: int | None = None,
) -> int:
    """Run a study here, or at the sites of a kit's federation: from here, or detached at its coordinator."""
    if (every is not None or rounds is not None) and not partial:
        raise InputError("--every and --rounds go with --partial: a whole study runs once")
    if partial and (detach or resume or live):
        raise InputError("--partial goes without --detach, --resume and --live: it continues by itself")
    if detach and kit is None:
        raise InputError("--detach needs --kit: a detached study runs at a real federation's coordinator")
    if detach and (out is not None or resume):
        raise InputError("--detach goes without --out and --resume: 'fedspan fetch' brings the results")
    if detach and live:
        raise InputError("--live shows a run of this process: 'fedspan status' shows a detached one")
    plan = read_study(study, out, at_sites=kit is not None, detached=detach, growing=partial)
    if partial:
        _run_partial(plan, kit, every, rounds)
    elif kit is None:
        run_study(plan, resume=resume, live=live)
    elif detach:
        _submit(plan, kit, hours)
    else:
        from fedspan.engines.nvflare.client.connect import connect

        def opened() -> RemoteFederation:
            return connect(kit, seed=plan.seed, policy=plan.policy, run_dir=plan.output)

        run_study(plan, resume=resume, connect=opened, live=live)
    return 0


def _run_partial(plan: Study, kit: Path | None, every: str | None, rounds: int | None) -> None:
    """Run rounds of a study whose tables grow."""
    from fedspan.cli.study.stream_command import run_stream

    def opened() -> Federation:
        from fedspan.engines.nvflare.client.connect import connect

        assert kit is not None
        return connect(kit, seed=plan.seed, policy=plan.policy)

    seconds = None if every is None else duration("--every", every)
    most = None if rounds is None else whole_number("--rounds", rounds, 1)
    run_stream(plan, every=seconds, rounds=most, connect=None if kit is None else opened)


def _submit(study: Study, kit: Path, hours: float) -> None:
    from fedspan.engines.nvflare.client.study_client import submit_study

    name = submit_study(kit, study.path.stem, study.text, hours)
    print(f"study {name} is submitted: 'fedspan status {kit}' shows its state,")
    print(f"'fedspan fetch {kit} {name} --out FOLDER' fetches its results")


def run_study(
    study: Study,
    *,
    resume: bool = False,
    connect: Callable[[], RemoteFederation] | None = None,
    live: bool = False,
    observer: Observer | None = None,
) -> Path:
    """Run `study` and return its report. Nothing is written before everything is read and checked.

    With `connect` it runs at the sites of the federation that this returns, on their data. With `live` a page in its
    folder shows the run while it goes on.
    """
    output = study.output
    used = output.exists() and (not output.is_dir() or any(output.iterdir()))
    if used and not (resume and output.is_dir()):
        raise InputError(f"{output} is used already: choose another folder with --out, or continue in it with --resume")
    models = (*study.preprocess, study.model)
    tables = [] if connect else study_tables(study)
    check_image(study.report, tables)
    judged_rows(study.report, list(tables[0].frame.columns) if tables else None)  # a mistake shows before the run
    remote = connect() if connect else None
    fed = remote or embedded(study, tables, run_dir=output)
    for line in words_in_words(tables):
        print_line(line)
    make_folder(output)
    if not used:
        _write(output / "study.toml", study.text)
    page = _live_page(fed, output, study.path.stem) if live else None
    if observer is not None:
        fed.observe(observer)
    try:
        with fed:
            if remote is not None:
                remote.propose(lambda rehearsed: fit_all(models, rehearsed, quiet=True), study.path.stem, print_line)
            fitted = fit_all(models, fed)
    except (ValueError, TypeError) as error:
        if not used:  # the study has a mistake: its next run needs an unused folder
            shutil.rmtree(output)
        raise error if isinstance(error, InputError) else InputError(f"{study.path}: {error}") from None
    words = taken_as_missing(tables)
    if words:
        fitted[0].run_.settings["taken_as_missing"] = words
    _write(output / "study.toml", study.text)
    settings = {"study": str(study.path), "seed": str(study.seed)}
    report = finish(output, study, fitted, tables, settings)
    if page is not None:
        page.finish(report.name)
    return report


def _live_page(fed: Federation, output: Path, title: str) -> LivePage:
    """Return the page that shows the runs of a federation, and print where it is."""
    page = LivePage(output / "live.html", title)
    fed.observe(page)
    print_line(f"live: open {page.path.resolve().as_uri()} in a browser")
    return page


def embedded(study: Study, tables: Sequence[SiteTable], run_dir: Path | None = None) -> Federation:
    """Return the study's federation in this process."""
    return LocalFederation(
        [table.site() for table in tables],
        seed=study.seed,
        n_jobs=study.n_jobs,
        wire=study.wire,
        policy=study.policy,
        run_dir=run_dir,
    )


def fit_all(models: Sequence[FedEstimator], fed: Federation, *, quiet: bool = False) -> list[Any]:
    """Fit each model on the federation as the ones before it transform it."""
    if not quiet:
        fed.observe(ProgressBar())
    fitted: list[Any] = []
    for model in models:
        if fitted:
            fed = fitted[-1].transform(fed)
        fitted.append(clone(model).fit(fed))
    return fitted


def finish(
    output: Path, study: Study, models: Sequence[Any], tables: Sequence[SiteTable], settings: dict[str, str]
) -> Path:
    """Save the models, write summary and report, print a table of the runs, and return the report."""
    title = study.path.stem
    for number, model in enumerate(models[:-1]):
        model.save(output / f"preprocess-{number}-{type(model).__name__}.fedspan")
    models[-1].save(output / "model.fedspan")
    records = [model.run_ for model in models]
    _write(output / "summary.json", json.dumps([_summary(record) for record in records], indent=2))
    page = output / "report.html"
    report = write_run_report(page, title, records, models, tables, settings, study.report, study.text)
    columns = ("run", "sites", "calls", "bytes up", "bytes down", "failed", "stopped")
    print_table(columns, map(_line, records), columns[1:-1], title)
    for record in records:
        if record.failures:
            reasons = {site: str(failure) for _, site, failure in record.failures}
            print_line(f"{record.what}: failed replies, the last of each site: {per_reason(reasons)}")
    if callable(getattr(models[-1], "summary", None)):
        named = {"target": study.data.target[0]} if isinstance(models[-1], FedRegression) else {}
        found = models[-1].summary(_names_before(models), **named)
        _write(output / "summary.txt", found + "\n")
        print_line(found)
    print_line(f"report: {report}")
    return report


def _names_before(models: Sequence[Any]) -> Sequence[str] | None:
    """Return the names of the columns that the last model sees, through those before it."""
    names: Sequence[str] | None = None
    for model in models[:-1]:
        names = names_out(model, names_in(model, names))
    return names_in(models[-1], names)


def _summary(record: RunRecord) -> dict[str, Any]:
    spent = {} if record.privacy is None else record.privacy.values()
    spent.pop("mechanism", None)  # a text; the settings have its values
    return {
        "what": record.what,
        "settings": record.settings,
        "seed": record.seed,
        "sites": list(record.sites),
        "calls": len(record.calls),
        "bytes_up": record.bytes_up,
        "bytes_down": record.bytes_down,
        "failed_replies": len(record.failures),
        "stopped": record.stopped.values(),
        "privacy": strict_json(spent) or None,
    }


def _line(record: RunRecord) -> list[str]:
    numbers = (len(record.sites), len(record.calls), record.bytes_up, record.bytes_down, len(record.failures))
    return [record.what, *(f"{number:,}" for number in numbers), record.stopped]


def _write(path: Path, text: str) -> None:
    write_whole(path, text.encode("utf-8"))
