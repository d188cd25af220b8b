"""The documentation site: Markdown pages, the reference from docstrings, a gallery of examples. Builds offline."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "src"))  # the package beside these pages, also where another one is installed

from notebooks import write_pages  # noqa: E402
from reference import write_reference  # noqa: E402
from site_check import problems  # noqa: E402
from sphinx.errors import SphinxError  # noqa: E402

import fedspan  # noqa: E402

write_reference(HERE / "api")
write_pages(HERE / "gallery" / "notebooks")

project = "fedspan"
version = release = fedspan.__version__
project_copyright = ""
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

# Markdown: the same files are read on a code host, so links are plain relative paths, and headings are anchors.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

# The reference. Members that come from scikit-learn or Python are documented there.
autosummary_generate = True
autosummary_imported_members = True
numpydoc_show_class_members = False
autodoc_typehints = "none"

# What an example warns of is part of its page; where the file lies is not.
warnings.formatwarning = lambda message, category, *where: f"{category.__name__}: {message}\n"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1,
    "show_signature": False,
    "write_computation_times": False,  # that page would load scripts from elsewhere
}

html_theme = "pydata_sphinx_theme"
html_title = "fedspan"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_domain_indices = False
html_theme_options = {
    "logo": {"text": "fedspan"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": {  # none on the sheets: the room is their tables'
        "**": ["page-toc"],
        **{f"protocols/{page.stem}": [] for page in (HERE / "protocols").glob("*.md")},
    },
    "navigation_with_keys": False,
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "glossary": [], "faq": []}


def skip_foreign(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out members that another package or Python itself defines."""
    if isinstance(obj, BuiltinFunctionType | MethodDescriptorType):  # of str, for failures and endings
        return True
    where = getattr(obj, "__module__", None) or getattr(getattr(obj, "fget", None), "__module__", "fedspan")
    return True if not where.startswith("fedspan") else None


def link_pages(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let docstrings, which name the pages by their files, lead to them."""
    lines[:] = [re.sub(r"``docs/([\w/-]+)\.md``", r":doc:`/\1`", line) for line in lines]


def check_site(app: Any, exception: Exception | None) -> None:
    """End with an error if a link of the site leads nowhere, or a page loads something from elsewhere."""
    if exception is None and app.builder.name == "html":
        found = problems(Path(app.outdir), app.env.found_docs)
        if found:
            raise SphinxError("\n".join(found))


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("build-finished", check_site)
