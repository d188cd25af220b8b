"""What a real federation adds to a call before any network: signatures, checks, the wire and the site's disk.

Three sites in this process, reached by bytes alone, and 1000 x 20 numbers each way; in processor time, because here the
sites work one after the other and in a federation side by side. The step process of a site is measured by itself, with
the processor time of both sides: with these numbers, and with a message of a few bytes.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.engines.remote.site.site_worker import SiteWorker
from fedspan.engines.remote.site.step_process import StepProcess, default_memory
from fedspan.federation.calls.call import Call
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.step_runner import StepRunner
from fedspan.federation.site.steps import find_step

REPEATS = 100
SHAPE = (1000, 20)


@fs.step
def shifted(site, x):
    site.state["x"] = x
    return {"x": x + 1.0}


class Direct:
    """A transport that hands bytes over, and counts what the sites take for them."""

    def __init__(self, workers):
        self.workers = workers
        self.sites = tuple(sorted(workers))
        self.spent = []

    def send(self, requests, deadline):
        for site, request in requests.items():
            start = time.thread_time()
            answer = self.workers[site].answer(request)
            self.spent.append(time.thread_time() - start)
            yield site, answer

    def online(self):
        return frozenset(self.sites)

    def close(self):
        for worker in self.workers.values():
            worker.close()


class Root:
    """A root that issues certificates as a provisioner does."""

    def __init__(self):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.certificate = self.issued("root", "", self.key)

    def issued(self, name, role, key):
        names = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        names += [x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role)] * bool(role)
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]),
            subject_name=x509.Name(names),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now,
            not_valid_after=now + timedelta(days=1),
        )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def identity(self, name, role=""):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return Identity(self.issued(name, role, key), secret)


def median_ms(function) -> float:
    function()
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return statistics.median(times) * 1e3


def step_process_ms(site, x) -> float:
    """Return the processor time, of worker and step process, that running a step in a process of its own adds."""
    call = Call("run", 0, 0, find_step(shifted), {"x": x}, (site.name,))

    def seconds(calls):
        steps = StepProcess(site, default_memory())
        steps.begin(600.0, 600.0, 1)
        before = total_time()
        for _ in range(calls):
            steps.run(call, {"x": x}, CallContext({}))
        steps.close()  # its time is known when it has ended
        return total_time() - before

    def total_time():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    few, many = (min(seconds(calls) for _ in range(3)) for calls in (1, 1 + 3 * REPEATS))
    here = StepRunner(site)
    return (many - few) / (3 * REPEATS) * 1e3 - median_ms(lambda: here.run(call, {"x": x}, CallContext({})))


def main() -> dict[str, float]:
    x = np.random.default_rng(0).normal(size=SHAPE)
    sites = [fs.Site(name, np.zeros((10, 2))) for name in "abc"]
    root = Root()
    authority = Authority(root.certificate, "bench", "abc")
    user = root.identity("user", "analyst")
    result = {"one signature": median_ms(lambda: user.sign(b"x" * 500))}
    for wire in (False, True):
        fed = fs.LocalFederation(sites, wire=wire)
        result[f"embedded{', wire' * wire}"] = median_ms(lambda fed=fed: fed.ask(shifted, x=x))
    with tempfile.TemporaryDirectory() as folder:
        workers = {
            site.name: SiteWorker(site, Path(folder) / site.name, root.identity(site.name), authority) for site in sites
        }
        transport = Direct(workers)
        with RemoteFederation(transport, user, authority) as fed:
            whole = median_ms(lambda: fed.ask(shifted, x=x))
        one_site = statistics.median(transport.spent) * 1e3
    result["remote: one site"] = one_site
    result["remote: the coordinator"] = whole - 3 * one_site
    result["remote: the coordinator and one site, as when sites work side by side"] = whole - 2 * one_site
    result["a step in its own process, instead of the worker's"] = step_process_ms(sites[0], x)
    result["a step in its own process, with a small message"] = step_process_ms(sites[0], x[:1, :2])
    for name, value in result.items():
        print(f"{value:8.2f} ms  {name}")
    print(f"(three sites, {SHAPE[0]} x {SHAPE[1]} float64 each way, median of {REPEATS} calls, processor time)")
    return result
