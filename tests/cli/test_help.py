"""Help pages, the page of all options, arguments that are refused, defaults, and the values that a shell offers."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from command_line import environment, pyxfer
from in_process import TREE, Command
from marks import slow

from pyxfer import units
from pyxfer._ceiling import session
from pyxfer._cli import measure
from pyxfer._cli.defaults import KEYS, WITHOUT_FILES
from pyxfer._cli.main import _GROUPS
from pyxfer._config import OF_THE_MACHINE
from pyxfer._upload.settings import settings_set


def verbs(group: Any, *above: str) -> Iterator[tuple[str, ...]]:
    for name, found in group.commands.items():
        yield (*above, name)
        if hasattr(found, "commands"):
            yield from verbs(found, *above, name)


# A command and its summary in a list of commands.
_LISTED = re.compile(r"  (?P<name>[a-z]+) {2,}\S")
VERBS = list(verbs(TREE))


@pytest.mark.parametrize("verb", [(), *VERBS], ids=" ".join)
def test_help_has_an_example_of_the_verb(command: Command, verb: tuple[str, ...]) -> None:
    text = command(*verb, "--help").stdout
    assert f"\n    {' '.join(('pyxfer', *verb))}" in text.partition("Example:")[2]


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("group", [(), ("baseline",), ("fleet",)], ids=" ".join)
def test_no_summary_of_a_verb_is_cut_off(
    command: Command, group: tuple[str, ...], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    names = {verb[0] for verb in VERBS} if not group else {verb[-1] for verb in VERBS if verb[:-1] == group}
    lines = command(*group, "--help").stdout.splitlines()
    listed = [line for line in lines if (found := _LISTED.match(line)) and found["name"] in names]
    assert len(listed) == len(names)
    assert all(line.endswith(".") and not line.endswith("..") for line in listed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nope",), "No such option: --nope"),
        (("ceilin",), "No such command 'ceilin'"),
        (("cieling",), "No such command 'cieling'. Did you mean 'ceiling'? See pyxfer --help."),
        (("ceiling", "--nope"), "No such option: --nope"),
        (("ceiling", "--device"), "Option '--device' requires an argument"),
        (("baseline", "save", "--processes", "x"), "Invalid value for '--processes': 'x' is not a whole number"),
        (("explain",), "Missing argument 'ROUTE'"),
        (("baseline", "sav"), "No such command 'sav'"),
        (("help",), "'help' is an option and not a command: write pyxfer --help"),
        (("help", "ceiling"), "'help' is an option and not a command: write pyxfer ceiling --help"),
    ],
)
def test_an_unreadable_command_line_has_one_line_as_every_error(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    ended = command(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"pyxfer: {message}")
    assert ended.stderr.count("\n") == 1
    assert "--help.\n" in ended.stderr


def test_the_version_is_that_of_the_package() -> None:
    result = pyxfer("--version")
    assert (result.returncode, result.stdout) == (0, f"pyxfer {metadata.version('pyxfer')}\n")


def test_the_help_has_each_verb_once_in_a_group_and_every_exit_code(command: Command) -> None:
    named = [name for names in _GROUPS.values() for name in names]
    assert sorted(named) == sorted({verb[0] for verb in VERBS})
    text = command("--help").stdout
    assert [title for title in _GROUPS if f"\n{title}:\n" not in text] == []
    codes = " ".join(text.split()).partition("Exit codes: ")[2]
    assert [code for code in ("0 ", ", 1 ", ", 2 ", ", 3 ", ", 4 ", ", 130 ") if code not in codes] == []


def test_a_file_in_the_place_of_a_command_is_told_from_a_mistyped_one(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a b.json").write_text("{}")
    ended = command(str(tmp_path / "a b.json"))
    assert ended.returncode == 2
    assert f"write pyxfer show '{tmp_path / 'a b.json'}'." in ended.stderr


@pytest.mark.parametrize("arguments", [["ceiling", "--help"], slow(["--version"])])
def test_help_and_version_load_neither_numpy_nor_the_engine(arguments: list[str]) -> None:
    script = (
        "import sys; sys.argv = ['pyxfer', *sys.argv[1:]]\n"
        "from pyxfer.__main__ import main\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if name in ('numpy', 'rich', 'pyxfer.native._cuda')])"
    )
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert result.stdout.endswith("[]\n"), result.stderr


def test_the_defaults_are_those_of_the_python_function() -> None:
    typed = {name: parameter.default for name, parameter in inspect.signature(measure.ceiling).parameters.items()}
    called = {name: parameter.default for name, parameter in inspect.signature(session.ceiling).parameters.items()}
    assert typed["device"] == str(called["device"])
    assert typed["direction"].split(",") == list(called["direction"])
    assert typed["memory"].split(",") == list(called["memory"])
    assert typed["mode"].split(",") == list(called["mode"])
    assert typed["size"] == called["size"]
    assert typed["fresh"] == called["fresh"]
    assert units.parse_ratio(typed["precision"]) == called["precision"]
    assert units.parse_duration(typed["budget"]) == called["budget"]


def test_the_installed_command_completes_verbs() -> None:
    result = pyxfer("ceiling", _PYXFER_COMPLETE="complete_bash", COMP_WORDS="pyxfer s", COMP_CWORD="1")
    assert result.stdout.split() == ["schema", "show"]


# --- arguments that are refused, before anything is measured or written ----------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("ceiling --device host --size lots", "is not a size"),
        ("ceiling --device host --direction sideways", "--direction 'sideways' is unknown: choose one of"),
        ("ceiling --device host --precision 200%", "is above 100%"),
        ("ceiling --device host --budget 0s", "is not above zero"),
        ("frameworks --device host --workload training", "--workload 'training' is unknown"),
        ("frameworks --device host --workload image-batch --direction h2d --batch none", "'none'"),
        ("frameworks --layout nchw", "add --workload image-batch"),
        ("frameworks --workload copy --cast host --size 1MiB", "add --workload image-batch"),
        ("frameworks --workload image-batch --layout chwn", "--layout 'chwn' is unknown"),
        ("frameworks --workload image-batch --cast gpu", "--cast 'gpu' is unknown: choose one of host, device"),
        ("frameworks --workload image-batch --dtype int8", "--dtype 'int8' is unknown"),
        ("explain", "pyxfer list routes"),
        ("explain torch.cast-on-host", "torch.cast-on-host is an order of work on images"),
        ("explain torch.to --size 1MiB,2MiB", "is not a size"),
        ("links --group all", "'all' is unknown"),
        ("links --engine tma", "'tma' is unknown"),
        ("links --size 1MiB,2MiB", "is not a size"),
        ("links --device 0,0", "name each device once"),
        ("links --device 9", "is none of the devices"),
        ("links --budget 0s", "--budget"),
        ("baseline save --links --memory pageable", "--memory is for the link of one device"),
        ("baseline save --group pairs", "--group is for links"),
        ("baseline save --links --group ring", "'ring' is unknown"),
        ("baseline save --links --size 1MiB,2MiB", "one size"),
        ("baseline check --device 0,1", "Several devices are for links"),
        ("baseline check --links --device host --require-gpu", "exclude each other"),
        ("--direction h2d", "write pyxfer ceiling --direction."),
        ("--size 64M", "--size"),
        ("--budget 40h", "--budget"),
        ("--precision 0.5", "--precision"),
        ("--budget 1s list", "write it after list"),
        ("list tables", "write pyxfer list, or pyxfer list routes"),
        ("watch /bin/python3.12 train.py", "leave '/bin/python3.12' out, as in pyxfer watch train.py."),
        ("tune --budget soon", "--budget 'soon'"),
        ("baseline save --processes 2 --device host --store s.db", "--processes 2"),
        ("baseline check --tolerance 0.5", "--tolerance '0.5' means 50%"),
        ("baseline check --device host --require-gpu --store s.db", "exclude each other"),
        ("compare a.json b.json --tolerance 0%", "--tolerance"),
        ("compare a.json b.json --fail-on faster:5%", "--fail-on slower:5%"),
        ("compare a.json b.json --fail-on slower", "--fail-on slower:5%"),
        ("compare a.json b.json --fail-on slower:x", "--fail-on slower:SHARE"),
        ("baseline import missing.json --store s.db", "missing.json"),
        ("doctor run.json --budget 2s", "is not measured again"),
        ("doctor run.json --device 1", "is not measured again"),
        ("schema runs", "comparison"),
        ("plan --block-bytes 16K --blocks 9 --compute 1s", "--block-bytes '16K' is ambiguous"),
        ("plan --block-bytes 16KiB --blocks 9 --compute soon", "--compute 'soon'"),
        ("plan --model llama-9b --tokens 9 --prefill 1", "--model 'llama-9b' is unknown: did you mean llama-8b?"),
        ("plan --model llama-8b --tokens 9 --prefill fast", "--prefill 'fast' is not a rate"),
        ("plan --block-bytes 16KiB --blocks 9 --compute 1s --split kv", "give --model or --config"),
        ("plan --block-bytes 16KiB --blocks 9 --compute 1s --order any", "--order 'any' is unknown"),
        ("plan --block-bytes 16KiB --blocks 9 --compute 1s --share 2", "--share"),
        ("plan --model llama-8b --tokens 9 --compute 1s --split all", "--split 'all' is unknown"),
        ("plan --model llama-8b --tokens 9 --compute 1s --blocks 9", "leave out --block-bytes and --blocks"),
        ("plan --model llama-8b --config c.json --compute 1s", "--model and --config exclude each other"),
        ("plan --model llama-8b --compute 1s", "give --tokens"),
        ("plan --block-bytes 16KiB --blocks 9 --prefill 1tok/s", "give --tokens"),
        ("plan --block-bytes 16KiB --blocks 9", "give --compute or --prefill"),
        ("plan --block-bytes 16KiB --blocks 0 --compute 1s", "'--blocks'"),
        ("plan --compute 1s", "A plan needs --block-bytes and --blocks, or --model and --tokens"),
        ("plan --run a.json --store s.db", "--run and --store exclude each other"),
        ("fleet show none.json --line xml", "'xml' is unknown"),
        ("fleet show none.json --host n3", "add --line"),
        ("fleet show none.json --line npd --export-drain -", "writes no file"),
    ],
)
def test_invalid_arguments_are_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command(*shlex.split(arguments))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in " ".join(ended.stderr.split())
    assert not [word for word in ("starting", "measuring", "Traceback") if word in ended.stderr]
    assert not list(tmp_path.iterdir())


ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "options.md"
documented = pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not beside the tests")

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


@documented
def test_the_page_has_the_options_of_every_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    shown, end, after = rest.partition(END)
    if os.environ.get("PYXFER_WRITE_PAGES"):
        PAGE.write_text(before + BEGIN + table() + end + after, encoding="utf-8")
        return
    assert shown == table(), "PYXFER_WRITE_PAGES=1 writes the table anew"


@documented
def test_the_example_of_a_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYXFER_RING", raising=False)
    assert settings_set(os.environ)[0].threads == 8
    assert "pyproject.toml" not in command("ceiling", "--device", "99").stderr


@documented
def test_the_page_has_every_variable_of_the_sources() -> None:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files = [path for path in inside if path.is_file() and not {"results", "__pycache__"} & {*path.parts}]
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in [*files, *(ROOT / name for name in FILES)])
    named = {name for text in texts for name in re.findall(r"\b_?(PYXFER_[A-Z][A-Z_]*[A-Z])\b", text)}
    rows = set(re.findall(r"^\| `(PYXFER_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert (named - NO_VARIABLES, NO_VARIABLES - named) == (rows, set())
