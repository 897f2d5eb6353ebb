from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pyxfer._ceiling.ways import Request, make_request
from pyxfer.errors import UsageError

KIB, MIB = 1024, 1024**2


def request(**changes: Any) -> Request:
    asked: dict[str, Any] = {
        "device": 0,
        "directions": ["h2d", "d2h"],
        "memories": ["pageable", "pinned"],
        "modes": ["auto"],
        "sizes": "4KiB:1MiB:x16",
        "fresh": False,
        "precision": 0.005,
        "budget_s": 7.0,
        "seed": 3,
    }
    return make_request(**{**asked, **changes})


def test_the_parameters_reproduce_the_request() -> None:
    asked = request().parameters()
    assert asked.device == "0"
    assert asked.directions == ("h2d", "d2h")
    assert asked.memories == ("pageable", "pinned")
    assert asked.modes == ("memcpy", "async")
    assert asked.sizes_bytes == (4 * KIB, 64 * KIB, MIB)
    assert (asked.precision, asked.budget_s, asked.seed, asked.fresh) == (0.005, 7.0, 3, False)
    again = request(directions=asked.directions, memories=asked.memories, sizes=asked.sizes_bytes, seed=asked.seed)
    assert again == request()


@pytest.mark.parametrize(
    "sizes",
    [[MIB, 4096, 4096], (4096, MIB), f"4KiB,{MIB}", ["1MiB", 4096], [np.int64(MIB), "4KiB"], np.array([4096, MIB])],
)
def test_sizes_are_sorted_and_unique(sizes: object) -> None:
    assert request(sizes=sizes).sizes == (4096, MIB)
    assert request(sizes=sizes).largest == MIB


def test_without_a_seed_one_is_drawn_and_recorded() -> None:
    seeds = {request(seed=None).parameters().seed for _ in range(8)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("sizes", [[], [0], [-4096], [4096, 0], [4096.0], ["x"], [True], [None], None, 4.5, {}])
def test_invalid_sizes_are_refused(sizes: object) -> None:
    with pytest.raises(UsageError, match=r"^sizes.*(such as|write sizes)"):
        request(sizes=sizes)


@pytest.mark.parametrize("sizes", ["0", "-1KiB", "lots", "", "4KiB:1KiB:x4", "4KiB:1MiB:x1", "1 furlong"])
def test_invalid_size_text_is_refused(sizes: str) -> None:
    with pytest.raises(UsageError):
        request(sizes=sizes)


@pytest.mark.parametrize("precision", [0, -0.1, 1.01, math.nan, math.inf, -math.inf])
def test_an_invalid_precision_is_refused_with_an_example(precision: float) -> None:
    with pytest.raises(UsageError, match=r'^precision .* is not above zero and at most 1: give 0\.005 or "0\.5%"\.$'):
        request(precision=precision)


@pytest.mark.parametrize("budget_s", [0, -1.0, 86401.0, math.nan, math.inf])
def test_an_invalid_budget_is_refused_with_an_example(budget_s: float) -> None:
    with pytest.raises(UsageError, match=r'^budget_s .* is not above zero and at most 86400 s: give 30 or "30s"\.$'):
        request(budget_s=budget_s)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_an_invalid_seed_is_refused(seed: int) -> None:
    with pytest.raises(UsageError, match=r"^seed .* is not a whole number of at least 0"):
        request(seed=seed)


def test_text_of_the_command_line_makes_the_same_request() -> None:
    text = request(
        directions="h2d,D2H",
        memories="pageable, pinned",
        modes="auto",
        precision="0.5%",
        budget_s="7s",
        seed=np.int64(3),
    )
    assert text == request()
