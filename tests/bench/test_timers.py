"""Verdicts on the samples of several timers, without a framework or a GPU."""

from __future__ import annotations

import importlib.util

import msgspec
import pytest
import timers
from samples import make_device, make_environment
from timed_calls import EMPTY, Call, Calls, Timer

from pyxfer._document.runs import Fact, unknown
from pyxfer._measure import stats
from pyxfer.errors import UsageError
from pyxfer.native import Engine


def row(timer: Timer, *rounds: list[float], call: str = "torch.to") -> timers.Row:
    together = [sample for samples in rounds for sample in samples]
    return timers.Row(call, timer, tuple(tuple(samples) for samples in rounds), Fact(stats.summarise(together)))


def missing(timer: Timer, reason: str, call: str = "torch.to") -> timers.Row:
    return timers.Row(call, timer, (), unknown(reason))


STEADY = [1.000e-3, 1.001e-3, 1.002e-3, 1.003e-3, 1.004e-3, 1.005e-3, 1.006e-3, 1.007e-3]
LATER = [sample + 100e-6 for sample in STEADY]


def test_timers_whose_intervals_overlap_agree() -> None:
    shifted = [sample + 1e-6 for sample in STEADY]
    assert timers.agree("torch.to", [row("torch", STEADY), row("pyxfer", shifted)]) is True


def test_timers_whose_noises_do_not_overlap_disagree() -> None:
    assert timers.agree("torch.to", [row("torch", STEADY), row("cupyx", STEADY), row("pyxfer", LATER)]) is False


def test_the_noise_covers_the_medians_of_single_rounds() -> None:
    wandering = row("torch", STEADY * 20, LATER)
    assert wandering.summary.value is not None
    assert wandering.summary.value.high_s is not None
    assert wandering.summary.value.high_s < min(LATER)
    assert timers.agree("torch.to", [wandering, row("pyxfer", LATER)]) is True


def test_the_time_of_the_empty_callable_extends_the_noise_downwards() -> None:
    apart = row("cupyx", LATER)
    assert timers.agree("torch.to", [row("torch", STEADY), apart]) is False
    own = row("cupyx", [80e-6] * 8, call=EMPTY)
    assert timers.agree("torch.to", [row("torch", STEADY), apart, own]) is True


def test_the_empty_callable_of_another_timer_does_not_extend_the_noise() -> None:
    apart = row("cupyx", LATER)
    own = row("pyxfer", [80e-6] * 8, call=EMPTY)
    assert timers.agree("torch.to", [row("torch", STEADY), apart, own]) is False


def test_pairs_whose_intervals_are_apart_are_counted_also_where_they_agree_within_noise() -> None:
    wandering = row("torch", STEADY * 20, LATER)
    rows = [wandering, row("cupyx", LATER), row("pyxfer", STEADY), row("torch", LATER, call=EMPTY)]
    assert [timers.differ(*pair) for pair in timers.pairs(rows)] == [True, False, True]
    assert timers.pairs_line(rows) == ("2 of 3 pairs agree within noise; the 95 % intervals of 2 pairs do not overlap.")


def test_only_timers_of_one_call_are_a_pair() -> None:
    assert timers.pairs([row("torch", STEADY), row("cupyx", STEADY, call="cupy.asarray")]) == []


def test_the_empty_callable_has_no_verdict() -> None:
    text = timers.table(document([row("torch", [1e-7] * 8, call=EMPTY), row("pyxfer", [4e-6] * 8, call=EMPTY)]))
    assert [line.split()[-1] for line in text.splitlines()[2:4]] == ["-", "-"]


def test_a_single_timer_has_no_verdict() -> None:
    assert timers.agree("torch.to", [row("torch", STEADY), missing("cupyx", "cupy is not installed")]) is None


