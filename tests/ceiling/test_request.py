from __future__ import annotations

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


def test_without_a_seed_one_is_drawn_and_recorded() -> None:
    seeds = {request(seed=None).parameters().seed for _ in range(8)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("changes", [{"sizes": [0]}, {"precision": 0}, {"budget_s": -1.0}, {"seed": -1}], ids=str)
def test_an_invalid_argument_is_refused_by_its_name(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^{next(iter(changes))}"):
        request(**changes)


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
