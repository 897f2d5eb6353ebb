"""What goes where: arrays in blocks on the device, and the windows of the files that one transfer reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyxfer._files.formats import StoredArray

PAGE_BYTES = 4096
"""The engine reads ranges of whole pages, which is what disks take past the page cache."""
# Neighbours share a block on the device, because each copy of the engine costs as much time as 64 KiB.
_MAX_SMALL_BYTES = 1 << 20
_MAX_BLOCK_BYTES = 8 << 20
# On an H200 the driver takes 54 us to allocate 24 MiB, 60 for 256 MiB, and as long to free them.
_LARGE_BLOCK_BYTES = 128 << 20
ALIGNMENT = 64  # of DLPack, TensorFlow and JAX
_MAX_GAP_BYTES = 64 << 10  # in a file; reading a smaller one costs less than another range


class Block:
    """Arrays that are one allocation on the device, which `keep` keeps."""

    def __init__(self, keep: Any = None) -> None:
        self.placed: list[tuple[StoredArray, int]] = []  # each with its place in the block
        self.nbytes = 0
        self.address = 0  # on the device, when it is allocated
        self.keep = keep

    def add(self, array: StoredArray) -> None:
        """Put an array behind the others: as far behind as in the file if that keeps it aligned."""
        offset = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
        if self.placed:
            last, place = self.placed[-1]
            as_in_file = place + array.offset - last.offset
            if offset <= as_in_file < offset + _MAX_GAP_BYTES and as_in_file % ALIGNMENT == 0:
                offset = as_in_file
        self.placed.append((array, offset))
        self.nbytes = offset + array.nbytes


class Piece:
    """Adjacent bytes of a file that are adjacent in a block too."""

    def __init__(self, file: int, offset: int, nbytes: int, block: Block, place: int) -> None:
        self.file, self.offset, self.nbytes, self.block, self.place = file, offset, nbytes, block, place

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


class Window:
    """What one transfer reads."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.begun: list[Block] = []  # that have to be allocated for it
        self.done: list[Block] = []  # whose arrays are complete behind it

    @property
    def files(self) -> list[int]:
        return list(dict.fromkeys(piece.file for piece in self.pieces))

    @property
    def blocks(self) -> list[Block]:
        return list(dict.fromkeys(piece.block for piece in self.pieces))

    def reads(self, max_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """File, offset, bytes and address of each read without the engine. Files are numbered as in `files`."""
        number_of = {file: number for number, file in enumerate(self.files)}
        for piece in self.pieces:
            for start in range(0, piece.nbytes, max_bytes):
                address = piece.block.address + piece.place + start
                count = min(max_bytes, piece.nbytes - start)
                yield number_of[piece.file], piece.offset + start, count, address

    def ranges_and_parts(self) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """For the engine. Files are numbered as in `files`."""
        number_of = {file: number for number, file in enumerate(self.files)}
        ranges: list[tuple[int, int, int]] = []
        parts: list[tuple[int, int, int]] = []
        total = end = 0
        for piece in self.pieces:
            number = number_of[piece.file]
            offset = piece.offset - piece.offset % PAGE_BYTES
            to = -(-piece.end // PAGE_BYTES) * PAGE_BYTES
            if ranges and ranges[-1][0] == number and end <= piece.offset <= end + _MAX_GAP_BYTES:
                offset = ranges[-1][1]
                total -= ranges.pop()[2]
            begin = total + piece.offset - offset
            ranges.append((number, offset, to - offset))
            parts.append((begin, piece.nbytes, piece.block.address + piece.place))
            total += to - offset
            end = piece.end
        return ranges, parts


def blocks_of(arrays: Iterable[StoredArray], *, large: bool = False) -> list[Block]:
    """The arrays in blocks, in the order of the files. In `large` blocks arrays of many MiB share one too."""
    max_array_bytes, max_block_bytes = (_LARGE_BLOCK_BYTES,) * 2 if large else (_MAX_SMALL_BYTES, _MAX_BLOCK_BYTES)
    found: list[Block] = []
    for _, of_file in groupby(arrays, key=attrgetter("file")):
        shared: Block | None = None
        for array in of_file:
            if array.nbytes > max_array_bytes:
                found.append(Block())
                found[-1].add(array)
                shared = None
                continue
            if shared is None or shared.nbytes + array.nbytes > max_block_bytes:
                shared = Block()
                found.append(shared)
            shared.add(array)
    return found


def even_bytes(blocks: Sequence[Block], least_bytes: int) -> int:
    """The size of windows that are about equal, and not smaller than `least_bytes` if all blocks together are not."""
    nbytes = sum([block.nbytes for block in blocks])
    return -(-nbytes // max(1, nbytes // least_bytes)) + PAGE_BYTES  # some end up to a page early


def windows_of(blocks: Sequence[Block], max_bytes: int) -> Iterator[Window]:
    window = Window()
    left = max_bytes
    for block in blocks:
        window.begun.append(block)
        for piece in _pieces_of(block):
            rest = piece
            while rest.nbytes > left:
                # At the end of a page, so that no page is read twice.
                count = left - (rest.offset + left) % PAGE_BYTES
                if count > 0:
                    window.pieces.append(Piece(rest.file, rest.offset, count, block, rest.place))
                    rest = Piece(rest.file, rest.offset + count, rest.nbytes - count, block, rest.place + count)
                yield window
                window, left = Window(), max_bytes
            window.pieces.append(rest)
            left -= rest.nbytes
        window.done.append(block)
    if window.done:
        yield window


def _pieces_of(block: Block) -> Iterator[Piece]:
    """The pieces of a block. Arrays that are equally far apart in the file are one, with what is between them."""
    file = begin = end = ahead = 0
    for array, place in block.placed:
        if not array.nbytes:
            continue
        offset = array.offset
        if begin == end or offset - place != ahead or offset < end:
            if begin < end:
                yield Piece(file, begin, end - begin, block, begin - ahead)
            file, begin, ahead = array.file, offset, offset - place
        end = offset + array.nbytes
    if begin < end:
        yield Piece(file, begin, end - begin, block, begin - ahead)
