"""Sessions of pytest beside other plugins, their options, ends before the time, and the summary."""

from __future__ import annotations

import json
import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import TIMEOUT_S
from marks import slow
from msgspec import structs
from xfer_samples import row_of

import pyxfer
from pyxfer._document import codec
from pyxfer._document.machines import Remark
from pyxfer._document.sessions import Judged, runs_of
from pyxfer._report.session import notes, table_lines

LINK = "link=2e9:20e-6:1e9:20e-6"
MEASURED = """
    import pytest

    @pytest.mark.parametrize("number", range(2))
    def test_copy(xfer, copying, number):
        with copying(1 << 20) as copy:
            xfer(copy, nbytes=1 << 20)
"""
HERE = ("--xfer-device=host", "--xfer-budget=50ms", "--xfer-json=out.json")
NO_XDIST, NO_BENCHMARK = ("-p", "no:xdist"), ("-p", "no:benchmark")
SOURCES = Path(pyxfer.__file__).parents[1]
HEAVY = {
    "numpy",
    "msgspec",
    "sqlalchemy",
    "rich",
    "typer",
    "pynvml",
    "torch",
    "pyxfer.native._cuda",
    "pyxfer._document.runs",
}


@pytest.fixture(autouse=True)
def modelled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For processes of their own."""
    monkeypatch.setenv("PYXFER_HOSTRT", LINK)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.slow
def test_xdist_workers_measure_one_at_a_time(suite: Any) -> None:
    suite.write(MEASURED)
    result = suite.apart("-n", "2", "--dist", "load", *HERE)
    result.assert_outcomes(passed=2)
    result.stdout.re_match_lines([r"test_copy.1. +h2d +1 MiB"])
    assert result.stdout.str().count("of ceiling") == 1
    session = suite.session()
    assert {test.test for test in session.tests} == {f"test_it.py::test_copy[{number}]" for number in range(2)}
    assert len(session.places) == 1
    assert not any(remark.code == "contended" for test in session.tests for remark in test.measurement.remarks)


@pytest.mark.parametrize("without", [slow(()), (*NO_XDIST, *NO_BENCHMARK)])
def test_it_works_with_and_without_other_plugins(suite: Any, without: tuple[str, ...]) -> None:
    pytest.importorskip("pytest_benchmark")
    suite.write(
        MEASURED
        + ("" if "no:benchmark" in without else "\n    def test_bench(benchmark): assert benchmark(lambda: 5) == 5\n")
    )
    result = suite.apart(*without, *HERE, "--strict-markers")
    result.assert_outcomes(passed=2 if "no:benchmark" in without else 3)
    result.stdout.re_match_lines([r"-+ pyxfer: host memory, not a PCIe link -+", r"test_copy.1. +h2d +1 MiB"])


def test_a_session_stopped_by_a_failure_is_saved(suite: Any) -> None:
    suite.write(MEASURED + "        assert number < 1\n")
    result = suite.run("-x", "--xfer-json=out.json", budget="50ms")
    result.assert_outcomes(passed=1, failed=1)
    session = suite.session()
    assert [test.outcome for test in session.tests] == ["passed", "failed"]
    assert session.ended == "interrupted"


def test_ctrl_c_saves_the_session(suite: Any) -> None:
    suite.write("""
        import pytest

        @pytest.mark.xfer(precision="90%")
        def test_first(xfer, copying):
            with copying(1 << 20) as copy:
                xfer(copy, nbytes=1 << 20)

        def test_second(xfer):
            calls = []
            def call():
                calls.append(1)
                if len(calls) == 10:
                    print("MEASURING", flush=True)
            xfer(call, nbytes=1 << 20)
    """)
    process = suite.start("-s", *HERE, "--xfer-budget=50s")
    assert process.stdout is not None
    seen = ""
    while "MEASURING" not in seen:
        line = process.stdout.readline()
        assert line, f"it ended before: {seen}"
        seen += line
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2, seen + rest
    session = suite.session()
    assert [test.test for test in session.tests] == ["test_it.py::test_first"]
    assert session.ended == "interrupted"
    assert "test_first  h2d  1 MiB" in rest
    assert "KeyboardInterrupt" in rest


def test_a_run_without_the_fixture_imports_nothing_heavy(suite: Any) -> None:
    suite.write(f"""
        import sys
        def test_light():
            assert not set(sys.modules) & {HEAVY!r}
    """)
    suite.pytester.makeconftest("")
    result = suite.apart("-p", "no:hypothesispytest", "-p", "no:benchmark", "-p", "no:xdist")
    result.assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_by_its_entry_point(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = suite.path / "site" / "pyxfer_beside-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pyxfer-beside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\npyxfer = pyxfer.pytest_plugin\n")
    (metadata / "RECORD").write_text("")
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(SOURCES), str(metadata.parent))))
    monkeypatch.setenv("PYTHONPATH", path)
    suite.write("def test_it(xfer): assert xfer(lambda: 5, nbytes=1) == 5")
    result = suite.pytester.runpytest_subprocess("--xfer-disable", "-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


LONG = "tests/test_copies.py::TestEverything::test_that_has_a_very_long_name_indeed[float32-channels_last-"


def texts(*tests: object, words: dict[str, str] | None = None, width: int = 80) -> list[str]:
    return [line for line, _ in table_lines(tests, words or {}, width)]  # type: ignore[arg-type]


def test_names_omit_a_common_file() -> None:
    slow = row_of("tests/test_a.py::test_b", 0.5, judged=Judged("too slow"), nbytes=1536)
    assert texts(row_of(), slow) == [
        "test       dir      size   GB/s   +-  of ceiling  marker",
        "test_copy  h2d     1 MiB   2.00  1 %     100.0 %  fine",
        "test_b     h2d  1.536 KB  0.500  1 %      25.0 %  too slow",
    ]


def test_names_of_several_files_have_the_file() -> None:
    rows = texts(row_of("tests/a/test_a.py::test_copy"), row_of("tests/b/test_b.py::test_copy"))
    assert [row.split()[0] for row in rows[1:]] == ["test_a.py::test_copy", "test_b.py::test_copy"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_long_names_are_shortened_in_the_middle(width: int) -> None:
    tests = [row_of(f"{LONG}{size}]", judged=Judged("unsure")) for size in ("1MiB", "256MiB")]
    rows = texts(*tests, words={test.test: "12.5 % slower" for test in tests}, width=width)
    assert all(len(row) <= max(width, 80) for row in rows)
    names = [row.split()[0] for row in rows[1:]]
    assert all(name.startswith("TestE") and "..." in name and name.endswith("MiB]") for name in names)
    assert len(set(names)) == len(names)


def test_names_are_printable() -> None:
    (row,) = texts(row_of("test_a.py::test_\x1b[31mred\x1b[0m\u202e\n"))[1:]
    assert row.startswith("test_red ")
    assert row.isprintable()


def test_equal_remarks_share_one_note() -> None:
    texts_below = notes([row_of("a.py::test_1", None, remarks=()), row_of("a.py::test_2"), row_of("a.py::test_3")])
    assert texts_below == ["test_1: no bandwidth: the bandwidth cannot be", "test_2, test_3: the time drifted"]
    assert texts(row_of("a.py::test_1", None, judged=Judged()))[1].split()[-3:] == ["-", "-", "-"]


def test_the_verdicts_of_marker_and_comparison_have_a_column_each() -> None:
    heading, row = texts(row_of(), words={row_of().test: "unsure"})
    assert heading.split()[-2:] == ["marker", "compared"]
    assert row.split()[-2:] == ["fine", "unsure"]


def test_a_precision_beyond_the_figure_itself_is_not_counted_out() -> None:
    test = row_of()
    summary = test.measurement.summary
    assert summary is not None
    wide = structs.replace(summary, low_s=0.0, high_s=99 * summary.median_s)
    _, row = texts(structs.replace(test, measurement=structs.replace(test.measurement, summary=wide)))
    assert "> 100 %" in row


def test_missed_precision_is_one_note() -> None:
    unstable = (Remark("unstable", "the median is known within 2 %, not 0.5 %", "--xfer-budget=4s"),)
    tests = [row_of(f"a.py::test_{number}", remarks=unstable) for number in range(4)]
    (note,) = notes(tests)
    assert note.startswith("test_0, test_1 and 2 more: precision (+-) not reached")


USAGE, FAILED = 4, 1
COPY = """
    def test_copy(xfer, copying):
        with copying(1 << 20) as copy:
            xfer(copy, nbytes=1 << 20)
