"""`pyxfer files` without a GPU: limits and loaders, warm and cold, and loaders that fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files_samples import make_files_run, make_load, make_loads
from loaders.own_loaders import right
from marks import slow
from msgspec.structs import replace
from safetensors.numpy import save_file

import pyxfer
from pyxfer._ceiling.derived import derive_run
from pyxfer._cli.failures import why_invalid
from pyxfer._document import codec
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Measurement, Run, limit_of, limits_beside
from pyxfer._loaders import page_cache
from pyxfer._loaders.loaders import select_loaders
from pyxfer._loaders.reads import PIECE_BYTES, Reads
from pyxfer._python import python_command
from pyxfer._report.files import answer, verdict_of, verdict_text
from pyxfer.errors import ArrayFileError, DocumentError, MeasurementError, UsageError

OWN = Path(__file__).with_name("own_loaders.py")
ARRAYS = {f"layer.{number}": np.arange(number, number + 70_000, dtype=np.float32) for number in range(4)}


def saved_in(folder: Path) -> str:
    path = str(folder / "model.safetensors")
    save_file(ARRAYS, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> str:
    return saved_in(tmp_path)


def run_files(path: str, loader: Sequence[str] = (), **options: Any) -> Run:
    given = {"to": "numpy", "device": "host", "state": "warm", "budget": 0.1, "seed": 1, **options}
    return pyxfer.files(path, loader=loader, **given)


def own(name: str) -> str:
    return f"{OWN}:{name}"


def row_of(run: Run, route: str, variant: str = "warm") -> Measurement:
    return next(row for row in run if (row.route, row.variant) == (route, variant))


def test_a_run_has_the_limits_and_a_row_for_each_loader(model: str) -> None:
    run = run_files(model, [own("right"), own("pairs"), "safetensors.*"])
    assert (run.kind, run.ended, run.runtime) == ("files", "complete", "host")
    assert run.files is not None
    assert (run.files.nbytes, run.files.arrays) == (sum(array.nbytes for array in ARRAYS.values()), len(ARRAYS))
    loads = [row for row in run if row.worker is not None]
    names = {"pyxfer.load-tensors", "own.right", "own.pairs", "safetensors.load-file"}
    assert {row.route for row in loads} == names == {worker.name for worker in run.workers}
    assert all(row.verified.value and row.gbps and row.of_ceiling and row.first_s.value for row in loads)
    assert {row.nbytes for row in loads} == {run.files.nbytes}
    assert all(worker.ended == "complete" and worker.host_peak_bytes.value is not None for worker in run.workers)
    limits = {row.route: row for row in run if row.worker is None}
    assert {"raw.pinned-async", "files.cache-1", "files.slots"} <= limits.keys()
    assert all(row.gbps for row in limits.values())
    assert codec.decode(Run, codec.encode(run)) == run


def test_own_loaders_of_one_name_are_numbered() -> None:
    words = ["a.py:load", "b.py:load", "a.py:load", "c.py:Load", "m:load", "a.py:other"]
    found = {loader.name: loader.call for loader in select_loaders("numpy", words, ["x.npy"])}
    assert list(found)[1:] == ["own.load", "own.load-2", "own.load-3", "own.load-4", "own.other"]
    assert found["own.load-2"] == "b.py:load(paths, device)"
    assert found["own.load"] == "a.py:load(paths, device)"


def test_shares_are_of_the_slower_of_link_and_reads(model: str) -> None:
    run = run_files(model)
    row = row_of(run, "pyxfer.load-tensors")
    limit = limit_of(limits_beside(row, run.measurements))
    assert limit is not None
    least = min(
        max(each.gbps or 0.0 for each in run if each.worker is None and each.is_raw == is_link)
        for is_link in (True, False)
    )
    assert limit.gbps == least


FAILING = ("short", "raising", "killed", "second_killed", "absent", "wrong")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run of all loaders that fail, each in a process of its own."""
    folder = tmp_path_factory.mktemp("failed")
    return run_files(saved_in(folder), [*map(own, FAILING), f"{folder}/none.py:load"], budget=0.5)


@pytest.mark.parametrize(
    ("name", "reason", "ended"),
    [
        ("short", "it did not return the array 'layer.3'", "failed"),
        ("raising", "ValueError: no such tensor", "failed"),
        ("killed", "it was killed (SIGKILL; possibly out of memory)", "crashed"),
        ("second_killed", "it was killed (SIGKILL; possibly out of memory)", "crashed"),
        ("absent", "does not define absent when imported", "unavailable"),
        ("load", "FileNotFoundError", "unavailable"),
    ],
)
def test_a_loader_that_fails_has_a_reason_and_the_others_their_figures(
    failed: Run, name: str, reason: str, ended: str
) -> None:
    row = row_of(failed, f"own.{name}")
    assert row.gbps is None
    assert reason in str(row.rate.reason)
    worker = next(worker for worker in failed.workers if worker.name == row.route)
    assert (worker.ended, reason in str(worker.reason)) == (ended, True)
    assert row_of(failed, "pyxfer.load-tensors").gbps


