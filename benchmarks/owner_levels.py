"""What a hostile analyst gets at each level of a site's owner: routes to single rows, tried at three sites.

Each site has 60 rows: a number of the patient, and four measurements. A route counts as open if it returns a row of a
site, a cell of one, or a single site's means, to eight digits. At the level ``secure`` every request is a secure sum
over the three sites.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedspan as fs
from fedspan.errors import FedspanError, PolicyError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import find_step
from fedspan.owner import read_owned_site
from fedspan.owner.admission import OwnerRequest
from fedspan.owner.allowed_steps import LEVELS

ROWS, SITES = 60, ("a", "b", "c")
COLUMNS = ("patient", "age", "dose", "weight", "outcome")
PRIVACY = '[privacy]\nledger = "ledger"\nepsilon = 1.0\ndelta = 1e-5\nstrict = true\n'


class Analyst:
    """Sends requests to three sites at one level, and knows what their owners' rules say."""

    def __init__(self, folder: Path, level: str) -> None:
        self.level, self.truth, self.owned = level, [], []
        for number, name in enumerate(SITES):
            rng = np.random.default_rng(number)
            rows = np.column_stack([1000.0 + ROWS * number + np.arange(ROWS), rng.normal(50.0, 10.0, size=(ROWS, 4))])
            home = folder / name
            home.mkdir(parents=True)
            pd.DataFrame(rows, columns=COLUMNS).to_csv(home / "rows.csv", index=False)
            text = f'[site]\nname = "{name}"\n[data]\nfile = "rows.csv"\n[rules]\nlevel = "{level}"\n'
            (home / "site.toml").write_text(text + (PRIVACY if level == "private" else ""))
            self.owned.append(read_owned_site(home / "site.toml"))
            self.truth.append(pd.read_csv(home / "rows.csv").to_numpy())
        secure = level == "secure"
        policy = fs.Policy(secure_sum=True) if secure else None
        self.fed = fs.LocalFederation([owned.site for owned in self.owned], policy=policy)

    def total(self, step: str, **payload: Any) -> dict[str, Any]:
        """Return the sum of a step over the sites, or raise what an owner's rules, or a ledger, say against it."""
        found = find_step(step)
        for owned in self.owned:
            request = OwnerRequest("analyst", "analyst", "call", "r", 0, 0, step, how="sum")
            request.stage, request.payload = "offer" if self.level == "secure" else "", found.validated(payload)
            owned.admission.check_call(request)
        return dict(self.fed.sum(found.function, **payload))

    def open(self, found: Any) -> bool:
        """Return whether what was found is a row, or a cell, or the means of the first site."""
        values, truth = np.atleast_1d(np.asarray(found, dtype=np.float64)), np.concatenate(self.truth)[:, 1:]
        if len(values) == 5:
            return bool(np.allclose(values, self.truth[0].mean(axis=0), rtol=1e-8))
        if len(values) == 1:
            return bool(np.isclose(truth, values[0], rtol=1e-8).any())
        return bool(np.isclose(truth, values, rtol=1e-8).all(axis=1).any())


def moments(analyst: Analyst) -> Any:
    """Sums of columns: what every level below `private` is for."""
    return analyst.total("sums.sums")["sum"][1:]


def guessed_name(analyst: Analyst) -> Any:
    """The sums of the group of one patient, whose number is guessed."""
    payload = {"columns": np.arange(1, 5), "centre": np.zeros((2, 4)), "by": 0, "groups": np.array(["1007"])}
    return analyst.total("describe.group_sums", **payload)["sum"][1]


def far_centre(analyst: Analyst) -> Any:
    """The sum of the rows nearest to a centre beyond the oldest row."""
    centres = np.zeros((1, 2, 5))
    centres[0, 1] = [1100.0, 800.0, 50.0, 50.0, 50.0]
    centres[0, 0] = [1100.0, -650.0, 50.0, 50.0, 50.0]
    payload = {"centres": centres, "wanted": np.ones((1, 2), dtype=bool), "weighted": False}
    found = analyst.total("clustering.cluster_means", **payload)
    return found["sums"].reshape(2, 5)[1, 1:]


def search(analyst: Analyst) -> Any:
    """The largest age, by halving an interval."""
    low, high = 0.0, 200.0
    for _ in range(45):
        middle = (low + high) / 2
        edges = {"columns": np.array([1]), "edges": np.array([middle]), "sizes": np.array([1])}
        counts = analyst.total("describe.bin_counts", **edges, by=-1, groups=np.array([], dtype=str))["counts"]
        low, high = (middle, high) if counts[0, 1] > 0 else (low, middle)
    return low


def membership(analyst: Analyst) -> Any:
    """Whether a guessed record is there, by a kernel that is narrow around it."""
    guess = analyst.truth[0][7]
    near = analyst.total("landmarks.pull", Y=guess[None], gamma=1e6, device="", viewed=False)["kernel"]
    return guess[1:] if near > 0.5 else 0.0


def single_site(analyst: Analyst) -> Any:
    """The sums of one site within a sum over all: no row, but what secure sums are to hide."""
    table = analyst.total("combat.site_sums", names=np.array(SITES), controls=-1)["by_site"]
    return table[0, 1:] / ROWS


ROUTES: dict[str, Callable[[Analyst], Any]] = {
    "sums of columns (no route)": moments,
    "the group of a guessed patient": guessed_name,
    "k-means with a far centre": far_centre,
    "the largest value by halving": search,
    "a guessed record by a narrow kernel": membership,
    "the means of one site in a sum": single_site,
}


def main() -> None:
    """Print the table."""
    install_steps()
    print(f"| route | {' | '.join(LEVELS)} |\n|---|{'---|' * len(LEVELS)}")
    with tempfile.TemporaryDirectory() as folder:
        analysts = [Analyst(Path(folder) / level, level) for level in LEVELS]
        for name, route in ROUTES.items():
            print(f"| {name} | {' | '.join(outcome(analyst, route) for analyst in analysts)} |", flush=True)


def outcome(analyst: Analyst, route: Callable[[Analyst], Any]) -> str:
    """Return what an analyst gets by a route."""
    try:
        found = route(analyst)
    except PolicyError:
        return "refused"
    except FedspanError as error:
        return "refused" if "strict ledger" in str(error) else f"failed: {error}"
    if not analyst.open(found):
        return "answered, no row"
    return "**the site's means**" if len(np.atleast_1d(found)) == 5 else "**a row or cell**"


if __name__ == "__main__":
    main()
