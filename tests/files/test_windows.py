"""Where arrays of files go on the device, and what a transfer reads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pyxfer._files.formats import StoredArray
from pyxfer._files.windows import PAGE_BYTES, Block, blocks_of, even_bytes, windows_of

MIB = 1 << 20


def stored(nbytes: int, offset: int, file: int = 0, name: str = "") -> StoredArray:
    return StoredArray(name or f"{file}:{offset}", "uint8", (nbytes,), file, offset, nbytes)


def in_a_row(sizes: list[int], file: int = 0, begin: int = 328, gap: int = 0) -> list[StoredArray]:
    made = []
    for number, nbytes in enumerate(sizes):
        made.append(stored(nbytes, begin, file, f"{file}:{number}"))
        begin += nbytes + gap
    return made


def placed(block: Block) -> list[int]:
    return [offset for _, offset in block.placed]


def pieces(blocks: list[Block], max_bytes: int = 1 << 40) -> list[tuple[int, int, int]]:
    return [(p.offset, p.nbytes, p.place) for window in windows_of(blocks, max_bytes) for p in window.pieces]


def test_small_neighbours_share_a_block_and_are_read_as_one_piece() -> None:
    (block,) = blocks_of(in_a_row([65536] * 100))
    assert placed(block) == [65536 * number for number in range(100)]
    assert pieces([block]) == [(328, 6553600, 0)]


def test_a_gap_in_the_file_stays_if_it_keeps_the_arrays_aligned() -> None:
    (block,) = blocks_of(in_a_row([1000, 1000, 1000], gap=24))
    assert placed(block) == [0, 1024, 2048]
    assert pieces([block]) == [(328, 3048, 0)]


@pytest.mark.parametrize(
    ("gap", "place"),
    [(0, 1024), (64, 1088), (63, 1024), (65536 - 64, 1024 + 65536 - 64), (65536, 1024), (-64, 1024), (-1024, 1024)],
)
def test_a_gap_is_kept_below_64_kib(gap: int, place: int) -> None:
    (block,) = blocks_of([stored(1024, 4096), stored(10, 4096 + 1024 + gap, name="b")])
    assert placed(block) == [0, place]
    assert block.nbytes == place + 10


@pytest.mark.parametrize(
    ("gap", "ranges"),
    [
        (0, [(0, 0, 3 * PAGE_BYTES)]),
        (100, [(0, 0, 3 * PAGE_BYTES)]),
        (65536, [(0, 0, 19 * PAGE_BYTES)]),
        (65537, [(0, 0, 2 * PAGE_BYTES), (0, 17 * PAGE_BYTES, 2 * PAGE_BYTES)]),
    ],
)
def test_pieces_with_up_to_64_kib_between_them_are_read_as_one_range(
    gap: int, ranges: list[tuple[int, int, int]]
) -> None:
    first, second = stored(PAGE_BYTES, 328), stored(PAGE_BYTES, 328 + PAGE_BYTES + gap, name="b")
    apart = [Block(), Block()]
    for block, array in zip(apart, (first, second), strict=True):
        block.add(array)
    (window,) = windows_of(apart, MIB)
    found, parts = window.ranges_and_parts()
    assert found == ranges
    last = sum(nbytes for _, _, nbytes in ranges[:-1]) + second.offset - ranges[-1][1]
    assert parts == [(328, PAGE_BYTES, 0), (last, PAGE_BYTES, 0)]


def test_a_window_that_is_full_ends_without_an_empty_piece() -> None:
    windows = list(windows_of(blocks_of(in_a_row([PAGE_BYTES], begin=PAGE_BYTES)), PAGE_BYTES))
    assert [len(window.pieces) for window in windows] == [1]


@pytest.mark.parametrize("begin", [0, 328, PAGE_BYTES, 2 * PAGE_BYTES - 1])
def test_a_window_ends_at_the_end_of_a_page(begin: int) -> None:
    found = pieces(blocks_of(in_a_row([20 * PAGE_BYTES + 7], begin=begin)), 3 * PAGE_BYTES + 5)
    assert all((offset + nbytes) % PAGE_BYTES == 0 for offset, nbytes, _ in found[:-1])
    assert len(found) == 7


def test_every_array_is_aligned_also_if_it_is_not_in_the_file() -> None:
    (block,) = blocks_of(in_a_row([3, 1, 100, 64]))
    assert placed(block) == [0, 64, 128, 256]
    assert pieces([block]) == [(328, 3, 0), (331, 1, 64), (332, 100, 128), (432, 64, 256)]


def test_a_large_array_is_alone_and_a_block_has_a_largest_size() -> None:
    blocks = blocks_of(in_a_row([MIB] * 9 + [MIB + 1, 5]))
    assert [len(block.placed) for block in blocks] == [8, 1, 1, 1]
    assert [len(block.placed) for block in blocks_of(in_a_row([5]) + in_a_row([5], file=1))] == [1, 1]


def test_large_blocks_hold_large_neighbours() -> None:
    blocks = blocks_of(in_a_row([50 * MIB] * 5 + [129 * MIB, 5]), large=True)
    assert [len(block.placed) for block in blocks] == [2, 2, 1, 1, 1]


def test_arrays_of_the_same_bytes_are_read_twice() -> None:
    (block,) = blocks_of([stored(100, 400, name="a"), stored(100, 400, name="b")])
    (window,) = windows_of([block], MIB)
    ranges, parts = window.ranges_and_parts()
    assert ranges == [(0, 0, PAGE_BYTES), (0, 0, PAGE_BYTES)]
    assert parts == [(400, 100, 0), (PAGE_BYTES + 400, 100, 128)]


def test_arrays_without_items_are_done_without_a_piece() -> None:
    (window,) = windows_of(blocks_of([stored(0, 8)]), MIB)
    assert (window.pieces, len(window.begun), len(window.done)) == ([], 1, 1)
    assert list(windows_of([], MIB)) == []


@pytest.mark.parametrize(("total", "count"), [(1, 1), (299, 1), (300, 1), (599, 1), (600, 2), (4000, 13)])
def test_windows_of_a_load_are_equal_and_none_is_small(total: int, count: int) -> None:
    blocks = blocks_of(in_a_row([total * MIB // 17 + 13] * 17))
    windows = list(windows_of(blocks, even_bytes(blocks, 300 * MIB)))
    sizes = [sum(piece.nbytes for piece in window.pieces) for window in windows]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= len(sizes) * PAGE_BYTES * 2


@pytest.mark.parametrize("max_bytes", [PAGE_BYTES, 3 * PAGE_BYTES + 5, 1 << 18, 1 << 30])
def test_windows_bring_every_byte_once_to_its_place(max_bytes: int) -> None:
    rng = np.random.default_rng(max_bytes)
    files = [rng.integers(0, 256, int(rng.integers(1, 3 * MIB)), np.uint8) for _ in range(3)]
    arrays = []
    for number, contents in enumerate(files):
        cuts = np.unique(rng.integers(0, contents.size + 1, 60))
        wanted = [pair for pair in pairwise(cuts.tolist()) if rng.random() < 0.7]
        arrays += [stored(end - begin, begin, number) for begin, end in wanted]
    blocks = blocks_of(arrays)
    memory = np.zeros(sum(block.nbytes for block in blocks) + 64 * len(blocks), np.uint8)
    begin = 64
    for block in blocks:
        block.address, begin = begin, begin + block.nbytes
    begun, done = [], []
    for window in windows_of(blocks, max_bytes):
        begun += window.begun
        assert set(window.blocks) <= set(begun)
        assert sum(piece.nbytes for piece in window.pieces) <= max_bytes
        done += window.done
        ranges, parts = window.ranges_and_parts()
        assert all(offset % PAGE_BYTES == 0 == nbytes % PAGE_BYTES for _, offset, nbytes in ranges)
        padded = [np.pad(files[number], (0, PAGE_BYTES)) for number in window.files]
        read = np.concatenate([padded[number][offset : offset + nbytes] for number, offset, nbytes in ranges])
        for (start, nbytes, address), following in zip(parts, [*parts[1:], (read.size, 0, 0)], strict=True):
            assert start + nbytes <= following[0]
            memory[address : address + nbytes] = read[start : start + nbytes]
        by_reads = np.zeros_like(memory)
        for number, offset, nbytes, address in window.reads(5000):
            assert nbytes <= 5000
            by_reads[address : address + nbytes] = padded[number][offset : offset + nbytes]
        for _, nbytes, address in parts:
            assert np.array_equal(by_reads[address : address + nbytes], memory[address : address + nbytes])
    assert begun == done == blocks
    for block in blocks:
        for array, offset in block.placed:
            at = block.address + offset
            assert offset % 64 == 0
            expected = files[array.file][array.offset : array.offset + array.nbytes]
            assert np.array_equal(memory[at : at + array.nbytes], expected)
