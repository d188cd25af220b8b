"""Possible additions: the sources of modules with things that keep the laws, and others that break one."""

from __future__ import annotations

HEAD = "from __future__ import annotations\nfrom dataclasses import dataclass\nimport numpy as np\n"
FIRST_VALUE = f"""{HEAD}
from fedspan.aggregation.aggregator import Aggregate, Given

@dataclass(frozen=True)
class FirstValue:
    f: int
    believes_reported_weights = False

    def __call__(self, values, weights=None):
        given = Given.of(values, weights)
        return given.aggregate(given.points[0], given.weights)

@dataclass(frozen=True)
class Middle(FirstValue):
    def __call__(self, values, weights=None):
        given = Given.of(values, weights)
        return given.aggregate(np.median(given.points, axis=0), given.weights)
"""
EVERYBODY_LIES = f"""{HEAD}
from fedspan.attacks.key_attack import KeyAttack

@dataclass(frozen=True)
class EverybodyLies(KeyAttack):
    def __call__(self, replies, bad, rng, call):
        return {{site: {{**reply, "loss": rng.normal()}} for site, reply in replies.items()}}

    def corrupted(self, seen, rng):
        return seen.own
"""
FUNCTIONS_AS_RULES = f"""{HEAD}
from fedspan.aggregation.aggregator import Given

def middle(values, weights=None):
    given = Given.of(values, weights)
    return given.aggregate(np.median(given.points, axis=0), given.weights)

class Patient:
    def __call__(self, values, weights=None, *, start=None):
        return middle(values, weights)

class Renamed:
    def __call__(self, points, weights=None):
        return middle(points, weights)

def in_place(values, weights=None):
    values[...] = abs(values)
    return middle(values, weights)

def unwilling(values, weights):
    return middle(values, weights)

LIMIT = 3
"""
FUNCTIONS_AS_ATTACKS = f"""{HEAD}
def backwards(replies, bad, rng, call):
    def lie(value):
        if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
            return np.array(-value)
        return -value if isinstance(value, float | complex) else value

    first = replies[min(replies)] if replies else {{}}
    honest = {{site: replies.get(site, first) for site in bad}}
    return {{site: {{key: lie(value) for key, value in reply.items()}} for site, reply in honest.items()}}

def too_far(replies, bad, rng, call):
    return backwards(replies, list(replies), rng, call)
"""
COUNTING = f"""{HEAD}
from fedspan import step

CALLS = []

@step
def local_sum(site, rank):
    CALLS.append(site.name)
    return {{"total": site.X.sum(axis=0)[:rank] + len(CALLS)}}

def counting(fed, *, rank):
    return fed.ask(local_sum, rank=rank).stack("total")
"""
IN_PLACE = f"""{HEAD}
from fedspan import step

@step
def local_product(site, U):
    return {{"product": U.T @ site.X.sum(axis=0)}}

def careful(fed, U):
    return list(fed.ask(local_product, U=U).ok)

def careless(fed, U):
    U[...] = abs(U)
    return list(fed.ask(local_product, U=U).ok)
"""
ENGINES = f"""{HEAD}
from dataclasses import replace
from fedspan.engines.local.embedded import LocalEngine

class LastFirst(LocalEngine):
    def __init__(self, sites, greeting="hello"):
        super().__init__(sites, wire=True)

    def call(self, call, to, accepted, policy):
        return super().call(call, to[::-1], accepted, policy)

class Rounding(LastFirst):
    def call(self, call, to, accepted, policy):
        found = super().call(call, to, accepted, policy)
        return {{site: replace(sent, reply=rounded(sent.reply)) for site, sent in found.items()}}

def rounded(reply):
    doubles = {{key: value for key, value in reply.items() if getattr(value, "dtype", None) == np.float64}}
    return reply | {{key: value.astype(np.float32).astype(float) for key, value in doubles.items()}}
"""
PIGEONS = f"""{HEAD}
class Pigeons:
    def __init__(self, workers):
        self.workers = workers
        self.sites = tuple(sorted(workers))

    def send(self, requests, deadline):
        for site, request in requests.items():
            yield site, self.workers[site].answer(request)

    def online(self):
        return frozenset(self.sites)

    def close(self): ...

class Shuffling(Pigeons):
    def send(self, requests, deadline):
        found = dict(super().send(requests, deadline))
        yield from zip(found, [*found.values()][::-1], strict=True)
"""
SHY_SCALER = f"""{HEAD}
from fedspan import FedStandardScaler

class ShyScaler(FedStandardScaler):
    def __init__(self, odd):
        self.odd = odd
"""
DUCKS = f"""{HEAD}
from sklearn.base import BaseEstimator
from fedspan.sums.moments import moments

class Duck(BaseEstimator):
    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, fed, y=None):
        self.mean_ = fed.run(moments).mean
        return self

class Goose(BaseEstimator):
    count = 0

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, fed, y=None):
        Goose.count += 1
        self.count_ = Goose.count
        self.mean_ = fed.run(moments).mean
        return self

def feed():
    return 1
"""
