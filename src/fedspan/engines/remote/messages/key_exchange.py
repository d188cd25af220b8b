"""Key exchange: sites learn each other's keys for secure sums.

Each site signs its own key, and the coordinator passes the keys on. Each site checks the others' keys itself: signed by
the certificate of that site, for this federation. A restarted site has a new key, and a newer key replaces an older.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedspan.engines.remote.messages.envelope import Sealed, open_sealed
from fedspan.engines.remote.messages.identity import Authority, Identity, Participant, UnlistedError
from fedspan.errors import FedspanError, PolicyError
from fedspan.secure_sum.sum_masks import KEY_BYTES
from fedspan.secure_sum.sum_vault import Vault
from fedspan.wire import as_array

_PURPOSE, _LARGEST = "key", 2**14


class KeyExchange:
    """A site's own signed key (`own`), and the checked keys of other sites, in the site's `vault`.

    `made` is the time of the own key in nanoseconds, later than those of all previous ones.
    """

    def __init__(self, identity: Identity, authority: Authority, vault: Vault, made: int) -> None:
        self._identity = identity
        self._authority = authority
        self._vault = vault
        self._made = {identity.name: made}  # by site: when its key was made
        self.follow()

    def follow(self) -> None:
        """Sign this site's key with the current certificate, and forget the keys of sites that are no longer listed."""
        name = self._identity.name
        head = {"federation": self._authority.federation, "site": name, "made": self._made[name]}
        self.own = Sealed(self._identity, _PURPOSE, head | {"key": as_array(self._vault.public)}, {}).to("")
        if sites := self._authority.sites:
            self._vault.keep(sites)

    def accept(self, signed: Mapping[str, bytes | memoryview]) -> None:
        """Check the signed keys of all sites, by name, and store them in the vault: all or none.

        Lists of participants are handed out one after the other. A key whose certificate is not on the list of this
        site is left out, and the site is in no sum with it.
        """
        checked, unlisted = {}, set()
        for name, key in signed.items():
            try:
                checked[name] = self._checked(name, bytes(key))
            except UnlistedError:
                unlisted.add(name)
        self._vault.forget_keys(unlisted)
        self._vault.introduce({name: key for name, (key, _) in checked.items()}, replace=True)
        self._made |= {name: made for name, (_, made) in checked.items()}

    def _checked(self, name: str, signed: bytes) -> tuple[bytes, int]:
        try:
            opened = open_sealed(signed, self._authority, _PURPOSE, "", _LARGEST)
        except UnlistedError:
            raise
        except FedspanError as error:
            raise PolicyError(f"the key of site {name!r} is refused: {error}") from None
        head = opened.head
        if opened.sender != Participant(name) or head["site"] != name:
            raise PolicyError(f"the key of site {name!r} is refused: {opened.sender.name!r} has signed it")
        if self._authority.sites and name not in self._authority.sites:
            raise PolicyError(f"the key of site {name!r} is refused: there is no such site in this federation")
        key, made = head["key"].tobytes(), int(head["made"])
        if len(key) != KEY_BYTES or made < self._made.get(name, 0):
            raise PolicyError(
                f"the key of site {name!r} is refused: a newer one is known; if that site's disk was lost after its "
                "clock was ahead, start this site again"
            )
        return key, made


def is_valid_key(signed: bytes, authority: Authority) -> bool:
    """Return whether a site's signed key is one that the list of participants still allows."""
    try:
        open_sealed(signed, authority, _PURPOSE, "", _LARGEST)
    except FedspanError:
        return False
    return True