def test_each_round_reverses_the_order_of_calls_and_timers() -> None:
    seen: list[str] = []

    def timer(name: str) -> timers.Time:
        def time(call: Call) -> list[float]:
            seen.append(f"{call.name} {name}")
            return [1e-3]

        return time

    calls = [Call("a", lambda: None, None), Call("b", lambda: None, None)]
    rows = timers.measure(calls, {"torch": timer("torch"), "pyxfer": timer("pyxfer")}, 2)
    assert seen == ["a torch", "a pyxfer", "b torch", "b pyxfer", "b pyxfer", "b torch", "a pyxfer", "a torch"]
    assert [len(found.rounds) for found in rows] == [2, 2, 2, 2]


def test_a_missing_library_is_the_reason_of_its_row() -> None:
    def absent(_: Call) -> list[float]:
        raise ModuleNotFoundError("No module named 'cupyx'", name="cupyx")

    (found,) = timers.measure([Call("torch.to", lambda: None, None)], {"cupyx": absent}, 1)
    assert "cupyx" in (found.summary.reason or "")


def test_an_unavailable_call_has_a_row_for_every_timer(engine: Engine) -> None:
    if importlib.util.find_spec("cupy") is not None:
        pytest.skip("CuPy is installed here")
    with Calls(engine, 0, nbytes=4096) as calls:
        _, rows = timers.prepare(calls)
    missing = [found for found in rows if found.call == "cupy.asarray"]
    assert [found.timer for found in missing] == ["torch", "cupyx", "pyxfer"]
    assert all("pip install cupy" in (found.summary.reason or "") for found in missing)


def document(rows: list[timers.Row], *empty_s: float) -> timers.Timers:
    return timers.Timers(
        device=make_device(),
        environment=make_environment(),
        versions={"torch": Fact("2.11.0")},
        nbytes=64 << 20,
        rows=tuple(rows),
        empty=tuple(timers.Empty("stream", Fact(seconds)) for seconds in empty_s),
    )


def test_the_table_has_median_interval_noise_and_verdict() -> None:
    text = timers.table(document([row("torch", STEADY), row("pyxfer", STEADY)], 2.5e-6))
    summary = row("torch", STEADY).summary.value
    assert summary is not None
    interval = f"{(summary.low_s or 0) * 1e6:.1f} to {(summary.high_s or 0) * 1e6:.1f}"
    assert text.splitlines()[2].split() == f"torch.to torch 1003.5 {interval} {interval} 8 yes".split()
    assert "empty callable, stream bracket: 2.50 us; at most 5 us: yes" in text


def test_the_table_has_the_reason_of_a_missing_timer() -> None:
    text = timers.table(document([row("torch", STEADY), missing("cupyx", "cupyx is not installed")]))
    assert "torch.to, cupyx: cupyx is not installed" in text


@pytest.mark.parametrize(
    ("rows", "empty_s", "status"),
    [
        ([row("torch", STEADY), row("pyxfer", STEADY)], 2e-6, 0),
        ([row("torch", STEADY), row("pyxfer", LATER)], 2e-6, 1),
        ([row("torch", STEADY), row("pyxfer", STEADY)], 6e-6, 1),
        ([row("torch", STEADY), missing("pyxfer", "no")], 2e-6, 4),
    ],
    ids=["agree", "disagree", "empty too long", "nothing to compare"],
)
def test_the_exit_status_depends_on_agreement_and_the_empty_callable(
    rows: list[timers.Row], empty_s: float, status: int
) -> None:
    assert timers.status(document(rows, empty_s)) == status


def test_a_rounded_zero_has_no_sign() -> None:
    text = timers.table(document([row("torch", [1e-9] * 8, call=EMPTY)]))
    assert "-0.0" not in text


def test_the_document_survives_json() -> None:
    before = document([row("torch", STEADY), missing("cupyx", "no")], 2e-6)
    assert msgspec.json.decode(msgspec.json.encode(before), type=timers.Timers) == before


def test_no_round_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="--rounds must be at least 1, not 0"):
        timers.main(["--rounds", "0"])
