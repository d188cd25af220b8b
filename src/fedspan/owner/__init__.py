"""The site's owner decides: ``site.toml`` says where the data are, who may ask what, and where it is written down.

All of it is enforced by this site's own code, whatever a coordinator asks.
"""

from __future__ import annotations

from fedspan.owner.owned_site import OwnedSite, read_owned_site

__all__ = ["OwnedSite", "read_owned_site"]