"""
XDIST = find_spec("xdist") is not None
NOTHING = "def test_nothing(xfer): xfer(lambda: None, nbytes=4096)"


def unfolded(result: pytest.RunResult) -> str:
    """The whole output as one line."""
    return " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--xfer-compare-fail=5%"], "--xfer-compare-fail has nothing to compare with: *"),
        (["--xfer-compare-fail=fast"], "--xfer-compare-fail 'fast' is not a share: *"),
        (["--xfer-compare=main.json"], "--xfer-compare: *main.json*"),
        (["--xfer-json=no/such/out.json"], "--xfer-json: *cannot be written (No such file*make the folder first*"),
        (["--xfer-json="], "--xfer-json is empty: *"),
        (["--xfer-budget=soon"], "--xfer-budget 'soon' is not a duration*"),
        (["--xfer-budget=2day"], "--xfer-budget *"),
        (["--xfer-device="], "--xfer-device '' is not a device: *"),
        (["--xfer-device=ABC"], "--xfer-device 'ABC' is not a device: give an index, *"),
        (["--xfer-device=hots"], "--xfer-device 'hots' is not a device: *"),
        (["--xfer-device=-1"], "--xfer-device '-1' is not a device: *"),
        (["--xfer-require-gpu", "--xfer-device=host"], "--xfer-require-gpu and --xfer-device=host exclude each other*"),
        (["--xfer-disable", "--xfer-json=a.json"], "--xfer-disable measures nothing*"),
    ],
)
def test_invalid_options_are_refused_before_any_test(suite: Any, arguments: list[str], message: str) -> None:
    suite.write("def test_never(): assert False")
    result = suite.bare(*arguments)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_without_a_gpu_tests_are_skipped_with_cudas_reason(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.write(NOTHING + "\n" + NOTHING.replace("_nothing", "_more"))
    result = suite.apart("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED * xfer: no usable GPU: cudaError* (*). * --xfer-device=host."])
    said = unfolded(suite.apart("-q", "-n", "2") if XDIST else suite.apart("-q"))
    assert said.count("--xfer-device=host") == 1
    assert "pyxfer: 2 tests skipped: no usable GPU: cudaError" in said


def test_without_a_required_gpu_tests_fail(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.write(NOTHING)
    result = suite.apart("--xfer-require-gpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["--xfer-require-gpu: no usable GPU: cudaError*"])


def test_written_files_can_be_read(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-json=out.json").stdout.fnmatch_lines(["pyxfer: written: out.json"])
    session = suite.session()
    assert (session.ended, session.pytest) == ("complete", pytest.__version__)
    (place,) = session.places
    assert place.environment.host
    assert place.runtime == "host"
    found = suite.only()
    assert (found.test, found.outcome, found.measurement.nbytes) == (
        "test_it.py::test_copy",
        "passed",
        1 << 20,
    )
    assert found.measurement.trials
    (run,) = runs_of(session)
    assert run.measurements == (found.measurement,)


def test_a_failed_write_fails_the_session(suite: Any, link: Any) -> None:
    suite.write("""
        import os
        def test_copy(xfer):
            xfer(lambda: None, nbytes=4096)
            os.rmdir("results")
    """)
    (suite.path / "results").mkdir()
    result = suite.run("--xfer-json=results/out.json")
    result.assert_outcomes(passed=1)
    assert result.ret == FAILED
    assert "results/out.json' cannot be written (No such file or directory)" in unfolded(result)


def save_sessions(suite: Any, budget: str) -> list[str]:
    """Three sessions, and the options that compare with them."""
    for name in "abc":
        suite.run(f"--xfer-json={name}.json", budget=budget)
    return [f"--xfer-compare={name}.json" for name in "abc"]


@pytest.mark.slow
def test_a_slower_link_fails_only_with_a_limit(suite: Any, link: Any) -> None:
    suite.write(COPY)
    limit = "--xfer-compare-fail=10%"
    saved = save_sessions(suite, "1s")
    link(0.7)
    assert suite.run(saved[0], limit, budget="400ms").ret == 0, "one session does not show the spread"
    link(0.05)  # beside other programs the sessions above differ by up to a factor of two
    compared = suite.run(*saved, budget="4s")
    assert compared.ret == 0
    compared.stdout.re_match_lines([r"test_copy .* [0-9.]+ % slower", "Compared with a, b, c."])
    result = suite.run(*saved, limit, budget="4s")
    assert result.ret == FAILED
    result.assert_outcomes(passed=1)
    assert re.search(r"pyxfer: test_it.py::test_copy: at least [0-9.]+ % slower; .* allows 10.0 %", unfolded(result))


@pytest.mark.slow
def test_new_and_missing_tests_do_not_fail(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-json=main.json")
    suite.write(COPY + COPY.replace("test_copy", "test_more") + COPY.replace("test_copy", "test_gone"))
    result = suite.run("--xfer-compare=main.json", "--xfer-compare-fail=99%", "-k", "not gone")
    assert result.ret == 0
    result.stdout.re_match_lines([r"test_more .* new"])
    result = suite.run("--xfer-compare=main.json", "--xfer-compare-fail=99%", "-k", "more")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["No test of this session is in main*"])
    suite.write(COPY.replace("1 << 20", "1 << 19"))
    suite.run("--xfer-compare=main.json").stdout.re_match_lines(
        [r"test_copy .* other bytes", "No test of this session is in main.*"]
    )


@pytest.mark.slow
def test_host_memory_and_a_link_are_not_compared(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-json=gpu.json")
    path = suite.path / "gpu.json"
    document = json.loads(path.read_text())
    document["places"][0]["runtime"] = document["places"][0]["device"]["runtime"] = "cuda"
    document["places"][0]["device"]["name"] = "NVIDIA H200\x1b[31m"
    path.write_bytes(codec.seal(json.dumps(document).encode()))
    result = suite.run("--xfer-compare=gpu.json")
    assert result.ret == 0
    assert "the two cannot be compared" in unfolded(result)
    assert "\x1b" not in result.stdout.str()
    assert suite.run("--xfer-compare=gpu.json", "--xfer-compare-fail=50%").ret == FAILED


def test_a_file_that_is_not_a_session_is_refused_before_any_test(suite: Any) -> None:
    suite.write("def test_never(): assert False")
    Path(suite.path / "saved.json").write_text('{"schema_version": 1, "kind": "ceiling"}')
    result = suite.bare("--xfer-compare=saved.json")
    assert result.ret == USAGE
    result.stderr.fnmatch_lines(
        ["ERROR: --xfer-compare: '*saved.json' is a run, not a session of pytest: *--xfer-json wrote*"]
    )
