"""Equal arrays in a block become views together only where they are equally far apart."""

from __future__ import annotations

import numpy as np
import pytest

from pyxfer._upload.targets import _even_runs

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int32)


@pytest.mark.parametrize(
    ("offsets", "runs"),
    [
        ([], []),
        ([64], [(64, 0, 1)]),
        ([0, 64, 128], [(0, 64, 3)]),
        ([0, 256, 320, 384], [(0, 256, 2), (320, 64, 2)]),
        ([0, 64, 320, 384, 1024], [(0, 64, 2), (320, 64, 2), (1024, 0, 1)]),
    ],
)
def test_neighbours_of_one_shape(offsets: list[int], runs: list[tuple[int, int, int]]) -> None:
    parts = [((4,), FLOAT, offset) for offset in offsets]
    assert list(_even_runs(parts)) == [((4,), FLOAT, *run) for run in runs]


def test_another_shape_or_dtype_ends_a_run() -> None:
    parts = [((4,), FLOAT, 0), ((4,), FLOAT, 64), ((4,), INT, 128), ((2, 2), INT, 192), ((2, 2), INT, 256)]
    assert [(shape, dtype, first, count) for shape, dtype, first, _, count in _even_runs(parts)] == [
        ((4,), FLOAT, 0, 2),
        ((4,), INT, 128, 1),
        ((2, 2), INT, 192, 2),
    ]
