"""Sites that are asked directly, by a coordinator of the tests' own that may break the rules."""

from __future__ import annotations

import json

import numpy as np

import fedspan as fs
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.steps import find_step
from fedspan.secure_sum import sum_layout as layouts
from fedspan.secure_sum.sum_fixed_point import FixedPoint
from fedspan.secure_sum.sum_masks import derived
from fedspan.secure_sum.sum_site_steps import confirm, masked, offer, share, unmask
from fedspan.secure_sum.sum_vault import Vault

NUMBERS = FixedPoint(2.0**84, 96)


@fs.step
def numbers_of(site, factor):
    """Leaves the site: whole and real numbers of its own."""
    return {"count": np.arange(3) + len(site), "values": factor * site.X.sum(axis=0), "n": len(site)}


def sites_of(n, rows=4, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    return [fs.Site(f"s{i:02d}", rng.normal(size=(rows + i, columns))) for i in range(n)]


class Players:
    """Sites that know each other, and the questions of a sum as an honest coordinator puts them."""

    def __init__(self, n=5, sites=None):
        self.hosts = {site.name: SiteHost(site, Vault()) for site in sites or sites_of(n)}
        self.names = tuple(sorted(self.hosts))
        for host in self.hosts.values():
            host.vault.introduce({name: other.vault.public for name, other in self.hosts.items()})
        self.threshold = fs.SecureSum().needed(len(self.names))

    def at(self, name, step, transforms=(), number=None, **payload):
        """Put one question to one site, in the call that its session names."""
        host = self.hosts[name]
        run, named, _ = payload["session"].split("/")
        number = named if number is None else number
        seen = host.site
        for transform in transforms:
            seen = transform.applied_to(seen)
        digests = tuple(transform.digest for transform in transforms)
        context = CallContext({}, run, int(number), 0, step.__name__, payload, digests, host.vault)
        return step(seen.in_call(context), **find_step(step).validated(payload))

    def offer(self, name, session="run/0/a", factor=1.0, **changes):
        sent = {
            "what": f"{__name__}.numbers_of",
            "largest": NUMBERS.largest,
            "fraction_bits": NUMBERS.fraction_bits,
            "with factor": factor,
        }
        return self.at(name, offer, session=session, **{**sent, **changes})

    def offers(self, names=None, **changes):
        return {name: self.offer(name, **changes) for name in names or self.names}

    def group(self, offers, session="run/0/a", **changes):
        """What `share` is asked with."""
        sent = {
            "session": session,
            "names": json.dumps(sorted(offers)),
            "keys": np.stack([offers[name]["key"] for name in sorted(offers)]),
            "threshold": self.threshold,
            "form": next(iter(offers.values()))["form"],
        }
        return {**sent, **changes}

    def shared(self, group, names=None):
        return {name: self.at(name, share, **group) for name in names or json.loads(group["names"])}

    def sealed_for(self, name, shares):
        k = self.names.index(name)
        return np.stack([shares[other]["sealed"][k] for other in sorted(shares)])

    def flags(self, names):
        return np.array([name in names for name in self.names])

    def masked(self, name, shares, session="run/0/a", **changes):
        sent = {"session": session, "alive": self.flags(shares), "sealed": self.sealed_for(name, shares)}
        return self.at(name, masked, **{**sent, **changes})

    def confirm(self, name, alive, session="run/0/a"):
        return self.at(name, confirm, session=session, alive=self.flags(alive))["tags"]

    def unmask(self, name, alive, session="run/0/a", confirmed=None):
        """Request shares; all of `alive`, or of `confirmed`, learn that these have given masked replies."""
        tags = np.zeros((len(self.names), 32), dtype=np.uint8)
        for other in confirmed or alive:
            tags[self.names.index(other)] = self.confirm(other, alive, session)[self.names.index(name)]
        return self.at(name, unmask, session=session, tags=tags)

    def up_to_shares(self, session="run/0/a", **changes):
        """Return the set of sites and what all of them sealed."""
        group = self.group(self.offers(session=session, **changes), session)
        return group, self.shared(group)

    def up_to_masked(self, session="run/0/a"):
        group, shares = self.up_to_shares(session)
        return group, shares, {name: self.masked(name, shares, session) for name in self.names}

    def part(self, name, factor=1.0, session="run/0/a"):
        """Return a site's part as words, without masks."""
        reply = numbers_of(self.hosts[name].site, factor)
        reply = {key: np.asarray(value) if key != "n" else value for key, value in reply.items()}
        vault = self.hosts[name].vault
        seed = derived(vault.filling, vault.session(session).asked, "filling")
        return layouts.packed(reply, layouts.layout_of_reply(reply), NUMBERS, seed)
