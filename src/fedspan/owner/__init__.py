"""The owner of a site: ``site.toml`` states where the data are, which requests are allowed, and where they are logged.

The site's own code enforces all of it, whatever a coordinator requests.
"""

from __future__ import annotations

from fedspan.owner.owned_site import OwnedSite, read_owned_site

__all__ = ["OwnedSite", "read_owned_site"]
