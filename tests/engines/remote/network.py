"""Sites in this process that are reached by bytes alone, and all that can happen to them."""

from __future__ import annotations

from collections.abc import Callable

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.coordinator.signed_requests import Lost
from fedspan.engines.remote.site.site_worker import SiteWorker

from .people import authority, identity, user
from .steps_here import worker_here


class Killed(BaseException):
    """The site's process is killed here."""


class Network:
    """A transport, with the sites at its end. With ``processes=True`` their steps run in processes of their own.

    `lose` decides for every message, ``lose(site, "request" | "answer")``; `meddle` may change its bytes.
    """

    def __init__(self, sites, folder, secure_sum=None, members=None, processes=False, **options):
        self.data = {site.name: site for site in sites}
        self.sites = tuple(sorted(self.data))
        self.folder = folder
        self.authority = authority(self.sites, secure_sum=secure_sum, members=members)
        self.identities = {}  # of sites whose key was replaced
        self.make_worker = SiteWorker if processes else worker_here
        self.options = options
        self.workers: dict[str, SiteWorker] = {}
        self.gone: set[str] = set()
        self.sends: list[tuple[str, ...]] = []
        self.requests: list[dict[str, bytes]] = []
        self.keep_requests = False
        self.lose: Callable[[str, str], bool] = lambda site, what: False
        self.meddle: Callable[[str, str, bytes], bytes] = lambda site, what, data: data
        self.after_send: Callable[[], None] = lambda: None
        for name in self.sites:
            self.start(name)

    def start(self, name):
        """Start a site's process, after the one before it was killed: all that it has is its folder."""
        if name in self.workers:
            self.workers.pop(name).close()
        self.workers[name] = self.make_worker(
            self.data[name],
            self.folder / name,
            self.identities.get(name) or identity(name),
            self.authority,
            **self.options,
        )
        self.gone.discard(name)

    def stop(self, name):
        """Kill a site's process."""
        if name in self.workers:
            self.workers.pop(name).close()
        self.gone.add(name)

    def federation(self, policy=None, run_dir=None, seed=1, who=None, **options):
        return RemoteFederation(self, who or user(), self.authority, seed, policy, run_dir, **options)

    def ask(self, name, request):
        """Deliver bytes to one site; a kill ends its process."""
        try:
            return self.workers[name].answer(request)
        except Killed:
            self.stop(name)
            return Lost("the site was killed")

    # What a transport does.

    def send(self, requests, deadline):
        self.sends.append(tuple(requests))
        if self.keep_requests:
            self.requests.append(dict(requests))
        answers = {}
        for name, request in requests.items():
            if name in self.gone:
                answers[name] = Lost("the site is not connected")
            elif self.lose(name, "request"):
                answers[name] = Lost("no answer within the deadline")
            else:
                answer = self.ask(name, self.meddle(name, "request", request))
                lost = not isinstance(answer, Lost) and self.lose(name, "answer")
                answers[name] = Lost("no answer within the deadline") if lost else answer
                if isinstance(answers[name], bytes):
                    answers[name] = self.meddle(name, "answer", answers[name])
        self.after_send()
        yield from answers.items()

    def online(self):
        return frozenset(self.sites) - self.gone

    def close(self):
        for name in list(self.workers):
            self.stop(name)


def three_sites(rows=6, columns=3):
    import numpy as np

    rng = np.random.default_rng(0)
    return [fs.Site(name, rng.normal(loc=i, size=(rows + i, columns))) for i, name in enumerate("abc")]
