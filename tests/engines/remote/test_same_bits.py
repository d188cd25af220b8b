"""Every protocol of the package gives the same bits at sites that are reached by bytes as at embedded ones."""

from __future__ import annotations

import pytest

import fedspan as fs
from fedspan.privacy.simulated import SimulatedLedger
from tests.laws.protocol_examples import EXAMPLES
from tests.laws.protocol_laws import as_bytes

from .network import Network

SEED = 1


def with_ledger(site):
    """Return the site with the ledger that an embedded one pretends to have."""
    data = site._data
    table = data.frame if data.frame is not None else site.X
    return fs.Site(site.name, table, site.y, site.task, ledger=SimulatedLedger(site.name, SEED))


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_every_protocol_gives_the_bits_of_the_embedded_engine(example, tmp_path):
    expected = example.run(seed=SEED)
    with Network([with_ledger(site) for site in example.sites()], tmp_path).federation(seed=SEED) as fed:
        assert as_bytes(fed.run(example.protocol, **example.settings)) == expected
