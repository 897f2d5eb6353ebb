"""Loads over host memory: contents, what is kept and freed, and every trouble on the way."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from files.making import entry, safetensors, written
from files.stalling import stalling
from numpy.typing import NDArray
from safetensors.numpy import save_file

import pyxfer
from pyxfer._files import load, readers, windows
from pyxfer._files.formats import stored_arrays
from pyxfer._loaders import page_cache
from pyxfer._upload import api, uploader
from pyxfer._upload.movers import PlainMover
from pyxfer._upload.pending import ended
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import ArrayFileError, ForkedError, UsageError
from pyxfer.native import Choice, Engine

Arrays = dict[str, NDArray[Any]]


class Own(Target):
    """Arrays that stay pyxfer's own."""

    title, module = "NumPy", "numpy"


@pytest.fixture
def up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uploader]:
    """The shared uploader, over the host runtime. Its ring for files is small."""
    monkeypatch.setenv("PYXFER_READ_RING", "threads=3,chunk=4KiB,slots=4")
    with Uploader("host") as made:
        monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "host", ""))
        monkeypatch.setattr(api, "_by_name", {"host": made, 0: made})
        monkeypatch.setattr(api, "_by_index", {("host", 0): made})
        yield made
    gc.collect()


@pytest.fixture
def arrays() -> Arrays:
    rng = np.random.default_rng(7)
    sizes = {f"layer.{number}": int(size) for number, size in enumerate(rng.integers(0, 40_000, 50))}
    found: Arrays = {name: rng.integers(0, 256, size, np.uint8) for name, size in sizes.items()}
    found["wide"] = rng.standard_normal((700, 500))
    found["number"] = np.array(3.5, np.float32)
    found["none"] = np.zeros((0, 4), np.int16)
    return found


@pytest.fixture
def file(arrays: Arrays, tmp_path: Path) -> Path:
    save_file(arrays, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def same(found: dict[str, Any], expected: Arrays) -> bool:
    return set(found) == set(expected) and all(
        found[name].dtype == each.dtype and found[name].shape == each.shape and np.array_equal(found[name], each)
        for name, each in expected.items()
    )


def _parts(*arguments: Any) -> Iterator[tuple[str, Any]]:
    return load._one_by_one(load._arrays(*arguments))


def loaded(up: Uploader, path: Path, window_bytes: int = 1 << 20, names: Any = None, dtype: Any = None) -> Arrays:
    """By way of device memory, and back."""
    found = _parts(path, Own(up._pool), names, "host", dtype, window_bytes)
    return {name: up.download(array) for name, array in found}


@pytest.mark.parametrize("window_bytes", [5000, 1 << 20, 1 << 29])
def test_arrays_arrive_whatever_the_windows(up: Uploader, file: Path, arrays: Arrays, window_bytes: int) -> None:
    assert same(loaded(up, file, window_bytes), arrays)
    assert same(dict(_parts(file, "numpy", None, 0, None, window_bytes)), arrays)


def test_the_public_functions_read_to_numpy(file: Path, arrays: Arrays) -> None:
    assert same(pyxfer.load_tensors(file, to="numpy"), arrays)
    assert same(dict(pyxfer.stream_tensors(str(file), to="numpy")), arrays)
    some = pyxfer.load_tensors([file], to="numpy", names=["wide", "none"])
    assert same(some, {name: arrays[name] for name in ("wide", "none")})
    converted = pyxfer.load_tensors(file, to="numpy", dtype=np.float16)
    assert converted["wide"].dtype == converted["number"].dtype == np.float16
    assert converted["layer.1"].dtype == np.uint8


def test_shards_and_other_formats(up: Uploader, arrays: Arrays, tmp_path: Path) -> None:
    for number in range(3):
        save_file({f"{number}.{name}": each for name, each in arrays.items()}, tmp_path / f"part-{number}.safetensors")
    expected = {f"{number}.{name}": each for number in range(3) for name, each in arrays.items()}
    assert same(loaded(up, tmp_path, 100_000), expected)
    named: dict[str, Any] = dict(arrays)
    np.savez(tmp_path / "all.npz", **named)
    assert same(loaded(up, tmp_path / "all.npz"), arrays)
    fortran = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    np.save(tmp_path / "one.npy", fortran)
    assert same(pyxfer.load_tensors(tmp_path / "one.npy", to="numpy"), {"one": fortran})


def test_types_that_numpy_has_only_by_ml_dtypes(tmp_path: Path) -> None:
    ml_dtypes: Any = pytest.importorskip("ml_dtypes")
    bits = np.arange(256, dtype=np.uint8)
    header = {"b": entry("BF16", (128,), (0, 256)), "f": entry("F8_E4M3", (256,), (256, 512))}
    path = written(tmp_path, "x.safetensors", safetensors(header, bits.tobytes() * 2))
    found = pyxfer.load_tensors(path, to="numpy")
    assert (found["b"].dtype, found["f"].dtype) == (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)
    assert found["b"].tobytes() == found["f"].tobytes() == bits.tobytes()


@pytest.mark.parametrize(("dtype", "count"), [("BF16", 2), ("F8_E4M3", 4)])
def test_types_that_need_ml_dtypes_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, count: int
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    path = written(tmp_path, "x.safetensors", safetensors({"a": entry(dtype, (count,), (0, 4))}, b"abcd"))
    with pytest.raises(UsageError, match="pip install ml_dtypes"):
        pyxfer.load_tensors(path, to="numpy")


def test_types_of_less_than_a_byte_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "x.safetensors", safetensors({"four": entry("F4", (4,), (0, 2))}, b"ab"))
    with pytest.raises(UsageError, match="NumPy has no float4_e2m1fn"):
        pyxfer.load_tensors(path, to="numpy")


