"""What every verb promises: exports, exit codes, Ctrl-C, documents that can be read again, and `--quiet`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from baseline.store.making import make_baseline, run_at
from blocks_samples import make_blocks_run
from command_line import interrupt_when, shell
from command_line import pyxfer as in_a_process
from fleet.stand_ins import make_stand_ins
from fleet_samples import make_fleet, make_host
from in_process import TREE, Command
from marks import slow
from samples import make_run

import pyxfer
from pyxfer import _baseline
from pyxfer._baseline.store import open_store
from pyxfer._document import codec
from pyxfer._document.examinations import Examination
from pyxfer.errors import StoreError
from pyxfer.native._host import testing

Words = tuple[str, ...]


def exports_of(group: Any, *above: str) -> Iterator[tuple[Words, set[str]]]:
    """Each verb with the options that export."""
    yield above, {option for each in group.params for option in each.opts if option.startswith("--export-")}
    for name, found in getattr(group, "commands", {}).items():
        yield from exports_of(found, *above, name)


# The arguments of each verb that needs some; RUN, HOST and FLEET are saved documents.
CALLS: dict[Words, Words] = {
    ("explain",): ("raw.pinned-async",),
    ("files",): ("ARRAY.npy", "--to", "numpy"),
    ("doctor",): ("RUN",),
    ("watch",): ("script.py",),
    ("compare",): ("RUN", "RUN"),
    ("metrics",): ("RUN",),
    ("baseline", "show"): ("default", "--host", "node-7"),
    ("fleet", "run"): ("--hosts", "a"),
    ("fleet", "judge"): ("HOST",),
    ("fleet", "show"): ("FLEET",),
    ("show",): ("RUN",),
    ("plan",): ("--run", "BLOCKS", "--block-bytes", "16KiB", "--blocks", "100", "--compute", "1ms"),
}
EXPORTING = {verb: options for verb, options in exports_of(TREE) if options}


def _found(verb: Words) -> Any:
    found = TREE
    for name in verb:
        found = found.commands[name]
    return found


def options_of(verb: Words) -> set[str]:
    return {option for each in _found(verb).params for option in each.opts}


ALL_VERBS = [verb for verb, _ in exports_of(TREE) if not verb or not hasattr(_found(verb), "commands")]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents, a script and a store."""
    folder = tmp_path_factory.mktemp("made")
    with open_store(str(folder / "store.db")) as opened:
        opened.add_baseline(make_baseline())
    documents = {"RUN": make_run(), "HOST": make_host("n1"), "FLEET": make_fleet(), "BASELINE": make_baseline()}
    documents["BLOCKS"] = make_blocks_run()
    for name, document in documents.items():
        codec.save(document, folder / name)
    np.save(folder / "ARRAY.npy", np.arange(1000.0))
    (folder / "script.py").write_text("print('its own')")
    return folder


@pytest.fixture
def call(command: Command, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a verb with its arguments and further ones, in a copy of that folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "store.db"))
    return lambda verb, *more: command(*verb, *more, *CALLS.get(verb, ()))


