"""How sites come to know each other's keys for secure sums: each signs its own, and checks those of the others itself.

The coordinator only hands them round. A site takes a key that the owner of the other site's certificate has signed, for
this federation and under that site's name; a restarted site has a new key, and a newer word on it replaces an older.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from fedspan.engines.remote.messages.envelope import Sealed, open_sealed
from fedspan.engines.remote.messages.identity import Authority, Identity, Who
from fedspan.errors import FedspanError, PolicyError
from fedspan.secure_sum.sum_masks import KEY_BYTES
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import as_array

_LARGEST = 2**14


class Introductions:
    """A site's own introduction, and the keys of others that it was told and has checked."""

    def __init__(self, identity: Identity, authority: Authority, vault: Vault) -> None:
        self._authority = authority
        self._vault = vault
        self._made: dict[str, int] = {}  # by site: when its key was made
        head = {"federation": authority.federation, "site": identity.name, "made": time.time_ns()}
        head["key"] = as_array(vault.public)
        #: This site's key for secure sums, signed with the key of its certificate.
        self.own = Sealed(identity, "introduction", head, {}).to("")

    def take(self, introductions: Mapping[str, bytes | memoryview]) -> None:
        """Check the keys of all sites, by name, and let this site's vault know them: all or none."""
        keys: dict[str, bytes] = {}
        made: dict[str, int] = {}
        for name, introduction in introductions.items():
            keys[name], made[name] = self._checked(name, bytes(introduction))
        self._vault.introduce(keys, replace=True)
        self._made |= made

    def _checked(self, name: str, introduction: bytes) -> tuple[bytes, int]:
        try:
            opened = open_sealed(introduction, self._authority, "introduction", "", _LARGEST)
        except FedspanError as error:
            raise PolicyError(f"the key of site {name!r} is not believed: {error}") from None
        head = opened.head
        if opened.who != Who(name) or head["site"] != name:
            raise PolicyError(f"the key of site {name!r} is not believed: {opened.who.name!r} has signed it")
        if self._authority.sites and name not in self._authority.sites:
            raise PolicyError(f"the key of site {name!r} is not believed: there is no such site in this federation")
        key, made = head["key"].tobytes(), int(head["made"])
        if len(key) != KEY_BYTES or made < self._made.get(name, 0):
            raise PolicyError(f"the key of site {name!r} is not believed: there is a newer one")
        return key, made
