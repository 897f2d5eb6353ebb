"""docs/options.md has every option, with its commands and key, and every variable that the sources name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import TREE, Command

from pyxfer._cli.defaults import KEYS, WITHOUT_FILES
from pyxfer._config import OF_THE_MACHINE
from pyxfer._upload.settings import settings_set

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "options.md"
if not PAGE.exists():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)

BEGIN, END = "<!-- options -->\n", "<!-- /options -->"
FOLDERS = (".ci", "bench", "cmake", "csrc", "pyxfer", "tests", "tools")
FILES = ("CMakeLists.txt", "CMakePresets.json", "pyproject.toml")
# The preprocessor's, and what pyxfer, CMake or a shell (_PYXFER_COMPLETE) sets for itself.
NO_VARIABLES = {
    *("PYXFER_TRY", "PYXFER_TRY_STATUS", "PYXFER_TEXT_OF", "PYXFER_LINE_TEXT"),
    *("PYXFER_HAS_CUPTI_HEADERS", "PYXFER_DRIVER_TYPES", "PYXFER_IN_WORKER", "PYXFER_COMPLETE"),
}
OF_TYPER = ("install_completion", "show_completion")
BAR = r"\|"


def options_of(command: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each option with the words of its command."""
    for each in command.params:
        if each.param_type_name == "option" and each.name not in OF_TYPER:
            yield above, each
    for name, verb in getattr(command, "commands", {}).items():
        yield from options_of(verb, *above, name)


def table() -> str:
    """A row for each option, or several where its meaning differs."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for verb, option in options_of(TREE):
        value = f" {option.metavar}" if option.metavar else ""
        forms: list[str] = [*option.opts, *option.secondary_opts]
        names = ", ".join([f"`{forms[0]}{value}`", *(f"`{form}`" for form in forms[1:])])
        keeps = option.name in KEYS and verb not in WITHOUT_FILES
        key = f"`{option.name}`" if keeps or option.name in OF_THE_MACHINE else ""
        shown = f"`{' '.join(verb) or 'pyxfer'}`{_default(option)}"
        rows.setdefault((names, key, option.help), []).append(shown)
    found = [(*row, ", ".join(verbs)) for row, verbs in rows.items()]
    found.sort(key=lambda row: row[0].lstrip("`-"))
    heads = [("option", "key", "meaning", "commands and defaults"), ("---",) * 4]
    return "".join(f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |\n" for row in [*heads, *found])


def _default(option: Any) -> str:
    default = "on" if option.default is True else option.default
    return "" if default in (None, False, []) or callable(default) else f" ({default})"


def test_the_page_has_the_options_of_every_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    shown, end, after = rest.partition(END)
    if os.environ.get("PYXFER_WRITE_PAGES"):
        PAGE.write_text(before + BEGIN + table() + end + after, encoding="utf-8")
        return
    assert shown == table(), "PYXFER_WRITE_PAGES=1 writes the table anew"


def test_the_example_of_a_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYXFER_RING", raising=False)
    assert settings_set(os.environ)[0].threads == 8
    assert "pyproject.toml" not in command("ceiling", "--device", "99").stderr


def test_the_page_has_every_variable_of_the_sources() -> None:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files = [path for path in inside if path.is_file() and not {"results", "__pycache__"} & {*path.parts}]
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in [*files, *(ROOT / name for name in FILES)])
    named = {name for text in texts for name in re.findall(r"\b_?(PYXFER_[A-Z][A-Z_]*[A-Z])\b", text)}
    rows = set(re.findall(r"^\| `(PYXFER_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert (named - NO_VARIABLES, NO_VARIABLES - named) == (rows, set())
