"""The pages of the documentation: links lead somewhere, pages are short, and code blocks run as they are pasted."""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from baseline.store.making import make_baseline
from blocks_samples import make_blocks_run
from command_line import environment
from fleet_samples import make_fleet, make_host
from link_samples import make_links
from samples import make_run

import pyxfer
from pyxfer._baseline.store import open_store
from pyxfer._document import codec

ROOT = Path(__file__).resolve().parent.parent
# docs/index.md has the tables of contents of the site, and README.md as its text.
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "index.md"})]
if not PAGES[0].exists():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)


class Block(NamedTuple):
    """A fenced block. `remark` is the HTML comment directly above it."""

    language: str
    code: str
    remark: str
    name: str


def _blocks(page: Path) -> Iterator[Block]:
    number, lines = 0, iter(page.read_text(encoding="utf-8").splitlines())
    above = ""
    for line in lines:
        if line.startswith("```"):
            code = "".join(f"{inside}\n" for inside in iter(lambda: next(lines), "```"))
            remark = above if above.startswith("<!--") else ""
            yield Block(line[3:], code, remark.removeprefix("<!-- ").removesuffix(" -->"), f"{page.name}-{number}")
            number += 1
        above = line or above


BLOCKS = [block for page in PAGES for block in _blocks(page)]
# Languages of what is no program, such as the synopsis of a command. tests/cli/test_help.py reads the TOML.
PLAIN = ("text", "sql", "promql", "toml")
NOT_RUN = "not run: "
REASONS = (
    "needs a GPU",
    "needs a cluster",
    "needs a framework",
    "needs two GPUs",
    "installs something",
    "endless",
)
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


def test_the_reference_has_every_public_name_once() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.rst"))
    named = re.findall(r"^\.\. auto\w+:: pyxfer\.([A-Za-z]\w+)", pages, re.MULTILINE)
    assert sorted(named) == sorted([*pyxfer.__all__, "asv"])


@each_page
def test_a_page_names_nothing_private(page: Path) -> None:
    assert not re.findall(r"pyxfer\._\w+", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    """A block under `figures:` is written and compared by bench/readme_figures.py; .ci/run runs those under `ci:`."""
    if block.remark.startswith("figures:"):
        assert block.language == ""
    elif block.language in PLAIN:
        assert block.remark == ""
    else:
        assert block.language in ("python", "sh")
        assert block.remark.startswith("ci:") or block.remark in ("", *(f"{NOT_RUN}{reason}" for reason in REASONS))


@pytest.mark.parametrize(
    "code", [pytest.param(block.code, id=block.name) for block in BLOCKS if block.language == "python"]
)
def test_a_block_defines_what_it_uses(code: str) -> None:
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {alias.asname or alias.name.partition(".")[0] for node in nodes for alias in getattr(node, "names", [])}
    assert not {name.id for name in names} - bound - set(dir(builtins))


# These measure for their default budgets, most of them several times.
_MEASURES = re.compile(r"pyxfer (ceiling|doctor|explain|links|fleet host)|pyxfer\.(ceiling|doctor)\(")
RUN = [
    pytest.param(block, id=block.name, marks=[pytest.mark.slow] if _MEASURES.search(block.code) else [])
    for block in BLOCKS
    if block.language in ("python", "sh") and not block.remark
]
SCRIPTS = {
    "train.py": "def train_step():\n    sum(range(1000))\n\n\nfor _ in range(30):\n    train_step()\n",
    "package/train.py": "",
    "engine.py": "class Model:\n    def generate(self):\n        sum(range(1000))\n",
    "generate.py": "import engine\n\nfor _ in range(30):\n    engine.Model().generate()\n",
    "serve.py": "",
    # Pages leave out the options whose defaults take seconds.
    "pyproject.toml": "[tool.pyxfer]\nbudget = '0.1s'\nsize = '1MiB'\n",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader of the pages has: documents, scripts, and a store with a baseline."""
    folder = tmp_path_factory.mktemp("saved")
    for name in ("run", "other", "monday", "today", "a", "b"):
        codec.save(make_run(), folder / f"{name}.json")
    codec.save(make_links(2), folder / "links.json")
    codec.save(make_fleet(), folder / "fleet.json")
    codec.save(make_blocks_run(), folder / "blocks.json")
    for name in ("hosts", "package"):
        (folder / name).mkdir()
    codec.save(make_host("node7"), folder / "hosts" / "node7.json")
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    with open_store(folder / "store.db") as store:
        store.add_baseline(make_baseline())
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path, dirs_exist_ok=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", RUN)
def test_a_block_runs(block: Block, folder: Path) -> None:
    python = f'"{sys.executable}"'
    if block.language == "sh":
        command = (
            f'set -eu -o pipefail; python() {{ {python} "$@"; }}; pyxfer() {{ python -m pyxfer "$@"; }}\n{block.code}'
        )
    else:
        (folder / "test_block.py").write_text(block.code)
        options = "-m pytest -p no:cacheprovider --xfer-device=host --xfer-budget=50ms"
        command = f"{python} {options if 'def test_' in block.code else ''} test_block.py"
    variables = {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYXFER_STORE": str(folder / "store.db"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    ended = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
