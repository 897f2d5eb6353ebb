from __future__ import annotations

import io
from dataclasses import dataclass, replace

from pages import line_with, printed
from samples import make_device

from pyxfer._report.layout import Page
from pyxfer._report.routes import mode_states, print_framework_routes, print_routes


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


@dataclass(frozen=True)
class FrameworkRoute:
    name: str
    call: str
    direction: tuple[str, ...] = ("h2d",)
    memory: str = "pageable"
    host_copies: int = 0
    returns: str = "done"
    usual: bool = False
    available: bool = True
    reason: str = ""


@dataclass(frozen=True)
class Framework:
    title: str
    version: str | None
    reason: str
    routes: tuple[FrameworkRoute, ...]


TO = FrameworkRoute("torch.to", 'torch.from_numpy(x).to("cuda")', usual=True)
PIN_TO = FrameworkRoute("torch.pin-to", 'torch.from_numpy(x).pin_memory().to("cuda")', host_copies=1, returns="queued")


def framework_page(framework: Framework, columns: int | None = None) -> str:
    stream = io.StringIO()
    print_framework_routes([framework], Page(stream, columns=columns))
    return stream.getvalue()


def test_a_framework_that_is_ready_says_its_version() -> None:
    assert "PyTorch 2.11.0: available\n" in framework_page(Framework("PyTorch", "2.11.0", "", (TO,)))


def test_a_framework_that_is_not_installed_says_so_without_its_name_twice() -> None:
    assert "\nCuPy: not installed\n" in framework_page(Framework("CuPy", None, "CuPy is not installed", ()))


def test_a_framework_that_has_no_cuda_says_so_after_its_version() -> None:
    text = framework_page(Framework("PyTorch", "2.13+cpu", "PyTorch 2.13+cpu was built without CUDA", ()))
    assert "\nPyTorch 2.13+cpu: was built without CUDA\n" in text


def test_a_frameworks_route_says_its_way_memory_copies_and_call() -> None:
    lines = framework_page(Framework("PyTorch", "2.11.0", "", (TO, PIN_TO))).splitlines()
    at = lines.index("  torch.pin-to  h2d  pageable  1 host copy    returns queued")
    assert lines[at + 1].strip() == 'torch.from_numpy(x).pin_memory().to("cuda")'


def test_the_usual_call_of_a_framework_is_marked() -> None:
    text = framework_page(Framework("PyTorch", "2.11.0", "", (TO, PIN_TO)))
    assert line_with(text, "torch.to ").startswith("> torch.to")


def test_a_route_that_its_framework_lacks_says_why() -> None:
    gone = replace(PIN_TO, available=False, reason="not in this version")
    assert "not available: not in this version" in framework_page(Framework("PyTorch", "2.11.0", "", (TO, gone)))


def test_what_holds_for_a_whole_framework_is_not_said_of_each_route() -> None:
    absent = tuple(replace(route, available=False, reason="no GPU answers") for route in (TO, PIN_TO))
    assert framework_page(Framework("PyTorch", "2.11.0", "no GPU answers", absent)).count("no GPU answers") == 1


def test_a_route_that_runs_without_the_gpu_its_framework_lacks_says_so() -> None:
    ingest = replace(TO, name="torch.ingest", direction=("ingest",))
    absent = replace(PIN_TO, available=False, reason="no GPU answers")
    lines = framework_page(Framework("PyTorch", "2.11.0", "no GPU answers", (absent, ingest))).splitlines()
    assert [line.strip() for line in lines[-2:]] == ['torch.from_numpy(x).to("cuda")', "available"]


def test_the_longest_route_fits_80_columns_and_its_call_is_wrapped() -> None:
    route = FrameworkRoute("tf.data-prefetch-compatible", "next(x) " * 20, ("ingest",), "pageable", 2, "queued")
    lines = framework_page(Framework("TensorFlow", "2.21.0", "", (route,)), columns=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("tf.data-prefetch-compatible" in line and line.endswith("returns queued") for line in lines)


def test_a_name_or_a_call_from_outside_is_only_text() -> None:
    text = framework_page(Framework("\x1b[31mMine", "1\x07", "", (FrameworkRoute("mine.[red]x[/red]", "\x1b[2Jf(x)"),)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "mine.[red]x[/red]" in text