def test_wrong_contents_have_no_rate(failed: Run) -> None:
    row = row_of(failed, "own.wrong")
    assert (row.verified.value, row.gbps) == (False, None)
    assert row.summary is not None


def test_a_loader_that_hangs_is_ended(model: str) -> None:
    run = run_files(model, [own("stuck")], patience=2.0)
    worker = next(worker for worker in run.workers if worker.name == "own.stuck")
    assert (worker.ended, worker.reason) == ("hung", "it sent nothing for 2.00 s")


def test_cold_files_are_read_past_the_page_cache(model: str) -> None:
    if page_cache.why_not_evicted([model]) is not None:
        pytest.skip("this file system keeps the files in memory")
    run = run_files(model, state="warm,cold")
    cold = row_of(run, "pyxfer.load-tensors", "cold")
    assert cold.gbps
    assert cold.of_ceiling
    assert row_of(run, "files.disk-4", "cold").gbps
    assert cold.first_s.value is None
    rounds = {trial.round for trial in row_of(run, "raw.pinned-async").trials}
    assert rounds & {trial.round for trial in cold.trials}, "the link was measured beside the cold loads too"
    assert codec.decode(Run, codec.encode(run)) == run


def test_files_in_memory_cannot_be_cold(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "filesystem_of", lambda _: Fact("tmpfs"))
    run = run_files(model, state="warm,cold")
    assert row_of(run, "pyxfer.load-tensors", "cold").rate.reason == ("the files are in memory (tmpfs), and on no disk")
    assert row_of(run, "pyxfer.load-tensors").gbps


def test_files_that_another_program_holds_cannot_be_cold(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "evict", lambda _: None)
    run = run_files(model, state="cold")
    assert "still shows 100 % of the files" in str(row_of(run, "pyxfer.load-tensors", "cold").rate.reason)


def test_files_that_the_page_cache_does_not_hold_cannot_be_warm(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "cached_share", lambda _: 0.4)
    assert "holds only 40.0 % of the files" in str(row_of(run_files(model), "pyxfer.load-tensors").rate.reason)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"to": "caffe"}, "Unknown framework 'caffe'"),
        ({"loader": ["nothing.*"]}, "No loader of numpy fits 'nothing.*'"),
        ({"loader": ["a b:"]}, "is not module:function or file.py:function"),
        ({"state": "hot"}, "state 'hot'"),
        ({"budget": 0}, "budget"),
    ],
)
def test_arguments_that_are_refused(model: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        run_files(model, **options)


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.npy"
    np.save(path, np.zeros(0, np.float32))
    with pytest.raises(UsageError, match="no bytes of arrays"):
        run_files(str(path))
    with pytest.raises(ArrayFileError):
        run_files(str(tmp_path / "none.safetensors"))


def test_ctrl_c_leaves_no_process(model: str) -> None:
    code = f"import pyxfer; print(pyxfer.files({model!r}, to='numpy', device='host', loader=[{own('stuck')!r}]).ended)"
    process = subprocess.Popen(python_command(code), stdout=subprocess.PIPE, start_new_session=True)
    try:
        children: list[str] = []
        while len(children) < 2 and process.poll() is None:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        while any(Path(f"/proc/{child}/stat").exists() for child in children):
            time.sleep(0.01)  # one that was still importing ends when it finds its pipe closed
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        assert process.stdout is not None
        process.stdout.close()


# --- reads and the page cache ----------------------------------------------------------------------------------------


def test_reads_read_every_piece_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PIECE_BYTES + 5))
    reads = Reads("r", [str(path)], 2, PIECE_BYTES, direct=False)
    try:
        trials = [reads.trial(number)["ingest"] for number in range(3)]
        assert [trial.round for trial in trials] == [0, 1, 2]
        assert reads.nbytes == PIECE_BYTES
        path.write_bytes(b"short")
        with pytest.raises(MeasurementError, match="shorter"):
            _ = [reads.trial(number) for number in range(3)]
    finally:
        reads.close()


