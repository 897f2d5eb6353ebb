"""The options of the plugin: files, comparisons and limits."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pyxfer._document import codec
from pyxfer._document.sessions import runs_of

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
