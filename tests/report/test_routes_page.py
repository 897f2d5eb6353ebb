from __future__ import annotations

from dataclasses import dataclass

from pages import line_with, printed
from samples import make_device

from pyxfer.report.routes_page import mode_states, print_routes


@dataclass(frozen=True)
class Route:
    name: str
    direction: tuple[str, ...]
    mode: str
    available: bool
    reason: str = ""


OLD_DRIVER = "the driver knows CUDA 12.4, and this needs 12.8"
ROUTES = (
    Route("raw.pinned-async", ("h2d", "d2h", "both"), "async", True),
    Route("raw.pageable-async", ("h2d", "d2h"), "async", False, "not here"),
    Route("raw.pinned-batch", ("h2d", "d2h"), "batch", False, OLD_DRIVER),
)


def page() -> str:
    return printed(lambda page: print_routes([make_device()], ROUTES, page))


def test_a_route_that_can_run_says_which_ways() -> None:
    assert line_with(page(), "raw.pinned-async").split("  ")[-1].strip() == "h2d, d2h, both: available"


def test_a_route_that_cannot_run_says_why() -> None:
    assert line_with(page(), "raw.pinned-batch").endswith(f"not available: {OLD_DRIVER}")


def test_a_mode_is_available_where_one_of_its_routes_is() -> None:
    assert mode_states(ROUTES) == {"async": "available", "batch": f"not available: {OLD_DRIVER}"}


def test_a_device_is_listed_by_what_selects_it() -> None:
    assert line_with(page(), "NVIDIA H200").split()[0] == "0"
    assert "GPU-6a1f2c3d" in page()
