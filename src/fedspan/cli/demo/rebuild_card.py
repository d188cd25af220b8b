"""Card: what the coordinator could rebuild, with plain and with secure sums."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.audit import LeakCard, audit
from fedspan.cli.demo.image_rows import image_rows
from fedspan.datasets import load_digits
from fedspan.engines.local.embedded import federate
from fedspan.federation import Federation, Policy
from fedspan.report.cards_page import Card
from fedspan.report.leak_page import write_leak_page
from fedspan.sums.moments import local_sums

PHONES, SHOWN = 12, 6
LINES = """
import numpy as np, fedspan as fs
from fedspan.audit import audit
from fedspan.datasets import load_digits
from fedspan.sums.moments import local_sums
X, phone = load_digits().data[:12].astype(float), np.arange(10, 22)
for call, secure in (("ask", False), ("sum", True)):
    policy = fs.Policy(secure_sum=secure)
    fed = fs.federate(X, sites=phone, policy=policy, run_dir=call)
    fed.run(lambda fed: getattr(fed, call)(local_sums))
    print(audit(call, truth=X))  # searches all messages for the rows
"""


def rebuild_card(folder: Path, seed: int) -> Card:
    """Add up the rows of phones, once in the clear and once by secure sums, and search the messages for the rows."""
    X = load_digits().data[40 * (seed % 40) :][:PHONES].astype(float)
    sites = np.array([f"phone-{i + 1:02d}" for i in range(PHONES)])
    secure = find_spec("cryptography") is not None
    with tempfile.TemporaryDirectory() as temporary:
        plain_run, secure_run = Path(temporary, "plain"), Path(temporary, "secure")
        with federate(X, sites=sites, seed=seed, run_dir=plain_run) as fed:
            replies = fed.run(every_part)
        with federate(X, sites=sites, seed=seed, run_dir=secure_run, policy=Policy(secure_sum=secure)) as fed:
            total = fed.run(total_alone)
        cards = [audit(run, truth=X, image_shape=(8, 8)) for run in (plain_run, secure_run)]
    parts = replies.stack("sum")
    found = [_rows_found(card) for card in cards]
    plain = replace(cards[0], what="plain sums", entries=tuple(replace(e, rebuilt=parts) for e in cards[0].entries))
    page = replace(plain, beside=(replace(cards[1], what="secure sums"),))
    write_leak_page(folder / "report.html", page, truth=X, image_shape=(8, 8))
    mean = total["sum"] / total["n"]
    images = [X[:SHOWN], parts[:SHOWN], np.repeat(mean[None], SHOWN, axis=0)]
    names = ["on the phones", "what plain sums show", "what secure sums show: the mean"]
    remark = (
        "" if secure else "The total was added in the clear: secure sums need 'pip install .[secure]' in a checkout."
    )
    return Card(
        "rebuild",
        "Secure sums",
        "Twelve phones hold one image each. The coordinator reads all with plain sums, none with secure ones.",
        image_rows(names, images, "images on phones, and what the coordinator can see of them"),
        f"{found[0]} → {found[1]}",
        f"of {PHONES} images are in what the coordinator receives: with plain sums, with secure sums",
        "rebuild/report.html",
        LINES,
        remark,
    )


def every_part(fed: Federation) -> Any:
    """Request the sums of each site, as a coordinator without secure sums receives them before it adds them up."""
    return fed.ask(local_sums)


def total_alone(fed: Federation) -> Any:
    """Request the total over all sites."""
    return fed.sum(local_sums)


def _rows_found(card: LeakCard) -> int:
    """Return the number of rows that the searches found in the messages."""
    return round(PHONES * max((entry.measures.get("found", 0.0) for entry in card.entries), default=0.0))
