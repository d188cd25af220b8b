"""Discovery of installed steps: all modules at any depth, and no import that fails in silence."""

from __future__ import annotations

import sys

import pytest

from fedspan.errors import InputError
from fedspan.federation.site.discovery import install_steps

STEP = "import fedspan as fs\n@fs.step('{id}', reveals='nothing')\ndef local(site):\n    return {{}}\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package with a step at depth two, and a module of the given source."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, source):
        folder = tmp_path / name / "parts" / "deep"
        folder.mkdir(parents=True)
        for path in (folder.parents[1], folder.parent, folder):
            (path / "__init__.py").write_text("")
        (folder / "found.py").write_text(STEP.format(id=f"{name}.found"))
        (folder.parent / "odd.py").write_text(source)
        return name

    yield make
    for module in [module for module in sys.modules if module.startswith("made_up")]:
        del sys.modules[module]


def test_steps_are_found_at_any_depth(package):
    assert "made_up_a.found" in install_steps([package("made_up_a", "")])


def test_a_module_that_needs_a_missing_extra_is_left_out(package, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails as if it were not installed
    assert "made_up_b.found" in install_steps([package("made_up_b", "import torch")])


@pytest.mark.parametrize("source", ["import not_a_module", "import fedspan.not_there", "1 / 0"])
def test_any_other_failing_import_is_an_error(package, source):
    with pytest.raises((ModuleNotFoundError, ZeroDivisionError)):
        install_steps([package("made_up_c", source)])


def test_an_owner_s_own_module_that_fails_is_named(package):
    name = package("made_up_d", "raise RuntimeError('no')")
    assert "made_up_d.found" in install_steps([], own=[f"{name}.parts.deep.found"])
    with pytest.raises(InputError, match=r"module 'made_up_d.parts.odd' cannot be imported: RuntimeError: no"):
        install_steps([], own=[f"{name}.parts.odd"])
