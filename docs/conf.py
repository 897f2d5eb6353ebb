"""The settings of the documentation site, which Sphinx makes of docs/. `tools/check docs` builds it."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from sphinx.ext import napoleon
from sphinx.pycode import ModuleAnalyzer

import pyxfer
from pyxfer._document import baselines

if TYPE_CHECKING:
    from pathlib import Path

    from docutils.nodes import Element
    from sphinx.application import Sphinx

project = "pyxfer"
author = "The pyxfer developers"
version = release = pyxfer.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 4  # those of GitHub, where the pages are read as well
highlight_language = "none"

html_theme = "furo"
html_title = f"pyxfer {version}"
html_css_files = ["site.css"]
html_static_path = ["_static"]
html_copy_source = False
html_domain_indices = False
html_show_copyright = False

default_role = "py:obj"  # `upload` in a docstring is code, and a link if it is a public name
autodoc_default_options = {"members": True, "undoc-members": True, "exclude-members": "DERIVED_BY, __init__"}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80

PUBLIC = {name: getattr(pyxfer, name) for name in pyxfer.__all__}


def _structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    for each in (kind, typing.get_origin(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            yield each
    for each in typing.get_args(kind):
        yield from _structs_in(each)


def _with_parts(documents: list[type[msgspec.Struct]]) -> dict[type[msgspec.Struct], None]:
    """The documents, and the types of their fields, of the fields of these, and so on."""
    found = dict.fromkeys(documents)
    waiting = list(found)
    while waiting:
        fields = msgspec.structs.fields(waiting.pop())
        new = [part for field in fields for part in _structs_in(field.type) if part not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return found


IN_A_STORE = [baselines.StoredRun, baselines.KeptBaseline, baselines.History]
STRUCTS = _with_parts([*(each for value in PUBLIC.values() for each in _structs_in(value)), *IN_A_STORE])
for _struct in STRUCTS:
    _struct.__annotations__ = typing.get_type_hints(_struct)  # without the limits of a number, such as Meta(ge=0)
_fields = typing.get_type_hints(pyxfer.Route, localns={"RouteContext": pyxfer.RouteContext})
pyxfer.Route.__annotations__ = pyxfer.Route.__init__.__annotations__ = _fields
PARTS = [each for each in STRUCTS if each not in PUBLIC.values()]
_uploads = ModuleAnalyzer.for_module("pyxfer._upload.api")
_uploads.analyze()
del _uploads.overloads["upload"]  # there are six, for type checkers; the signature itself says it shorter

MADE_BY_USERS = ("Route", "Timer", "Transfer", "Uploader", "mark")


def _leave_out(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Show only the parts of a module that the page of parts names."""
    del app, name, skip, options
    return True if what == "module" and not any(thing is part for part in PARTS) else None


def _without_signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str | None, result: str
) -> tuple[str, str] | None:
    """Users make few of the classes; the others only have fields and methods."""
    del app, thing, options, result
    is_class = what in ("class", "exception") and name.rpartition(".")[2] not in MADE_BY_USERS
    return ("", "") if is_class and signature else None


def _read_docstring(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Read the sections of Google's style. Napoleon itself would take the text before a colon as a property's type."""
    del what, name, thing, options
    lines[:] = napoleon.GoogleDocstring(lines, napoleon.Config(), app, "function").lines()


def _find_public(app: Sphinx, environment: Any, node: Any, content: Element) -> Element | None:
    """A public class is documented under its public name, and not under the module that defines it."""
    name = node["reftarget"].rpartition(".")[2]
    if name not in PUBLIC or not node["reftarget"].startswith("pyxfer._"):
        return None
    domain = environment.domains["py"]
    found: Element = domain.resolve_xref(
        environment, node["refdoc"], app.builder, "obj", f"pyxfer.{name}", node, content
    )
    return found


def _as_first_page(app: Sphinx, path: Path, name: str, content: list[str]) -> None:
    """README.md is above the pages of docs/, and as the first page of the site among them."""
    del app, path, name
    content[0] = re.sub(r"\]\((?!https?:|#)", "](../", content[0]).replace("](../docs/", "](")


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("autodoc-skip-member", _leave_out)
    app.connect("autodoc-process-signature", _without_signature)
    app.connect("autodoc-process-docstring", _read_docstring)
    app.connect("include-read", _as_first_page)
    app.connect("missing-reference", _find_public)
