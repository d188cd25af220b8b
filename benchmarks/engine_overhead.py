"""What the embedded engine adds to a step, against a bare loop over the same function; 1,000 sites.

A step that does nothing shows the overhead itself; the Gram matrix of 100 rows x 40 shows what of it is left where a
step does something. ``ask`` returns every reply, ``sum`` the total; with the wire every message is encoded and decoded;
with a ``run_dir`` what the coordinator receives is written to a journal, from which a run can be resumed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np

import fedspan as fs
from benchmarks.battery.ratio import Fresh, Ratio, compared

SITES, ROWS, COLUMNS = 1000, 100, 40


@fs.step
def count(site: fs.Site) -> dict[str, int]:
    return {"n": len(site)}


@fs.step
def gram(site: fs.Site) -> dict[str, np.ndarray]:
    return {"gram": site.X.T @ site.X}


def compare() -> Iterator[Ratio]:
    rng = np.random.default_rng(0)
    sites = [fs.Site(f"{i:04d}", rng.normal(size=(ROWS, COLUMNS))) for i in range(SITES)]
    for what, step in (("an empty step", count), (f"a Gram matrix of {ROWS} x {COLUMNS}", gram)):
        for words, options in (("", {}), (", with the wire", {"wire": True}), (", with a run_dir", {"run_dir": True})):
            for how in ("ask", "sum"):
                with tempfile.TemporaryDirectory() as folder:
                    yield from compared(
                        f"Embedded engine, fed.{how}{words}: {what}, per site and call",
                        Fresh(
                            lambda options=options, folder=folder: _federation(sites, options, folder),
                            lambda fed, how=how, step=step: getattr(fed, how)(step),
                        ),
                        {"bare loop": lambda how=how, step=step: _bare(sites, how, step)},
                        turns=5,
                        per=SITES,
                    )


def _federation(sites: list[fs.Site], options: dict[str, bool], folder: str) -> fs.LocalFederation:
    """One that has been asked before: files are open. Each has a journal of its own, so that none grows."""
    journal = tempfile.mkdtemp(dir=folder) if options.get("run_dir") else None
    fed = fs.LocalFederation(sites, wire=options.get("wire", False), run_dir=journal)
    fed.sum(count)
    return fed


def _bare(sites: list[fs.Site], how: str, step: object) -> object:
    """The loop that one writes without a library: no deadlines, checks, record, faults or wire."""
    if how == "ask":
        return {site.name: step(site) for site in sites}
    total: dict[str, object] = {}
    for site in sites:
        for key, value in step(site).items():
            total[key] = total[key] + value if key in total else value
    return total
