"""Every protocol of the package, over the real thing: the bytes of the embedded engine."""

from __future__ import annotations

import pandas as pd
import pytest

import fedspan as fs
from tests.engines.nvflare.conftest import SITES
from tests.laws.protocol_examples import EXAMPLES
from tests.laws.protocol_laws import as_bytes

pytestmark = pytest.mark.xdist_group("nvflare")

SEED = 1
POLICY = fs.Policy(quorum="all", run_deadline=120.0)

# The noise of these is the site's secret: no two runs are alike. What it charges is tested with the sites' ledgers.
NOISY = ("private_feddl.private_feddl", "noisy_centres.noisy_centres")
# Three sites are fewer than the nine that these settings are for.
FEWER = {"median_of_means.median_of_means": {"groups": 3}}


def three_sites(make):
    """Return the first three sites that `make` makes, under the names of the real ones, as tables."""
    sites = []
    for name, made in zip(SITES, make(), strict=False):
        data = made._data
        frame = data.frame if data.frame is not None else pd.DataFrame(made.X).rename(columns=lambda i: f"x{i}")
        sites.append(fs.Site(name, frame, made.y, made.task))
    return sites


def write_site(site, folder):
    """Put the rows of an embedded site where a real one reads them."""
    table = site._data.frame.copy()
    apart = {"label": site.y, "task": site.task}
    said = ['file = "rows.parquet"']
    for name, values in apart.items():
        if values is not None:
            table[name] = values
            said.append(f'{name} = "{name}"')
    table.to_parquet(folder / "rows.parquet", index=False)
    rules = 'steps = ["summaries", "single rows"]\nusers = ["alice"]\nleast_rows = 5'
    (folder / "site.toml").write_text(
        f'[site]\nname = "{site.name}"\n\n[data]\n' + "\n".join(said) + f"\n\n[rules]\n{rules}\n"
    )


@pytest.fixture(scope="module")
def serve(here):
    """Return what puts the rows of an example at the real sites, and returns the same sites embedded."""
    folders = {name: here.folder / "owners" / name for name in SITES}
    before = {name: (folder / "site.toml").read_text() for name, folder in folders.items()}
    served = {}

    def put(make):
        if make not in served:
            served.clear()
            served[make] = three_sites(make)
            for site in served[make]:
                write_site(site, folders[site.name])  # counts at the next question
        return served[make]

    yield put
    for name, folder in folders.items():
        (folder / "site.toml").write_text(before[name])


# Those with the same rows one after another.
NAMES = sorted(set(EXAMPLES) - set(NOISY), key=lambda name: (EXAMPLES[name].sites.__name__, name))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_gives_the_bytes_of_the_embedded_engine(connected, serve, name):
    example = EXAMPLES[name]
    settings = {**example.settings, **FEWER.get(name, {})}
    served = serve(example.sites)
    with fs.LocalFederation(served, seed=SEED, policy=POLICY) as embedded:
        expected = as_bytes(embedded.run(example.protocol, **settings))
    assert as_bytes(connected(seed=SEED, policy=POLICY).run(example.protocol, **settings)) == expected
