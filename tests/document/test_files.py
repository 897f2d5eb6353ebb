"""Writing files completely or not at all, and reading them."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyxfer._document import files
from pyxfer.errors import DocumentError, UsageError

Checks = Callable[[Path], None]


def write(path: Path) -> None:
    files.write_whole(path, b"new\n")


# `check_writable` raises the same errors as `write_whole`, but before the measurement.
before_and_after = pytest.mark.parametrize("check", [files.check_writable, write])


@pytest.fixture
def _permissions_count(tmp_path_factory: pytest.TempPathFactory) -> None:
    locked = tmp_path_factory.mktemp("permissions") / "locked"
    locked.touch(0)
    if os.access(locked, os.W_OK):
        pytest.skip("this process ignores the permissions of files (root)")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def refused(check: Checks, path: Path) -> str:
    with pytest.raises(UsageError) as refusal:
        check(path)
    return str(refusal.value)


def test_writing_leaves_only_the_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("run.json"))
    assert files.read_whole(tmp_path / "run.json") == b"new\n"
    assert os.listdir(tmp_path) == ["run.json"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_permissions_by_umask(tmp_path: Path, mask: int, mode: int) -> None:
    with umask(mask):
        write(tmp_path / "run.json")
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == mode


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.touch(0o600)
    with umask(0o022):
        write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b"new\n"


def test_writing_to_a_symbolic_link_writes_its_target(tmp_path: Path) -> None:
    (tmp_path / "latest.json").symlink_to("run.json")
    write(tmp_path / "latest.json")
    assert (tmp_path / "latest.json").is_symlink()
    assert (tmp_path / "run.json").read_bytes() == b"new\n"


@before_and_after
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no/run.json", "(No such file or directory): make the folder first, or name a file in another one."),
        ("", "(Is a directory): name a file inside the folder."),
        ("file/run.json", "(Not a directory): name another file."),
        ("x" * 300, "(File name too long): name another file."),
        ("a\0b", "embedded null"),
        ("/proc/run.json", "cannot be written"),
        ("/dev/fd/987", "(Bad file descriptor): name another file."),
    ],
)
def test_a_name_that_cannot_be_written_is_refused(check: Checks, name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = refused(check, tmp_path / name)
    assert text.startswith(repr(str(tmp_path / name)))
    assert words in text
    assert os.listdir(tmp_path) == ["file"]


def test_an_empty_name_is_refused() -> None:
    for check in (files.check_writable, lambda path: files.write_whole(path, b"")):
        with pytest.raises(UsageError, match=r"^'' cannot be written \(the name is empty\)"):
            check("")


@before_and_after
@pytest.mark.usefixtures("_permissions_count")
def test_a_read_only_file_is_not_replaced(check: Checks, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old\n")
    path.chmod(0o444)
    assert refused(check, path).endswith("(Permission denied): name a file that you may write to.")
    assert path.read_bytes() == b"old\n"


@before_and_after
@pytest.mark.usefixtures("_permissions_count")
def test_a_read_only_folder_is_refused(check: Checks, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert refused(check, tmp_path / "run.json").endswith("(Permission denied): name a file that you may write to.")


def test_checking_makes_and_changes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    files.check_writable(path)
    assert os.listdir(tmp_path) == []
    path.write_bytes(b"old\n")
    before = path.stat()
    files.check_writable(path)
    assert path.read_bytes() == b"old\n"
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_full_disk_is_refused() -> None:
    assert refused(write, Path("/dev/full")) == (
        "'/dev/full' cannot be written (No space left on device): free some space, or name a file on another disk."
    )


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        sentence = refused(lambda path: files.write_whole(path, b"x" * 5000), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "(File too large): free some space" in sentence
    assert path.read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["run.json"]


def test_an_interrupted_write_leaves_only_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "run.json"
    path.write_bytes(b"old\n")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(path)
    assert path.read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    files.check_writable(pipe)
    write(pipe)
    reader.join()
    assert received == [b"new\n"]
    assert pipe.is_fifo()


def test_a_reader_that_ends_early_is_named(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert refused(write, Path(f"/dev/fd/{writing}")).endswith("(Broken pipe): name a file; the reader has ended.")
    os.close(writing)


def test_standard_output_can_be_written_to() -> None:
    code = "from pyxfer._document import files; files.write_whole('/dev/stdout', b'new\\n')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"new\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run.json", "There is no file '.*run.json': check the name"),
        ("", "is a folder, not a run: name a file inside it"),
        ("a\0b", "cannot be read"),
        ("/dev/null/run.json", "cannot be read"),
    ],
)
def test_a_name_that_cannot_be_read_is_refused(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=words):
        files.read_whole(tmp_path / name)


@pytest.mark.usefixtures("_permissions_count")
def test_a_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "run.json")
    (tmp_path / "run.json").chmod(0)
    with pytest.raises(
        DocumentError, match=r"cannot be read \(Permission denied\): check the name and who may read it"
    ):
        files.read_whole(tmp_path / "run.json")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("wb") as file:
        file.truncate(files.MAX_READ_BYTES + 1)
    with pytest.raises(
        DocumentError, match="is larger than 1 GiB, which no such document is: name a file that pyxfer saved"
    ):
        files.read_whole(path)


def test_compressed_files_are_reproducible(tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    write(path)
    packed = path.read_bytes()
    os.utime(path, (0, 0))
    write(path)
    assert path.read_bytes() == packed
    assert packed[3:8] == bytes(5), "no flags, so no name; no time"
    assert gzip.decompress(packed) == b"new\n"


def test_gzip_is_recognised_by_its_contents(tmp_path: Path) -> None:
    write(tmp_path / "run.json.gz")
    (tmp_path / "run.json.gz").rename(tmp_path / "packed.json")
    (tmp_path / "plain.gz").write_bytes(b"new\n")
    assert files.read_whole(tmp_path / "packed.json") == files.read_whole(tmp_path / "plain.gz") == b"new\n"


def test_gzip_of_several_members_is_read_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "run.gz").write_bytes(gzip.compress(b"one, ") + gzip.compress(b"two"))
    assert files.read_whole(tmp_path / "run.gz") == b"one, two"


@pytest.mark.parametrize("kept", [2, 10, 30, -1])
def test_truncated_gzip_is_refused(kept: int, tmp_path: Path) -> None:
    (tmp_path / "run.gz").write_bytes(gzip.compress(os.urandom(100))[:kept])
    with pytest.raises(DocumentError, match=r"run\.gz' is cut short \(gzip\)"):
        files.read_whole(tmp_path / "run.gz")


@pytest.mark.parametrize("place", [2, 3, 20, -8], ids=["method", "flags", "data", "checksum"])
def test_damaged_gzip_is_refused(place: int, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"some text, some text, and more text"))
    packed[place] ^= 0xFF
    (tmp_path / "run.gz").write_bytes(packed)
    with pytest.raises(DocumentError, match=r"run\.gz' is (damaged|cut short) \(gzip"):
        files.read_whole(tmp_path / "run.gz")


def test_decompression_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_READ_BYTES", "MAX_DECOMPRESSED_BYTES"):
        monkeypatch.setattr(files, name, 8 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 20)) * 256)
    tracemalloc.start()
    try:
        with pytest.raises(DocumentError, match="is larger than 8 MiB once decompressed"):
            files.read_whole(tmp_path / "bomb.gz")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 32 << 20


def test_whole_file_leaves_the_old_file_on_an_error(tmp_path: Path) -> None:
    write(tmp_path / "trace.json")
    pieces = iter([b"half", None])
    with pytest.raises(TypeError), files.whole_file(tmp_path / "trace.json") as file:
        file.writelines(pieces)  # type: ignore[arg-type]
    assert (tmp_path / "trace.json").read_bytes() == b"new\n"
    assert os.listdir(tmp_path) == ["trace.json"]
