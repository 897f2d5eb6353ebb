"""Which arrays files have, and where: safetensors, NumPy's and PyTorch's files, alone, in a folder or by an index.

A format is recognised by what a file has, not by its name. Nothing that is in a file runs.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Collection, Iterable
from itertools import islice

from pyxfer._files.safetensors import (
    MAX_JSON_BYTES,
    arrays_of_safetensors,
    is_safetensors,
    reason_of,
    unique_json,
)
from pyxfer._files.stored import (
    FETCH_AGAIN,
    Identity,
    OpenFile,
    Path,
    StoredArray,
    StoredFiles,
    identity_of,
    shown,
    shown_name,
)
from pyxfer.errors import ArrayFileError, UsageError

__all__ = ["StoredArray", "StoredFiles", "identity_of", "shown", "stored_arrays"]

_SAFETENSORS = ".safetensors"
_INDEX = ".safetensors.index.json"
_HEAD_BYTES = 512

_PICKLE = "could run any code when it is read: load it where you trust it, and save it again with torch.save"
# Where the sign of a format stands, the sign, and what to say of such a file.
_REFUSED = (
    (0, b"GGUF", "is a GGUF file, which pyxfer does not read: use the safetensors files of the same model"),
    (0, b"\x89HDF\r\n\x1a\n", "is an HDF5 file, which pyxfer does not read: read it with h5py and use pyxfer.upload"),
    *((0, b"\x80" + bytes([protocol]), f"is a pickle, which {_PICKLE}") for protocol in range(2, 6)),
    (257, b"ustar", f"is a tar archive, as PyTorch wrote them before 1.6; it {_PICKLE}"),
    (0, b"\x1f\x8b", "is compressed with gzip: decompress it first"),
    (0, b"version https://git-lfs", "is a pointer of Git LFS, not the file itself: run git lfs pull"),
)

# Of so many names the closest is found in a few milliseconds.
_MAX_COMPARED = 1000
_MAX_LISTED = 3


def stored_arrays(paths: Path | Iterable[Path], names: Iterable[str] | None = None) -> StoredFiles:
    """Read the headers of files: what arrays they have, or those of `names`, and where.

    Args:
        paths: Files, indexes with a weight_map, and folders with an index or with safetensors files.
        names: Only these arrays. Of an index, only the files that have them are read.

    Raises:
        ArrayFileError: a file cannot be read, or does not keep to its format.
        UsageError: an array of `names` is not in the files, or an argument is not as above.

    """
    reading = _Reading(_wanted_of(names))
    for path in _paths_of(paths):
        reading.add(path)
    return reading.result()


def _paths_of(paths: Path | Iterable[Path]) -> list[str]:
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    try:
        found = [os.fsdecode(path) for path in given]
    except TypeError as error:
        raise UsageError(f"paths {paths!r:.80} is neither a path nor a list of paths: give one.") from error
    if not found:
        raise UsageError("paths is empty: give at least one.")
    return found


def _wanted_of(names: Iterable[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    try:
        wanted = None if isinstance(names, (str, bytes)) else frozenset(names)
    except TypeError:
        wanted = None
    if wanted is None or not all(isinstance(name, str) for name in wanted):
        raise UsageError(f"names {names!r:.80} is not a list of texts: give one, such as ['weight'].")
    return wanted


class _Reading:
    """Reads the headers of one file after another."""

    def __init__(self, wanted: frozenset[str] | None) -> None:
        self._wanted = wanted
        self._paths: list[str] = []
        self._identities: list[Identity] = []
        self._arrays: dict[str, StoredArray] = {}
        # Of all arrays, also those that are not wanted.
        self._names: set[str] = set()

    def add(self, path: str) -> None:
        for each in _files_in(path) if os.path.isdir(path) else [path]:
            with OpenFile(each) as file:
                head = file.read(0, _HEAD_BYTES)
                weight_map = _weight_map_of(file, head)
                if weight_map is None:
                    self._add_file(file, head)
            if weight_map is not None:
                self._add_shards(each, weight_map)

    def result(self) -> StoredFiles:
        if self._wanted is not None and not self._wanted <= self._names:
            raise UsageError(_unknown_text(self._wanted - self._names, self._names))
        return StoredFiles(tuple(self._paths), tuple(self._identities), tuple(self._arrays.values()))

    def _add_file(self, file: OpenFile, head: bytes, only: Collection[str] | None = None) -> None:
        found = self._arrays_of(file, head)
        if only is not None:
            kept = set(only)
            found = [array for array in found if array.name in kept]
            if missing := kept.difference(array.name for array in found):
                raise file.refused(
                    f"has no array {shown_name(min(missing))}, although the index says so: fetch both again"
                )
        self._paths.append(file.path)
        self._identities.append(file.identity)
        for array in found:
            self._names.add(array.name)
            if not self._is_wanted(array.name):
                continue
            first = self._arrays.setdefault(array.name, array)
            if first is not array:
                where = "there twice" if first.file == array.file else f"also in {shown(self._paths[first.file])}"
                raise file.refused(f"has the array {shown_name(array.name)}, which is {where}: load each on its own")

    def _add_shards(self, index: str, weight_map: dict[str, str]) -> None:
        self._names.update(weight_map)
        shards: dict[str, list[str]] = {}
        for name, shard in weight_map.items():
            if self._is_wanted(name):
                shards.setdefault(shard, []).append(name)
        folder = os.path.dirname(index)
        for shard, names in sorted(shards.items()):
            if os.path.isabs(shard) or os.pardir in shard.split("/"):
                where = f"names the file {shown_name(shard)}, which is outside its folder"
                raise ArrayFileError(f"{shown(index)} {where}: put both in one folder.")
            try:
                opened = OpenFile(os.path.join(folder, shard))
            except ArrayFileError as error:
                raise ArrayFileError(f"{shown(index)} names a file that cannot be opened: {error}") from error
            with opened as file:
                self._add_file(file, file.read(0, _HEAD_BYTES), names)

    def _arrays_of(self, file: OpenFile, head: bytes) -> list[StoredArray]:
        number = len(self._paths)
        if is_safetensors(head):
            return arrays_of_safetensors(file, number)
        # These import zipfile and pickletools, which the first load of safetensors need not wait for.
        from pyxfer._files.archives import NPY_MAGIC, ZIP_MAGICS, Archive, arrays_of_npy, arrays_of_npz

        if head.startswith(NPY_MAGIC):
            return arrays_of_npy(file, number)
        if head.startswith(ZIP_MAGICS):
            from pyxfer._files.torch_pickle import arrays_of_torch, is_torch

            archive = Archive(file)
            if is_torch(archive):
                return arrays_of_torch(archive, number, self._is_wanted)
            return arrays_of_npz(archive, number)
        for at, sign, what in _REFUSED:
            if head.startswith(sign, at):
                raise file.refused(what)
        if file.path.endswith(_SAFETENSORS):  # the name helps to say what is wrong, and decides nothing else
            return arrays_of_safetensors(file, number)
        raise file.refused("has no format that pyxfer reads: give safetensors, .npy, .npz or .pt files")

    def _is_wanted(self, name: str) -> bool:
        return self._wanted is None or name in self._wanted


def _files_in(folder: str) -> list[str]:
    """The index in a folder, or else its safetensors files."""
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        raise ArrayFileError(f"{shown(folder)} cannot be read ({error.strerror}): check who may read it.") from error
    indexes = [name for name in names if name.endswith(_INDEX)]
    if len(indexes) > 1:
        raise ArrayFileError(f"{shown(folder)} has {len(indexes)} indexes: name one, such as {shown_name(indexes[0])}.")
    found = indexes or [name for name in names if name.endswith(_SAFETENSORS)]
    if not found:
        raise ArrayFileError(f"{shown(folder)} is a folder without safetensors files: name the files.")
    return [os.path.join(folder, name) for name in found]


def _weight_map_of(file: OpenFile, head: bytes) -> dict[str, str] | None:
    """Which array is in which file, by an index; None if the file is no JSON."""
    if is_safetensors(head) or head.lstrip()[:1] != b"{":
        return None
    if file.nbytes > MAX_JSON_BYTES:
        raise file.refused(f"is too long for an index ({file.nbytes} bytes): name the files")
    try:
        weight_map = unique_json(file.read(0, file.nbytes)).get("weight_map")
    except (ValueError, RecursionError) as error:
        raise file.refused(f"is a damaged index ({reason_of(error)}): {FETCH_AGAIN}") from error
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise file.refused("is JSON without a weight_map, which an index has: name the index, or the files themselves")
    return weight_map


def _unknown_text(unknown: Collection[str], known: Collection[str]) -> str:
    listed = [_with_closest(name, known) for name in islice(sorted(unknown), _MAX_LISTED)]
    more = f" and {len(unknown) - _MAX_LISTED} more" if len(unknown) > _MAX_LISTED else ""
    remedy = f"choose among their {len(known)} names" if known else "they have no arrays"
    return f"The files do not have {', '.join(listed)}{more}: {remedy}."


def _with_closest(name: str, known: Collection[str]) -> str:
    import difflib

    compared = heapq.nsmallest(_MAX_COMPARED, known, key=lambda each: abs(len(each) - len(name)))
    close = difflib.get_close_matches(name, compared, 1)
    return f"{shown_name(name)} (did you mean {shown_name(close[0])}?)" if close else shown_name(name)