@pytest.fixture
def without_sqlalchemy(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import what uses the store again, without SQLAlchemy."""
    for name in [name for name in sys.modules if name.startswith("pyxfer._baseline.store")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(_baseline, name.rpartition(".")[2], raising=False)
    monkeypatch.delitem(vars(sys.modules["pyxfer"]), "open_store", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)


@pytest.mark.parametrize("verb", ALL_VERBS, ids=" ".join)
def test_a_wrong_option_exits_with_2(command: Command, verb: Words) -> None:
    result = command(*verb, "--no-such-option")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("verb", EXPORTING, ids=" ".join)
def test_a_file_that_cannot_be_written_is_refused_before_measuring(call: Any, tmp_path: Path, verb: Words) -> None:
    for option in sorted(EXPORTING[verb]):
        result = call(verb, option, str(tmp_path / "none" / "it"))
        assert (result.returncode, result.stdout) == (2, "")
        assert "none/it' cannot be written" in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", [verb for verb, options in EXPORTING.items() if len(options) > 1], ids=" ".join)
def test_two_exports_to_stdout_or_to_one_file_are_refused(call: Any, verb: Words) -> None:
    first, *others = *sorted(EXPORTING[verb]), *({"--report"} & options_of(verb))
    for target, other in (("-", others[0]), ("it", others[0]), ("it", others[-1])):
        result = call(verb, first, target, other, target)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1


READING: list[Words] = [
    ("show", "FILE"),
    ("report", "FILE"),
    ("report", "RUN", "FILE"),
    ("compare", "RUN", "FILE"),
    ("doctor", "FILE"),
    ("metrics", "FILE"),
    ("watch", "--ceilings", "FILE", "script.py"),
    ("baseline", "import", "FILE"),
    ("fleet", "show", "FILE"),
    ("plan", "--run", "FILE", "--block-bytes", "16KiB", "--blocks", "100", "--compute", "1ms"),
    ("plan", "--config", "FILE", "--tokens", "16", "--compute", "1ms"),
]


@pytest.mark.usefixtures("call")
@pytest.mark.parametrize("content", ["missing", "a folder", "no JSON", "no document"])
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_document_that_cannot_be_read_exits_with_2(
    command: Command, tmp_path: Path, words: Words, content: str
) -> None:
    file = tmp_path / "FILE"
    if content == "a folder":
        file.mkdir()
    elif content != "missing":
        file.write_text("{}" if content == "no document" else "[")
    result = command(*words)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "'FILE'" in result.stderr


OVER_HOST = ("--device", "host")
SMALL = (*OVER_HOST, "--size", "4KiB", "--budget", "0.1s")
# How the verbs that measure are called with little to measure.
SHORT: dict[Words, Words] = {
    **dict.fromkeys(((), ("ceiling",), ("frameworks",), ("explain",)), SMALL),
    ("files",): (*OVER_HOST, "--state", "warm", "--budget", "0.1s"),
    ("blocks",): (*SMALL, "--count", "4"),
    ("links",): (*OVER_HOST, "--size", "64KiB", "--budget", "0.1s", "--group", "host", "--engine", "ce"),
    ("tune",): (*OVER_HOST, "--budget", "1us"),
    ("fleet", "host"): (*OVER_HOST, "--budget", "5s"),
    ("fleet", "run"): ("--folder", "."),
}
LONG: list[Words] = [("frameworks",), ("files",), ("links",), ("tune",), ("fleet", "host")]


@pytest.mark.parametrize(
    "verb",
    # A watched script has its own exit code, and a check measures for seconds.
    [slow(verb) if verb in LONG else verb for verb in EXPORTING if verb not in [("watch",), ("baseline", "check")]],
    ids=" ".join,
)
def test_a_result_that_cannot_be_written_exits_with_4(call: Any, verb: Words) -> None:
    options = EXPORTING[verb] - {"--export-drain"}  # without a slow host it is empty
    for option in sorted(options)[: 1 if verb in SHORT else None]:
        result = call(verb, option, "/dev/full", *SHORT.get(verb, ()))
        assert result.returncode == 4
        assert "'/dev/full' cannot be written" in result.stderr


@pytest.mark.usefixtures("call")
@pytest.mark.parametrize(
    "words", ["report RUN --chart sizes -o {}.svg", "baseline export default --host node-7 {}.json"]
)
def test_a_file_that_becomes_too_large_exits_with_4_and_the_old_one_stays(tmp_path: Path, words: str) -> None:
    name = f"it{words.partition('{}')[2]}"
    (tmp_path / name).write_text("old")
    # Python would cut off the bytecode that it writes.
    variables = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    result = shell(f"ulimit -f 1; pyxfer {words.format('it')}", **variables)
    assert (result.returncode, result.stderr.count("\n")) == (4, 1)
    assert (tmp_path / name).read_text() == "old"


REPORTING = [(*verb, "--report") for verb in ALL_VERBS if "--report" in options_of(verb)]


@pytest.mark.parametrize("words", [*REPORTING, ("report", "RUN", "-o")], ids=" ".join)
def test_a_report_without_what_draws_it_exits_with_2(call: Any, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = call(words[:-1], words[-1], "it.html")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "vl-convert-python" in result.stderr


STORING: list[Words] = [
    ("history",),
    ("metrics",),
    ("compare", "r-12345678", "r-12345679"),
    ("baseline", "list"),
    ("baseline", "show"),
    ("baseline", "remove", "default"),
    ("baseline", "export", "default", "it.json"),
    ("baseline", "import", "BASELINE"),
    ("baseline", "save", "--device", "host"),
    ("baseline", "check", "--device", "host"),
    ("fleet", "host", "--save"),
    ("fleet", "run", "--since", "2h"),
    ("plan", "--block-bytes", "16KiB", "--blocks", "100", "--compute", "1ms"),
]


@pytest.mark.usefixtures("call")
@pytest.mark.parametrize("words", STORING, ids=" ".join)
def test_a_store_without_sqlalchemy_exits_with_2(command: Command, words: Words, without_sqlalchemy: None) -> None:
    result = command(*words)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "pip install sqlalchemy" in result.stderr


@pytest.mark.usefixtures("without_sqlalchemy")
def test_what_needs_no_store_needs_no_sqlalchemy(call: Any) -> None:
    for verb in (("ceiling",), ("list",)):
        assert call(verb, *SHORT.get(verb, ())).returncode == 0
    with pytest.raises(StoreError, match="pip install sqlalchemy"):
        _ = pyxfer.open_store


def test_files_are_compared_without_sqlalchemy(call: Any, tmp_path: Path) -> None:
    (tmp_path / "sqlalchemy.py").write_text("raise ModuleNotFoundError(name='sqlalchemy')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    result = in_a_process("compare", "RUN", "RUN", PYTHONPATH=path)
    assert (result.returncode, result.stderr) == (0, "")


SAVING: list[Words] = [
    ("info",),
    ("list",),
    ("doctor",),
    ("compare",),
    ("history",),
    ("plan",),
    ("baseline", "list"),
    ("baseline", "show"),
]


@pytest.mark.parametrize("verb", SAVING, ids=" ".join)
def test_json_is_saved_beside_the_page_or_printed_instead_of_it(call: Any, tmp_path: Path, verb: Words) -> None:
    result = call(verb, "--export-json", str(tmp_path / "out.json"))
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert not result.stdout.startswith("{")
    printed = json.loads(call(verb, "--export-json", "-").stdout)
    assert printed.keys() == json.loads((tmp_path / "out.json").read_bytes()).keys()


REQUIRING = [verb for verb in ALL_VERBS if verb and "--require-gpu" in options_of(verb)]


@pytest.mark.usefixtures("call", "no_gpu")
@pytest.mark.parametrize("verb", REQUIRING, ids=" ".join)
def test_a_required_but_missing_gpu_exits_with_3(command: Command, verb: Words) -> None:
    arguments = () if verb == ("doctor",) else CALLS.get(verb, ())  # a saved run needs no GPU
    result = command(*verb, *arguments, "--require-gpu")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.count("\n") == 1


# A link so slow that a run is still under way when Ctrl-C comes; large copies would take minutes.
SLOW = "devices=2;link-of=0:3e7:2e-3:3e7:2e-3;link-of=1:3e7:2e-3:3e7:2e-3"


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        slow((), "measuring"),
        (
            ("ceiling", "--device", "host", "--size", "64KiB", "--memory", "pinned", "--precision", "0.0001%"),
            "measuring",
        ),
        (("frameworks", "torch", "jax", "--device", "host", "--size", "64KiB"), "PyTorch: starting"),
        (("links", "--group", "host", "--size", "64KiB", "--engine", "ce"), "measuring"),
        (("doctor",), "preparing"),
        (("fleet", "host", "--device", "host"), "preparing"),
    ],
)
def test_ctrl_c_saves_what_was_measured_and_exits_with_130(tmp_path: Path, words: Words, moment: str) -> None:
    path = tmp_path / "it.json"
    options = ("--budget", "60s", "--export-json", str(path))
    link = SLOW if "64KiB" in words else ""
    result = interrupt_when(moment, *words, *options, PYXFER_HOSTRT=link, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    assert result.stdout
    document: Any = codec.load_any(path, [kind.struct for kind in codec.KINDS])
    assert (document.run if isinstance(document, Examination) else document).ended == "interrupted"


@pytest.mark.skipif(sys.version_info < codec.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10")
@pytest.mark.parametrize("kind", codec.KINDS, ids=lambda kind: kind.name)
def test_the_schema_of_each_kind_is_printed(command: Command, kind: Any) -> None:
    result = command("schema", kind.name)
    assert (result.returncode, json.loads(result.stdout)["title"]) == (0, f"pyxfer {kind.title}")


HOST = ("--device", "host", "--size", "4KiB,64KiB", "--budget", "0.2s")
LINKS = ("links", "--size", "64KiB", "--budget", "0.2s", "--group")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        slow((), 0),
        (("ceiling", *HOST), 0),
        slow(("ceiling", *HOST, "--mode", "auto,streams:2,batch,staged", "--fresh"), 0),
        slow(("frameworks", *HOST), 4),
        (("explain", "raw.pageable-memcpy", "--device", "host", "--size", "64KiB", "--budget", "0.2s"), 0),
        slow((*LINKS, "pairs,local", "--engine", "ce"), 0),
        slow(("links", "--device", "host", "--budget", "0.2s", "--group", "latency"), 0),
        (("links", "--device", "host", "--budget", "0.2s", "--group", "small"), 0),
        slow(("doctor", "--device", "host"), 0),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
@pytest.mark.usefixtures("engine", "no_gpu")
def test_a_document_that_was_measured_is_read_again(
    command: Command, tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    testing.set_device_count(2)
    for device in (0, 1):
        testing.model_link_of(device, 1e9, 1e-6, 1e9, 1e-6)
    path = tmp_path / "it.json"
    own = HOST if not words else ()
    written = command(*words, *own, "--export-json", str(path))
    assert written.returncode == code, written.stderr
    shown = command("show", str(path))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == written.stdout or not words  # the bare command prints a card


# --- --quiet: neither progress nor a page ----------------------------------------------------------------------------


PROCESS = (*OVER_HOST, "--size", "64KiB", "--budget", "0.1s", "--processes", "3")
# How verbs are called that are not called as above.
QUIETLY: dict[Words, Words] = {
    ("frameworks",): ("cupy", *SMALL),
    ("doctor",): (*OVER_HOST, "--budget", "0.1s"),
    ("baseline", "check"): (*OVER_HOST, "--retries", "0", "--tolerance", "99%"),
    ("fleet", "run"): ("--via", "ssh", "--hosts", "node-1", "--no-confirm", "--output-folder", "out"),
}
QUIET = [verb for verb in ALL_VERBS if "--quiet" in options_of(verb) and verb != ("baseline", "save")]


@pytest.fixture
def node(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that ssh reaches, and a cache of the test's own."""
    hosts = make_stand_ins(tmp_path / "bin", {"node-1": {"script": f"cat {tmp_path / 'HOST'}"}})
    for name, value in {**hosts.environment, "PYXFER_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("verb", QUIET, ids=" ".join)
def test_neither_progress_nor_a_page_is_printed(verb: Words, command: Command, tmp_path: Path) -> None:
    run = in_a_process if verb == ("watch",) else command  # a script writes to the streams of its process
    if verb == ("baseline", "check"):
        saved = command("baseline", "save", "-q", *PROCESS)
        assert (saved.returncode, saved.stdout, saved.stderr) == (0, "", "")
    words = QUIETLY.get(verb) or (*SHORT.get(verb, ()), *CALLS.get(verb, ()))
    ended = run(*verb, "-q", "--export-json", "it.json", *words)
    assert ended.stdout == ("its own\n" if verb == ("watch",) else "")
    # A busy machine, or one without frameworks, gives a reason to end with 4, which is the only line then.
    assert (ended.returncode, ended.stderr.count("\n")) in ((0, 0), (4, 1))
    assert json.loads((tmp_path / "it.json").read_bytes())


def test_with_quiet_an_export_to_stdout_the_exit_code_and_its_reason_remain(call: Any, command: Command) -> None:
    ended = call(("compare",), "--quiet", "--export-json", "-")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["cells"]
    run_at(1).save("before.json")
    run_at(2, slower=2.0).save("now.json")
    ended = command("compare", "before.json", "now.json", "--quiet", "--fail-on", "slower:5%")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
