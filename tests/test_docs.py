"""The code blocks of the documentation can be copied: each defines or imports the names that it uses."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
if not PAGES[0].exists():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)

BLOCKS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
