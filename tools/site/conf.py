"""Sphinx's settings of the site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util.inspect import signature, stringify_signature

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import polyhal  # noqa: E402
from tools.site.docstrings import to_restructured_text  # noqa: E402

project = "Polyhal"
author = "The Polyhal developers"
version = release = polyhal.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"Polyhal {version}"
html_static_path = [str(ROOT / "tools/site/static")]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_use_index = html_domain_indices = False
highlight_language = "text"
smartquotes = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6
add_module_names = False
autodoc_member_order = "alphabetical"
python_maximum_signature_line_length = 240  # of fully qualified types, which are longer than the text
toc_object_entries = False  # the navigation of every page would copy thousands of them
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_TYPES = {name: f"polyhal.{name}" for name in ("DType", "Device", "Generator", "Tensor")} | {
    "Module": "polyhal.nn.Module",
    "Optimizer": "polyhal.optim.Optimizer",
    "Distribution": "polyhal.distributions.Distribution",
}
"""Types of signatures that are links. Sphinx would search all names for every other one, too."""


def _docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_restructured_text(lines)


def _link_types(app: Any, doctree: nodes.document) -> None:
    """Link known types of signatures, and make text of the others."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if not link.hasattr("refspecific"):
            continue
        name = link["reftarget"].rpartition(".")[2]
        if name in _TYPES:
            link["reftarget"] = _TYPES[name]
            del link["refspecific"]
        else:
            link.replace_self(link.children)


def arguments_of_module(
    _app: Any, what: str, _name: str, member: Any, _options: Any, text: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show a module's `__init__`, since `Module.__new__` takes any arguments, or the signature that a lazy layer declares."""
    if what != "class" or not issubclass(member, polyhal.nn.Module):
        return text, returned
    found = vars(member).get("__signature__") or signature(member.__init__, bound_method=True)
    return stringify_signature(found, show_return_annotation=False, unqualified_typehints=True), None


def setup(app: Any) -> None:
    """Connect the handlers to Sphinx's events."""
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", arguments_of_module)
    app.connect("doctree-read", _link_types)
