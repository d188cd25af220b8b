"""A site's part in a relay."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from fedspan.engines.nvflare.site import site_app
from fedspan.engines.nvflare.site.site_app import SiteApp


def test_no_site_is_called_by_another_site(monkeypatch):
    monkeypatch.setattr(site_app, "collab", SimpleNamespace(caller="south"))
    with pytest.raises(PermissionError, match="only the federation's server may call a site"):
        SiteApp.answer(SiteApp.__new__(SiteApp), b"request")
