from __future__ import annotations

import io
from typing import Any

from msgspec.structs import replace
from pages import line_with, printed
from samples import make_device

from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._document.runs import Direction
from pyxfer._report.layout import Page
from pyxfer._report.routes import mode_states, print_framework_routes, print_routes


def raw(name: str, direction: tuple[Direction, ...], mode: str, available: bool, reason: str = "") -> RouteStatus:
    return RouteStatus(name, "raw", direction, "pinned", mode, 0, "queued", "f(x)", False, available, reason)


def route(name: str, call: str, direction: tuple[Direction, ...] = ("h2d",), **fields: Any) -> RouteStatus:
    whole = RouteStatus(name, "torch", direction, "pageable", "framework", 0, "done", call, False, True, "")
    return replace(whole, **fields)


def framework(title: str, version: str | None, reason: str, routes: tuple[RouteStatus, ...]) -> FrameworkStatus:
    return FrameworkStatus(title.lower(), title, version, reason, routes)


OLD_DRIVER = "the driver knows CUDA 12.4, and this needs 12.8"
ROUTES = (
    raw("raw.pinned-async", ("h2d", "d2h", "both"), "async", True),
    raw("raw.pageable-async", ("h2d", "d2h"), "async", False, "not here"),
    raw("raw.pinned-batch", ("h2d", "d2h"), "batch", False, OLD_DRIVER),
)


def page() -> str:
    return printed(lambda page: print_routes([make_device()], ROUTES, page))


def test_an_available_route_has_its_directions() -> None:
    assert line_with(page(), "raw.pinned-async").split("  ")[-1].strip() == "h2d, d2h, both: available"


def test_an_unavailable_route_has_the_reason() -> None:
    assert line_with(page(), "raw.pinned-batch").endswith(f"not available: {OLD_DRIVER}")


def test_a_mode_is_available_if_one_route_is() -> None:
    assert mode_states(ROUTES) == {"async": "available", "batch": f"not available: {OLD_DRIVER}"}


def test_a_device_is_listed_by_what_selects_it() -> None:
    assert line_with(page(), "NVIDIA H200").split()[0] == "0"
    assert "GPU-6a1f2c3d" in page()


TO = route("torch.to", 'torch.from_numpy(x).to("cuda")', usual=True)
PIN_TO = route("torch.pin-to", 'torch.from_numpy(x).pin_memory().to("cuda")', host_copies=1, returns="queued")


def framework_page(status: FrameworkStatus, columns: int | None = None) -> str:
    stream = io.StringIO()
    print_framework_routes([status], Page(stream, columns=columns))
    return stream.getvalue()


def test_an_available_framework_has_its_version() -> None:
    assert "PyTorch 2.11.0: available\n" in framework_page(framework("PyTorch", "2.11.0", "", (TO,)))


def test_a_missing_framework_is_named_once() -> None:
    assert "\nCuPy: not installed\n" in framework_page(framework("CuPy", None, "CuPy is not installed", ()))


def test_a_framework_without_cuda_has_the_reason() -> None:
    text = framework_page(framework("PyTorch", "2.13+cpu", "PyTorch 2.13+cpu was built without CUDA", ()))
    assert "\nPyTorch 2.13+cpu: was built without CUDA\n" in text


def test_a_framework_route_has_direction_memory_copies_and_call() -> None:
    lines = framework_page(framework("PyTorch", "2.11.0", "", (TO, PIN_TO))).splitlines()
    at = lines.index("  torch.pin-to  h2d  pageable  host copies 1  returns queued")
    assert lines[at + 1].strip() == 'torch.from_numpy(x).pin_memory().to("cuda")'


def test_the_usual_call_of_a_framework_is_marked() -> None:
    text = framework_page(framework("PyTorch", "2.11.0", "", (TO, PIN_TO)))
    assert line_with(text, "torch.to ").startswith("> torch.to")


def test_an_unavailable_framework_route_has_the_reason() -> None:
    gone = replace(PIN_TO, available=False, reason="not in this version")
    assert "not available: not in this version" in framework_page(framework("PyTorch", "2.11.0", "", (TO, gone)))


def test_the_reason_of_a_framework_is_printed_once() -> None:
    absent = tuple(replace(route, available=False, reason="no GPU answers") for route in (TO, PIN_TO))
    assert framework_page(framework("PyTorch", "2.11.0", "no GPU answers", absent)).count("no GPU answers") == 1


def test_an_ingest_route_is_available_without_a_gpu() -> None:
    ingest = replace(TO, name="torch.ingest", direction=("ingest",))
    absent = replace(PIN_TO, available=False, reason="no GPU answers")
    lines = framework_page(framework("PyTorch", "2.11.0", "no GPU answers", (absent, ingest))).splitlines()
    assert [line.strip() for line in lines[-2:]] == ['torch.from_numpy(x).to("cuda")', "available"]


def test_the_longest_route_fits_80_columns_and_its_call_is_wrapped() -> None:
    longest = route("tf.data-prefetch-compatible", "next(x) " * 20, ("ingest",), host_copies=2, returns="queued")
    lines = framework_page(framework("TensorFlow", "2.21.0", "", (longest,)), columns=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("tf.data-prefetch-compatible" in line and line.endswith("returns queued") for line in lines)


def test_names_and_calls_are_harmless() -> None:
    text = framework_page(framework("\x1b[31mMine", "1\x07", "", (route("mine.[red]x[/red]", "\x1b[2Jf(x)"),)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "mine.[red]x[/red]" in text