def test_what_the_page_cache_holds_is_counted_by_page(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    page_cache.fill([str(path)])
    assert page_cache.cached_share([str(path)]) == 1.0
    if page_cache.filesystem_of(str(path)).value in ("tmpfs", "ramfs"):
        pytest.skip("this file system keeps the files in memory")
    page_cache.evict([str(path)])
    assert page_cache.cached_share([str(path)]) < page_cache.EVICTED_BELOW


# --- documents and verdicts ------------------------------------------------------------------------------------------


def test_a_share_that_does_not_follow_is_refused() -> None:
    run = make_files_run()
    assert derive_run(run).measurements == run.measurements
    document = json.loads(codec.encode(run))
    row = next(row for row in document["measurements"] if row["route"] == "runai.stream")
    row["ceiling_share"]["value"]["value"] = 0.99
    with pytest.raises(DocumentError, match="ceiling_share"):
        codec.decode(Run, codec.seal(json.dumps(document).encode()))


def test_the_verdict_names_the_bottleneck_and_the_gain() -> None:
    run = make_files_run()
    warm, cold = verdict_of(run, "warm"), verdict_of(run, "cold")
    assert warm is not None
    assert cold is not None
    assert (warm.limit.is_raw, warm.best.route, warm.bottleneck) == (True, "pyxfer.load-tensors", "pyxfer.load-tensors")
    assert warm.gain == pytest.approx(55.2 / 47.1, rel=1e-3)
    assert (cold.limit.route, cold.bottleneck) == ("files.disk-4", "the disk")
    assert cold.gain == pytest.approx(47.1 / 2.61, rel=1e-3)


def test_a_loader_at_the_limit_leaves_the_other_limit() -> None:
    fast = make_load("pyxfer.load-tensors", "warm", 54.9, 10.0)
    found = verdict_of(make_files_run((fast,)), "warm")
    assert found is not None
    assert found.bottleneck == "the link"
    assert found.gain == pytest.approx(77.0 / 54.9, rel=1e-3)


@pytest.mark.parametrize(("trials", "is_sure"), [(6, True), (2, False)])
def test_a_bottleneck_of_few_trials_is_probable(trials: int, is_sure: bool) -> None:
    row = make_load("pyxfer.load-tensors", "warm", 44.0, 10.0)
    run = derive_run(make_files_run((replace(row, trials=row.trials[:trials]),)))
    found = verdict_of(run, "warm")
    assert found is not None
    assert found.is_sure is is_sure
    assert ("probably" in verdict_text(found)) is not is_sure


def test_a_run_without_loads_says_so() -> None:
    none: dict[str, Any] = dict.fromkeys(("rate", "ceiling_share"), unknown("it failed"))
    rows = tuple(replace(row, trials=(), summary=None, **none) for row in make_loads())
    assert verdict_of(make_files_run(rows), "warm") is None
    assert answer(make_files_run(rows)) == "No load has a rate."
    assert why_invalid(make_files_run(rows)).startswith("Nothing was measured: it failed")


# --- loaders of users ------------------------------------------------------------------------------------------------


def test_a_registered_loader_is_timed_beside_the_others(model: str) -> None:
    pyxfer.register_loader(pyxfer.Loader("mine.load", right, "numpy", "mine(paths)", formats=(".safetensors",)))
    try:
        row = row_of(run_files(model), "mine.load")
        assert (row.verified.value, row.route_info and row.route_info.call) == (True, "mine(paths)")
        with pytest.raises(UsageError, match="exists already"):
            pyxfer.register_loader(pyxfer.Loader("mine.load", right, "numpy"))
    finally:
        pyxfer.unregister_loader("mine.load")
    with pytest.raises(UsageError, match="is registered"):
        pyxfer.unregister_loader("mine.load")


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        ("numpy.load", "takes a pyxfer.Loader; got str"),
        (pyxfer.Loader("Mine", right), "is not a name of a loader"),
        (pyxfer.Loader("mine.load", right, "caffe"), "Unknown framework 'caffe'"),
        (pyxfer.Loader("torch.load", right), "exists already"),
        (pyxfer.Loader("mine.load", lambda paths, device: {}), "cannot be imported by a worker process"),
    ],
)
def test_loaders_that_cannot_be_registered(loader: Any, text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        pyxfer.register_loader(loader)


def test_loaders_that_cannot_read_the_files_are_left_out_or_have_the_reason(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    np.save(path, np.arange(1000.0))
    assert {row.route for row in run_files(path) if row.worker} == {"pyxfer.load-tensors", "numpy.load"}
    row = row_of(run_files(path, ["safetensors.load-file"]), "safetensors.load-file")
    assert row.rate.reason == "it reads .safetensors files only"


@pytest.mark.parametrize(("name", "code"), [slow("right", 0), ("raising", 0), slow("killed", 4), ("wrong", 4)])
def test_the_exit_code_says_whether_loads_were_measured(command: Any, model: str, name: str, code: int) -> None:
    asked = ("files", model, "--device", "host", "--state", "warm", "--budget", "0.1s")
    result = command(*asked, "--to", "numpy", "--loader", f"{own(name)},{own('pairs')}")
    assert result.returncode == code, result.stderr


def test_the_command_prints_the_page_and_keeps_the_run(command: Any, model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    asked = ("files", model, "--to", "numpy", "--device", "host", "--state", "warm", "--budget", "0.1s")
    result = command(*asked, "--export-json", path)
    assert (result.returncode, "pyxfer.load-tensors" in result.stdout) == (0, True)
    assert pyxfer.load(path).kind == "files"
    with pyxfer.open_store(str(tmp_path / "store.db")) as store:
        identifier = store.add_run(pyxfer.load(path))
        assert store.run(identifier).run == pyxfer.load(path)
    found = command("compare", path, path)
    assert (found.returncode, "pyxfer.load-tensors:" in found.stdout) == (0, True)