def test_without_a_ring_the_driver_copies(
    up: Uploader, engine: Engine, file: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    up._reader = PlainMover(engine, 0)
    monkeypatch.setattr(readers, "_HOST_PIECE_BYTES", 10_000)
    assert same(loaded(up, file), arrays)


def test_a_block_ends_with_an_item_of_every_type(up: Uploader, tmp_path: Path) -> None:
    asked = []

    class Noting(Own):
        def empty_parts(self, nbytes: int, parts: Any, memory: Any = None) -> Any:
            asked.append(nbytes)
            return super().empty_parts(nbytes, parts, memory)

    found: dict[str, Any] = {"numbers": np.ones(3), "flags": np.ones(5, np.bool_)}
    save_file(found, tmp_path / "x.safetensors")
    parts = _parts(tmp_path / "x.safetensors", Noting(up._pool), None, "host", None, 1 << 20)
    assert same({name: up.download(array) for name, array in parts}, found)
    assert [nbytes % 16 for nbytes in asked] == [0]


def test_the_loop_of_a_stream_keeps_no_array(up: Uploader, tmp_path: Path) -> None:
    save_file({f"{number}": np.full(2 << 20, number, np.uint8) for number in range(8)}, tmp_path / "x.safetensors")
    alive: list[weakref.ref[Any]] = []
    for name, array in _parts(tmp_path, Own(up._pool), None, 0, None, 2 << 20):
        assert up.download(array)[0] == int(name)
        alive.append(weakref.ref(array))
        del array
        assert all(each() is None for each in alive)
    assert len(alive) == 8


def test_a_stream_that_is_left_early_ends_its_transfers(up: Uploader, file: Path, arrays: Arrays) -> None:
    stream = _parts(file, Own(up._pool), None, 0, None, 5000)
    next(stream)
    del stream
    assert same(loaded(up, file), arrays)
    before = threading.active_count()
    host = pyxfer.stream_tensors(file, to="numpy")
    next(host)
    del host
    for thread in threading.enumerate():
        if thread.name.startswith("pyxfer-files"):
            thread.join(10)
    assert threading.active_count() <= before


# --- into existing arrays --------------------------------------------------------------------------------------------


def test_existing_arrays_are_filled(up: Uploader, file: Path, arrays: Arrays) -> None:
    targets = {name: np.full_like(each, 7) for name, each in arrays.items() if name != "none"}
    pyxfer.load_tensors_into(targets, file)
    assert same(targets, {name: arrays[name] for name in targets})
    pyxfer.load_tensors_into({}, file)


def test_arrays_on_the_device_are_filled_by_several_windows(
    up: Uploader, file: Path, arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "is_host", lambda engine: False)
    monkeypatch.setattr(load, "_WINDOW_BYTES", 100_000)
    others = {
        name: np.array(each[..., ::-1] + 1 if each.ndim else each + 1, each.dtype) for name, each in arrays.items()
    }
    save_file(others, tmp_path / "other.safetensors")
    targets = dict(_parts(file, Own(up._pool), None, 0, None, 1 << 20))
    pyxfer.load_tensors_into(targets, tmp_path / "other.safetensors")
    assert same({name: up.download(each) for name, each in targets.items()}, others)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (np.empty((500, 700)), "is float64 of shape"),
        (np.empty((700, 500), np.float32), "is float32 of shape"),
        (np.empty((700, 1000))[:, ::2], "C order"),
        ("text", "not an array"),
        (np.broadcast_to(np.empty(1), (700, 500)), "readonly"),
    ],
)
def test_targets_that_do_not_fit_are_named(up: Uploader, file: Path, target: Any, why: str) -> None:
    with pytest.raises(UsageError, match=rf"targets\['wide'\].*{why}"):
        pyxfer.load_tensors_into({"wide": target}, file)


