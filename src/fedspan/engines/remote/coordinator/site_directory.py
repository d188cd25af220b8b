"""What the sites of a federation say of themselves, and how the coordinator makes them known to each other."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedspan.engines.remote.coordinator.agreed_kinds import kinds_that_differ, told_kinds
from fedspan.engines.remote.coordinator.signed_requests import Answer, Post
from fedspan.engines.remote.messages.envelope import MISREAD, Opened
from fedspan.engines.remote.messages.environment import differences, fedspan_version
from fedspan.engines.remote.messages.transport import Lost
from fedspan.federation import SecureSum

#: Seconds, and bytes, for messages that run nothing.
CONTROL_SECONDS = 10.0
CONTROL_BYTES = 2**20


@dataclass(frozen=True)
class About:
    """What a site has said of itself.

    `version` is fedspan's, `environment` what else decides the last bits of a result; `fingerprint` tells shape and
    kind of the data; `busy` what it is doing; `instance` changes when its process is started anew; `columns` are the
    kinds of its columns, where its owner lets them be known.
    """

    version: str
    environment: dict[str, str]
    fingerprint: str
    steps: tuple[str, ...]
    busy: str
    introduction: bytes
    instance: str
    columns: dict[str, str]


class Meeting:
    """Keeps what sites have said of themselves.

    Parameters
    ----------
    post : Post
    secure : SecureSum or None
        Sites are to know each other's keys, for runs of secure sums.
    any_version : bool
        Do not object to sites of another version of fedspan.

    Attributes
    ----------
    about : dict of About, by site
    silent : dict of str, by site
        Why others have said nothing.
    """

    def __init__(self, post: Post, secure: SecureSum | None, any_version: bool) -> None:
        self.about: dict[str, About] = {}
        self.silent: dict[str, str] = {}
        self._post = post
        self._secure = secure
        self._any_version = any_version
        self._strangers: dict[str, str] = {}  # by site: why it does not know the others
        self._warned: set[str] = set()

    def greet(self, sites: Sequence[str], deadline: float = CONTROL_SECONDS) -> None:
        """Ask sites what they are; say in a warning what may change the last bits of a result."""
        for site, answer in self._post.send("hello", "", {}, {}, sites, deadline, CONTROL_BYTES).items():
            self.about.pop(site, None)
            self.silent.pop(site, None)
            about = _read(answer)
            if isinstance(about, str):
                self.silent[site] = about
                continue
            self.about[site] = about
            others = differences(about.environment)
            if others:
                self._warn(f"site {site!r} has {', '.join(others)}: the last bits of results may differ")
        differ = kinds_that_differ({site: about.columns for site, about in self.about.items()})
        if differ:
            self._warn(f"the sites' tables differ: {differ}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, stacklevel=3)

    def introduce(self, runs: Iterable[str]) -> None:
        """Hand the sites' keys round, for these runs; each site checks them itself."""
        if self._secure is None:
            return
        parts = {site: about.introduction for site, about in self.about.items()}
        self._strangers = {}
        for run in runs:
            head = {"least": self._secure.least}
            answers = self._post.send("introduce", run, head, parts, list(parts), CONTROL_SECONDS, CONTROL_BYTES)
            for site, answer in answers.items():
                if isinstance(answer, Opened) and answer.head["kind"] != "done":
                    self._strangers[site] = str(answer.head.get("why"))[:1000]

    def meet_again(self, run: str, answers: Mapping[str, Answer]) -> None:
        """Greet who has been started anew since, and let the others know its new key."""
        renewed = []
        for site, answer in answers.items():
            known = self.about[site].instance if site in self.about else None
            if isinstance(answer, Opened) and answer.head.get("instance") != known:
                renewed.append(site)
        if renewed:
            self.greet(renewed)
            self.introduce([run])

    def objection(self, site: str) -> str:
        """Say why a site cannot take part, as far as is known: nothing is sent to it then."""
        about, mine = self.about.get(site), fedspan_version()
        if about is not None and about.version != mine and not self._any_version:
            return f"site {site!r} runs fedspan {about.version}, and this is fedspan {mine}: use one version"
        return self._strangers.get(site, "")


def _read(answer: Answer) -> About | str:
    """Return what a site says of itself, or why there is nothing."""
    if not isinstance(answer, Opened):
        return answer.reason if isinstance(answer, Lost) else str(answer)
    if answer.head["kind"] != "about":
        return str(answer.head.get("why"))[:1000]
    try:
        told = json.loads(bytes(answer.parts["about"]))
        if "stranger" in told:
            return str(told["stranger"])[:1000]
        return About(
            version=str(told["version"]),
            environment={str(key): str(value) for key, value in told["environment"].items()},
            fingerprint=str(told["fingerprint"])[:1000],
            steps=tuple(map(str, told["steps"])),
            busy=str(told["busy"])[:200],
            introduction=bytes(answer.parts["introduction"]),
            instance=str(answer.head["instance"]),
            columns=told_kinds(answer.parts.get("owner", b"")),
        )
    except MISREAD:
        return "the answer does not say all that it must"
