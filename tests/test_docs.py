"""The pages of the documentation: links lead somewhere, pages are short, and code blocks can be copied."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

import pyxfer

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
if not PAGES[0].exists():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)

BLOCKS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


MAX_LINES = {"README.md": 170}
MAX_LINES_OF_A_PAGE = 350

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _without_code(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", _without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_to_files_and_headings(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", _without_code(page))
    targets = [((page.parent / name if name else page).resolve(), anchor) for name, anchor in links]
    assert not [target for target, _ in targets if not target.exists()]
    assert not [(target.name, anchor) for target, anchor in targets if anchor and anchor not in _anchors(target)]


@each_page
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MAX_LINES.get(page.name, MAX_LINES_OF_A_PAGE)


def test_the_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", PAGES[0].read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES[1:]}


def test_the_page_about_python_names_everything_public() -> None:
    named = re.findall(r"`(\w+)", _without_code(ROOT / "docs" / "python.md"))
    assert not set(pyxfer.__all__) - set(named)


@each_page
def test_a_page_names_nothing_private(page: Path) -> None:
    assert not re.findall(r"pyxfer\._\w+", page.read_text(encoding="utf-8"))


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 20


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_defines_what_it_uses(code: str) -> None:
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {alias.asname or alias.name.partition(".")[0] for node in nodes for alias in getattr(node, "names", [])}
    assert not {name.id for name in names} - bound - set(dir(builtins))