def test_targets_without_names_are_refused(file: Path) -> None:
    targets: Any
    for targets in (None, [np.empty(3)], np.empty(3)):
        with pytest.raises(UsageError, match="is not a dict"):
            pyxfer.load_tensors_into(targets, file)


def test_fortran_order_and_names_that_do_not_exist_are_refused(up: Uploader, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(np.ones((2, 3))))
    with pytest.raises(UsageError, match="Fortran"):
        pyxfer.load_tensors_into({"x": np.empty((2, 3))}, tmp_path / "x.npy")
    with pytest.raises(UsageError, match="'y'"):
        pyxfer.load_tensors_into({"y": np.empty((2, 3))}, tmp_path / "x.npy")


# --- trouble ---------------------------------------------------------------------------------------------------------


def after_the_headers(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Call `change` between reading the headers and the arrays."""

    def changed(*arguments: Any) -> Any:
        found = stored_arrays(*arguments)
        change()
        return found

    monkeypatch.setattr(load, "stored_arrays", changed)


def test_a_file_that_changes_before_it_is_read_is_refused(
    up: Uploader, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_the_headers(monkeypatch, lambda: os.utime(file, ns=(1, 1)))
    with pytest.raises(ArrayFileError, match="was changed or replaced"):
        loaded(up, file)
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes())
    after_the_headers(monkeypatch, lambda: os.replace(other, file))
    with pytest.raises(ArrayFileError, match="was changed or replaced"):
        pyxfer.load_tensors(file, to="numpy")
    after_the_headers(monkeypatch, file.unlink)
    with pytest.raises(ArrayFileError, match="cannot be opened again"):
        pyxfer.load_tensors(file, to="numpy")


@pytest.mark.parametrize("to", ["numpy", "device"])
def test_a_file_that_is_cut_or_written_while_it_is_read(
    up: Uploader, file: Path, arrays: Arrays, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = readers.OpenFiles.check_unchanged
    changes = iter([lambda: os.truncate(file, 9000)])

    def cut_when_opened(self: readers.OpenFiles) -> None:
        real(self)
        next(changes, lambda: None)()

    monkeypatch.setattr(readers.OpenFiles, "check_unchanged", cut_when_opened)
    target: Any = "numpy" if to == "numpy" else Own(up._pool)
    with pytest.raises(ArrayFileError, match="was cut short while it was read"):
        for _ in _parts(file, target, None, 0, None, 1 << 29):
            pass
    monkeypatch.undo()
    save_file(arrays, file)
    assert same(pyxfer.load_tensors(file, to="numpy"), arrays)


def test_targets_that_are_not_complete_are_in_the_error(
    up: Uploader, file: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = {name: np.empty_like(each) for name, each in arrays.items() if each.size}
    monkeypatch.setattr(load, "_WINDOW_BYTES", 300_000)
    last = stored_arrays(file, targets).arrays[-1]
    real = readers.HostReader.start
    calls = iter(range(100))

    def cut_later(self: readers.HostReader, *arguments: Any) -> Any:
        if next(calls) == 2:
            os.truncate(file, last.offset + 1)
        return real(self, *arguments)

    monkeypatch.setattr(readers.HostReader, "start", cut_later)
    with pytest.raises(ArrayFileError) as raised:
        pyxfer.load_tensors_into(targets, file)
    assert last.name in raised.value.unfilled
    assert set(raised.value.unfilled) <= set(targets)


def test_device_memory_that_runs_out_ends_the_load(
    up: Uploader, file: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(Own):
        def empty_parts(self, nbytes: int, parts: Any, memory: Any = None) -> Any:
            if nbytes > 1 << 20:
                raise MemoryError("no more")
            return super().empty_parts(nbytes, parts, memory)

    with pytest.raises(MemoryError, match="no more"):
        for _ in _parts(file, Small(up._pool), None, 0, None, 5000):
            pass
    assert same(loaded(up, file), arrays)


def test_ctrl_c_ends_a_load_and_the_uploader_goes_on(
    up: Uploader, file: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: list[bool] = []

    def interrupted_once(ticket: Any, *rest: Any) -> bool:
        if not interrupted:
            interrupted.append(True)
            signal.raise_signal(signal.SIGINT)
        return ended(ticket, *rest)

    monkeypatch.setattr(load, "ended", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        loaded(up, file, 5000)
    assert same(loaded(up, file), arrays)


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64", np.uint8])
def test_floating_point_numbers_become_no_others(file: Path, dtype: Any) -> None:
    with pytest.raises(UsageError, match="floating-point"):
        pyxfer.load_tensors(file, to="numpy", dtype=dtype)


@pytest.mark.parametrize("at", [(windows.Window, "ranges_and_parts"), (readers, "_started")], ids=["before", "behind"])
def test_ctrl_c_where_a_transfer_starts_keeps_no_file_open(
    up: Uploader, file: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch, at: tuple[Any, str]
) -> None:
    assert same(loaded(up, file), arrays)
    before = len(os.listdir("/proc/self/fd"))
    real = getattr(*at)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(*at, real)
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    for _ in range(3):
        monkeypatch.setattr(*at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            loaded(up, file, 5000)
    gc.collect()
    assert same(loaded(up, file), arrays)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_dropped_stream_to_host_memory_closes_its_files(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    stream = pyxfer.stream_tensors(file, to="numpy")
    next(stream)
    del stream
    until = time.monotonic() + 30
    while len(os.listdir("/proc/self/fd")) != before and time.monotonic() < until:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("stall_at", [0, 1 << 20], ids=["headers", "data"])
@pytest.mark.parametrize("to", ["numpy", "device"])
def test_ctrl_c_ends_a_load_that_stalls_and_uploads_go_on(up: Uploader, tmp_path: Path, to: str, stall_at: int) -> None:
    arrays: Arrays = {"a": np.full(3 << 20, 7, np.uint8)}
    save_file(arrays, tmp_path / "x.safetensors")
    stalled = tmp_path / "stalled"
    stalled.mkdir()
    with stalling(stalled, tmp_path / "x.safetensors", stall_at) as server:
        if server is None:
            pytest.skip("no file system can be mounted here")
        sent: list[Any] = []

        def interrupt() -> None:
            server.await_stall()
            sent.append(up.download(up.upload(arrays["a"], Own(up._pool))))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        beside = threading.Thread(target=interrupt)
        beside.start()
        target: Any = "numpy" if to == "numpy" else Own(up._pool)
        with pytest.raises(KeyboardInterrupt):
            list(_parts(stalled / "x.safetensors", target, None, "host", None, 1 << 20))
        beside.join()
        assert np.array_equal(sent[0], arrays["a"])
        server.release()
        assert same(loaded(up, stalled / "x.safetensors"), arrays)


def test_a_cold_file_is_not_in_the_cache_afterwards(up: Uploader, tmp_path: Path) -> None:
    path = tmp_path / "cold.safetensors"
    arrays: Arrays = {"a": np.arange(1 << 21, dtype=np.uint32)}
    save_file(arrays, path)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system reads nothing past the page cache")
    if why := page_cache.why_not_evicted([str(path)]):
        pytest.skip(why)
    assert same(loaded(up, path), arrays)
    assert page_cache.cached_share([str(path)]) < 0.05


def test_a_file_whose_cache_is_not_shown_is_read_through_it(
    up: Uploader, file: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(file).st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    open_file = os.open

    def noted(path: str, flags: int) -> int:
        opened.append(flags)
        return open_file(path, flags)

    monkeypatch.setattr(os, "open", noted)
    assert same(loaded(up, file), arrays)
    assert opened
    assert not any(flags & os.O_DIRECT for flags in opened)


def test_two_loads_at_once(up: Uploader, file: Path, arrays: Arrays) -> None:
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(same(loaded(up, file, 20_000), arrays))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_a_closed_uploader_and_an_unknown_framework_are_refused(up: Uploader, file: Path) -> None:
    for unknown in ("numpyy", None, ["torch"]):
        with pytest.raises(UsageError, match=r"is not a framework .*'numpy'"):
            pyxfer.load_tensors(file, to=unknown)  # type: ignore[arg-type]
    up.close()
    with pytest.raises(UsageError, match="closed"):
        loaded(up, file)


@pytest.mark.filterwarnings("ignore:This process")  # with threads, in which fork may lead to deadlocks
def test_a_stream_that_a_forked_child_goes_on_with_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_STREAM_WINDOW_BYTES", 100_000)
    stream = pyxfer.stream_tensors(file, to="numpy")
    next(stream)
    if not (child := os.fork()):
        signal.alarm(60)
        try:
            list(stream)
        except ForkedError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert list(stream)


def test_a_limit_of_open_files_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(rows: object) -> None:
        raise OSError(errno.EMFILE, "a file cannot be kept open: Too many open files")

    monkeypatch.setattr(
        readers.HostReader,
        "open",
        lambda self, *of: readers.OpenFiles(cast(Any, SimpleNamespace(FileSet=limited)), *of),
    )
    with pytest.raises(ArrayFileError, match=r"model.safetensors' cannot be kept open: .* \(ulimit -n\)\.$"):
        pyxfer.load_tensors(file, to="numpy")


def test_a_load_leaves_no_descriptor_open(up: Uploader, file: Path) -> None:
    loaded(up, file, 5000)
    pyxfer.load_tensors(file, to="numpy")  # lets go of what loads that were interrupted have kept
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    loaded(up, file, 5000)
    pyxfer.load_tensors(file, to="numpy")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
