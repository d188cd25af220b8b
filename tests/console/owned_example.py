"""A site with an owner's page: its files, as the worker and users leave them, without a federation."""

from __future__ import annotations

import json
from contextlib import contextmanager
from threading import Thread

import fedspan as fs
from fedspan.console.owner_console import owner_server
from fedspan.engines.local.rehearsal import RehearsedColumns, rehearse
from fedspan.engines.nvflare.setup.kit import FederationPlan
from fedspan.engines.nvflare.setup.provision import provision
from fedspan.federation import Policy
from tests.owner.owner_desk import Desk, numbers

COLUMNS = ("age", "dose", "weight")
REQUIRED = 'approval = "required"'
LEDGER = {"privacy": 'ledger = "clinic.ledger"\nepsilon = 4.0\ndelta = 1e-6'}


def example_plan(title="Which patients are alike?", components=2):
    def work(fed):
        scaler = fs.FedStandardScaler().fit(fed)
        fs.FedPCA(components, solver="fedpg", max_rounds=40).fit(scaler.transform(fed))

    kinds = dict.fromkeys(COLUMNS, "number")
    return rehearse(work, {"a": RehearsedColumns(kinds), "b": RehearsedColumns(kinds)}, title, Policy())


class Clinic:
    """A desk whose folder is also the kit."""

    def __init__(self, folder, rules=REQUIRED):
        self.desk = Desk(folder, rules, frame=numbers(40, COLUMNS), **LEDGER)
        self.kit = folder / "kits" / "a"
        plan = FederationPlan("clinics", "fl.example.org", 8002, ("a", "b", "c"), {"alice": "analyst"})
        provision(plan, folder / "kits")
        (self.kit / "about.json").write_text(json.dumps(self.desk.owned.describe()))
        self.config = folder / "site.toml"

    @property
    def decisions(self):
        found = self.desk.owned.admission.decisions
        found.read()
        return found

    def propose(self, ticket="ticket-1", who="alice", plan=None):
        return self.decisions.propose(who, ticket, plan or example_plan())

    @contextmanager
    def served(self):
        server = owner_server(self.config, self.kit)
        thread = Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join(30)

    def close(self):
        self.desk.worker.close()
