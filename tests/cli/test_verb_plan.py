"""`pyxfer plan`: from a file or the store, of a model or of blocks as they are."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from blocks_samples import make_blocks_run
from in_process import Command
from samples import make_run

import pyxfer
from pyxfer._baseline.store import open_store
from pyxfer._blocks import calibration
from pyxfer._blocks.choice import thresholds_of
from pyxfer._document.codec import encode
from pyxfer._document.machines import Fact
from pyxfer._document.offloads import PlanSource
from pyxfer._document.runs import Run
from pyxfer._upload.settings import tuning_key
from pyxfer.native import load

SHAPE = ("--block-bytes", "16KiB", "--blocks", "1000", "--compute", "0.4s")


@pytest.fixture(scope="module")
def run() -> Run:
    return make_blocks_run()


@pytest.fixture
def saved(run: Run, tmp_path: Path) -> str:
    run.save(tmp_path / "blocks.json")
    return str(tmp_path / "blocks.json")


def test_a_plan_of_blocks_is_that_of_python(command: Command, run: Run, saved: str) -> None:
    ended = command("plan", *SHAPE, "--run", saved, "--load-only", "--share", "50%", "--export-json", "-")
    assert (ended.returncode, ended.stderr) == (0, "")
    expected = pyxfer.plan_offload("16KiB", 1000, 0.4, run=run, load_only=True, share=0.5)
    assert ended.stdout == encode(expected).decode()


def test_a_plan_of_a_model_is_that_of_its_layout(command: Command, run: Run, saved: str) -> None:
    words = ("--split", "kv", "--tensor-parallel", "2", "--kv-dtype", "fp8", "--block-tokens", "32")
    rate = ("--tokens", "4096", "--prefill", "12000tok/s")
    ended = command("plan", "--model", "llama-8b", *words, *rate, "--run", saved, "--export-json", "-")
    layout = pyxfer.kv_layout("llama-8b", split="kv", tensor_parallel=2, kv_dtype="fp8", block_tokens=32)
    expected = pyxfer.plan_offload(layout=layout, tokens=4096, prefill=12000, run=run)
    assert ended.stdout == encode(expected).decode()


def test_a_plan_of_a_config_reads_it(command: Command, saved: str, tmp_path: Path) -> None:
    heads = {"num_attention_heads": 8, "head_dim": 64, "num_hidden_layers": 4}
    (tmp_path / "config.json").write_text(json.dumps({**heads, "torch_dtype": "float16"}))
    config = ("--config", str(tmp_path / "config.json"))
    ended = command("plan", *config, "--tokens", "1024", "--compute", "1s", "--run", saved, "--export-json", "-")
    assert json.loads(ended.stdout)["block_bytes"] == 16 * 2 * 8 * 64 * 2


def test_the_page_has_the_verdict_and_both_moves(command: Command, saved: str) -> None:
    text = command("plan", *SHAPE, "--run", saved).stdout
    assert "Moving pays: storing and loading 1,000 blocks of 16 KiB" in text
    assert "store (d2h)" in text
    assert "load (h2d)" in text


@pytest.mark.parametrize("words", [("--memory", "pageable", "--order", "runs"), ("--order", "ordered")])
def test_what_the_run_has_not_exits_with_2(command: Command, saved: str, words: tuple[str, ...]) -> None:
    ended = command("plan", *SHAPE[:3], "100000", *SHAPE[4:], "--run", saved, *words)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)


def test_the_lists_of_a_file_are_no_words_of_a_plan(
    command: Command, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pyxfer]\nmemory = "pageable,pinned"\n')
    monkeypatch.chdir(tmp_path)
    assert command("plan", *SHAPE, "--run", saved).returncode == 0


def test_a_saved_plan_is_shown_again(command: Command, saved: str, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    page = command("plan", *SHAPE, "--run", saved, "--export-json", path).stdout
    again = command("show", path)
    assert (again.returncode, again.stdout, again.stderr) == (0, page, "")


# --- what is kept, and the store -------------------------------------------------------------------------------------


def of_this_host(run: Run, name: str, uuid: str = "GPU-1", taken_at: str = "2026-01-01T00:00:00+00:00") -> Run:
    return msgspec.structs.replace(
        run,
        environment=msgspec.structs.replace(run.environment, host=platform.node(), taken_at=taken_at),
        device=msgspec.structs.replace(run.device, name=name, uuid=Fact(uuid)),
    )


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Keep thresholds of a run as if they were of this host, or of another one."""
    monkeypatch.setenv("PYXFER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYXFER_STORE", str(tmp_path / "none.db"))

    def kept(run: Run, name: str, taken_at: str, made_by: str = "run", host: str = "") -> None:
        key = msgspec.structs.replace(tuning_key(load("host"), 0), device=name, host=host or platform.node())
        found = msgspec.structs.replace(thresholds_of(run), device=name, taken_at=taken_at, made_by=made_by)
        calibration.keep(key, found)

    return kept


def test_without_a_run_what_is_kept_of_this_host_is_taken(
    command: Command, run: Run, keep: Callable[..., None]
) -> None:
    keep(run, "calibrated", "2026-01-04T00:00:00+00:00", "calibration")
    page = command("plan", *SHAPE).stdout
    assert page.startswith("calibrated, from the quick calibration of copy_blocks on")
    keep(run, "old", "2026-01-01T00:00:00+00:00")
    keep(run, "new", "2026-01-02T00:00:00+00:00")
    keep(run, "elsewhere", "2026-01-03T00:00:00+00:00", host="another")
    page = command("plan", *SHAPE).stdout
    assert page.startswith("new, from blocks measured on")
    assert page.splitlines()[0].endswith("on 2026-01-02, kept on this host")
    found = pyxfer.plan_offload("16KiB", 1000, 0.4)
    assert found.source == PlanSource("new", platform.node(), "2026-01-02T00:00:00+00:00", "run", "kept")
    assert found.seconds == pyxfer.plan_offload("16KiB", 1000, 0.4, run=run).seconds


def test_a_stored_run_is_better_than_a_calibration(
    command: Command, run: Run, keep: Callable[..., None], tmp_path: Path
) -> None:
    keep(run, "calibrated", "2026-01-04T00:00:00+00:00", "calibration")
    with open_store(str(tmp_path / "none.db")) as opened:
        opened.add_run(of_this_host(run, "stored"))
    assert command("plan", *SHAPE).stdout.splitlines()[0].endswith("2026-01-01, from the store")


@pytest.mark.usefixtures("keep")
def test_where_nothing_was_measured_it_says_so(command: Command) -> None:
    ended = command("plan", *SHAPE)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "run pyxfer blocks, which keeps its times" in ended.stderr


def test_the_newest_blocks_of_this_host_are_those_of_the_store(command: Command, run: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    with open_store(store) as opened:
        opened.add_run(of_this_host(run, "old"))
        opened.add_run(of_this_host(run, "new", "GPU-2", "2026-01-02T00:00:00+00:00"))
        opened.add_run(of_this_host(make_run(), "raw", "GPU-2", "2026-01-03T00:00:00+00:00"))
        opened.add_run(run)  # of another host
    ended = command("plan", *SHAPE, "--store", store, "--export-json", "-")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["source"]["device"] == "new"


def test_a_store_without_blocks_says_how_to_measure_them(command: Command, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    with open_store(store) as opened:
        opened.add_run(of_this_host(make_run(), "raw"))
    ended = command("plan", *SHAPE, "--store", store)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "pyxfer blocks --export-json" in ended.stderr
