"""The tables about the ring."""

from __future__ import annotations

import msgspec
import upload_figures as figures
from bench.test_first_upload import firsts
from bench.test_prefetched_training import result as prefetched
from framework_samples import make_route_row
from samples import MIB, make_measurement, make_run, retimed
from staged_shares import CEILING, DRIVERS, STAGED

from pyxfer._document.runs import Measurement, Trial
from pyxfer._measure import stats


def table(text: str) -> list[list[str]]:
    """The cells below the header."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines[2:]]


def raw(route: str, seconds: float) -> Measurement:
    trials = tuple(Trial(number, seconds) for number in range(20))
    summary = stats.summarise([seconds] * 20)
    return msgspec.structs.replace(make_measurement(route=route), trials=trials, summary=summary)


def test_staged_copies_are_compared_with_the_driver_and_the_ceiling() -> None:
    run = make_run(measurements=(raw(CEILING, 1e-3), raw(DRIVERS, 6e-3), raw(STAGED, 2e-3)))
    (line,) = table(figures.staged_table(run))
    assert line[0] == "16 MiB"
    assert line[3:5] == ["50.0 %", "3.00"]
    assert line[5:] == ["-"] * 4


def test_usual_calls_are_compared_with_the_route_through_the_ring() -> None:
    def row(route: str, slower: float) -> Measurement:
        made = make_route_row("torch", "torch.to", "h2d", MIB, (0.0, 1.0))
        return msgspec.structs.replace(retimed(made, [slower * 1e-3] * 7), route=route)

    run = make_run(measurements=(row("torch.upload", 2), row("torch.to", 10), raw(CEILING, 1e-3)))
    (line,) = table(figures.uploads_table(run))
    assert line[3:5] == ["torch.upload", "2.00 ms (2.00 ms to 2.00 ms)"]
    assert line[6:] == ["torch.to", "10.0 ms (10.0 ms to 10.0 ms)", "5.0"]


def test_first_uploads_and_loops_have_a_row_each() -> None:
    text = figures.first_use(firsts(), [prefetched(0.02)])
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][2:4] == [
        "| tuned then",
        "| kept",
    ]
    assert "+2.0 % (+2.0 to +2.0)" in text
