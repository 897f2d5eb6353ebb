from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyxfer._document.sessions import runs_of
from pyxfer._pytest.settings import Limit, parse_limit
from pyxfer.errors import UsageError

USAGE, FAILED = 4, 1
COPY = """
    def test_copy(xfer, copying):
        with copying(1 << 20) as copy:
            xfer(copy, nbytes=1 << 20)
"""
NOTHING = "def test_nothing(xfer): xfer(lambda: None, nbytes=4096)"


def unfolded(result: pytest.RunResult) -> str:
    """All that was printed as one line."""
    return " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("median:5%", Limit("median:5%", "median", share=0.05)),
        (" median : 2ms ", Limit(" median : 2ms ", "median", seconds=0.002)),
        ("of_ceiling:0.5%", Limit("of_ceiling:0.5%", "of_ceiling", share=0.005)),
    ],
)
def test_a_limit_is_a_share_or_a_time(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    "text", ["", "5%", "mean:5%", "median", "median:", "median:0.05", "of_ceiling:2ms", "median:0%"]
)
def test_what_is_no_limit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"write |for example"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--xfer-compare-fail=median:5%"], "--xfer-compare-fail needs --xfer-compare, which*"),
        (["--xfer-compare", "--xfer-compare-fail=fast"], "--xfer-compare: nothing is saved in *"),
        (
            ["--xfer-compare=main"],
            "--xfer-compare: there is no file '*.pyxfer/main.json': save one with --xfer-save=main*",
        ),
        (["--xfer-compare", "test_it.py"], "*'test_it.py' was taken for a name, so write --xfer-compare= before it"),
        (["--xfer-save=a b"], "--xfer-save: 'a b' is no name of letters*"),
        (["--xfer-save=no/such"], "--xfer-save: *cannot be written*"),
        (["--xfer-json=no/such/out.json"], "--xfer-json: *cannot be written (No such file*make the folder first*"),
        (["--xfer-json="], "--xfer-json: no file is named*"),
        (["--xfer-budget=soon"], "--xfer-budget: 'soon' is not a duration*"),
        (["--xfer-budget=2day"], "--xfer-budget: *"),
        (["--xfer-device="], "--xfer-device: no device is named*"),
        (["--xfer-device=ABC"], "--xfer-device: 'ABC' is no index, UUID or PCI address of a GPU, nor 'host'"),
        (["--xfer-device=Host"], "--xfer-device: 'Host' is no index, *"),
        (["--xfer-device=-1"], "--xfer-device: '-1' is no index, *"),
        (["--xfer-require-gpu", "--xfer-device=host"], "--xfer-require-gpu and --xfer-device=host exclude each other*"),
        (["--xfer-disable", "--xfer-json=a.json"], "with --xfer-disable nothing is measured*"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_runs(suite: Any, arguments: list[str], said: str) -> None:
    suite.write("def test_never(): assert False")
    result = suite.bare(*arguments)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


def test_no_gpu_skips_with_the_reason_of_cuda(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.write(NOTHING)
    result = suite.apart("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["pyxfer: no usable GPU (--xfer-device=host *): *"])
    result.stdout.fnmatch_lines(["SKIPPED * xfer: no usable GPU: cudaError* (*). *"])


def test_no_gpu_fails_where_one_is_required(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.write(NOTHING)
    result = suite.apart("--xfer-require-gpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["--xfer-require-gpu: no usable GPU: cudaError*"])


def test_a_device_that_is_none_is_an_error_of_the_test(suite: Any, link: Any) -> None:
    suite.write(NOTHING.replace("def", "import pytest\n@pytest.mark.xfer(device='host')\ndef"))
    result = suite.bare("--xfer-device=host", "--xfer-budget=50ms")
    result.assert_outcomes(passed=1)


def test_what_is_written_can_be_read_and_holds_the_environment(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-json=out.json", "--xfer-save=main").stdout.fnmatch_lines(
        ["pyxfer: written: out.json", "pyxfer: written: .pyxfer/main.json"]
    )
    session = suite.session()
    assert session == suite.session(".pyxfer/main.json")
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


def test_nothing_measured_is_nothing_written(suite: Any) -> None:
    suite.write("def test_other(): pass")
    result = suite.run("--xfer-json=out.json", "--xfer-save=main")
    result.stdout.fnmatch_lines(["pyxfer: nothing was measured, so out.json and .pyxfer/main.json were not written"])
    assert result.ret == 0
    assert not (suite.path / "out.json").exists()


def test_what_cannot_be_written_any_more_fails_and_is_said(suite: Any, link: Any) -> None:
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
        suite.run(f"--xfer-save={name}", budget=budget)
    return [f"--xfer-compare={name}" for name in "abc"]


def test_a_slower_link_is_told_and_fails_where_that_was_asked(suite: Any, link: Any) -> None:
    suite.write(COPY)
    limits = ("--xfer-compare-fail=median:10%", "--xfer-compare-fail=median:50us")
    saved = save_sessions(suite, "400ms")
    link(0.2)
    told = suite.run(*saved, budget="800ms")
    assert told.ret == 0
    told.stdout.re_match_lines([r"test_copy .* [0-9.]+ % slower", "Compared with a, b, c."])
    assert suite.run(saved[0], *limits, budget="400ms").ret == 0, "one session does not show the spread"
    result = suite.run(*saved, *limits, budget="800ms")
    assert result.ret == FAILED
    result.assert_outcomes(passed=1)
    assert "median:50us: at least" in unfolded(result)
    assert re.search(r"pyxfer: test_it.py::test_copy: median:10%: at least [0-9.]+ % slower", unfolded(result))


def test_the_share_of_the_ceiling_tells_a_slower_function_from_a_slower_link(suite: Any, link: Any) -> None:
    limit = "--xfer-compare-fail=of_ceiling:25%"
    suite.write(COPY)
    saved = save_sessions(suite, "500ms")
    link(0.5)
    slower_link = suite.run(*saved, limit, budget="500ms")
    assert slower_link.ret == 0
    suite.write(COPY.replace("1 << 20) as", "1 << 20, times=4) as"))
    slower_function = suite.run(*saved, limit, budget="1s")
    assert slower_function.ret == FAILED
    assert re.search(
        r"test_copy: of_ceiling:25%: at least [0-9.]+ % slower by its share of the ceiling", unfolded(slower_function)
    )


def test_the_same_again_does_not_fail(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-save=a", budget="200ms")
    suite.run("--xfer-save=b", budget="200ms")
    result = suite.run("--xfer-compare=a", "--xfer-compare=b", "--xfer-compare-fail=median:60%", budget="200ms")
    result.stdout.fnmatch_lines(["Compared with a, b."])
    assert result.ret == 0


def test_a_session_is_saved_compressed_where_the_name_ends_in_gz(suite: Any) -> None:
    suite.write(NOTHING)
    suite.run("--xfer-save=main.json.gz")
    assert gzip.decompress((suite.path / "main.json.gz").read_bytes()).startswith(b"{")
    assert suite.run("--xfer-compare=main.json.gz").ret == 0


def test_tests_that_came_and_went_are_told_and_fail_nothing(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-save=main")
    suite.write(COPY + COPY.replace("test_copy", "test_more") + COPY.replace("test_copy", "test_gone"))
    result = suite.run("--xfer-compare", "--xfer-compare-fail=median:99%", "-k", "not gone")
    assert result.ret == 0
    result.stdout.re_match_lines([r"test_more .* new"])
    result = suite.run("--xfer-compare", "--xfer-compare-fail=median:99%", "-k", "more")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["There is none of the tests of this session in main*"])
    suite.write(COPY.replace("1 << 20", "1 << 19"))
    suite.run("--xfer-compare").stdout.re_match_lines(
        [r"test_copy .* other bytes", "There is none of the tests of this session in main.*"]
    )


def test_host_memory_against_a_link_is_refused_and_fails_where_a_limit_was_asked(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-save=gpu")
    path = suite.path / ".pyxfer" / "gpu.json"
    document = json.loads(path.read_text())
    document["places"][0]["runtime"] = document["places"][0]["device"]["runtime"] = "cuda"
    document["places"][0]["device"]["name"] = "NVIDIA H200\x1b[31m"
    path.write_text(json.dumps(document))
    result = suite.run("--xfer-compare")
    assert result.ret == 0
    assert "the one says nothing of the other" in unfolded(result)
    assert "\x1b" not in result.stdout.str()
    assert suite.run("--xfer-compare", "--xfer-compare-fail=median:50%").ret == FAILED


def test_figures_that_somebody_made_up_end_nothing(suite: Any, link: Any) -> None:
    suite.write(COPY)
    suite.run("--xfer-save=main")
    path = suite.path / ".pyxfer" / "main.json"
    document = json.loads(path.read_text())
    document["tests"][0]["measurement"]["summary"]["median_s"] = 5e-324
    path.write_text(json.dumps(document))
    result = suite.run("--xfer-compare")
    result.assert_outcomes(passed=1)
    assert result.ret == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{", "is cut short"),
        ("[]", "is JSON, but not a pyxfer pytest session"),
        ('{"schema_version": 99}', "has schema_version 99, *upgrade pyxfer"),
        (
            '{"schema_version": 1, "kind": "ceiling"}',
            "is not a session of pytest; name a file that pytest --xfer-save or --xfer-json wrote",
        ),
        ('{"schema_version": 1, "kind": "pytest"}', "is not a pyxfer pytest session: Object missing required field"),
    ],
)
def test_a_file_that_is_no_session_is_refused_before_anything_runs(suite: Any, text: str, said: str) -> None:
    suite.write("def test_never(): assert False")
    Path(suite.path / "saved.json").write_text(text)
    result = suite.bare("--xfer-compare=saved.json")
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: --xfer-compare: '*saved.json' {said}*"])
