"""Orders of work on the pages of a frameworks run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from order_samples import BATCHES, FORMS, make_orders_run
from report_samples import DOCUMENTS

from pyxfer._document import runs
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._report import frameworks, orders
from pyxfer._report.kinds import page_text, table_of
from pyxfer._report.plots import parts_of
from pyxfer._report.route_tables import Group, group_rows, order_groups
from pyxfer._report.run import REPORT

RUN = make_orders_run()
LARGEST = BATCHES[-1] * 196_608


def groups(run: runs.Run = RUN) -> dict[tuple[str, str], Group]:
    return {(each.framework, str(each.form)): each for each in order_groups(run, [""] * len(run.measurements))}


def with_row(name: str, form: str, run: runs.Run = RUN, **changes: Any) -> runs.Run:
    rows = [
        msgspec.structs.replace(row, **changes) if (row.route, row.variant) == (name, form) else row
        for row in run.measurements
    ]
    return msgspec.structs.replace(run, measurements=tuple(rows))


def test_each_framework_and_form_has_a_group_with_its_usual_code_and_its_ceiling() -> None:
    found = groups()
    assert list(found) == [(framework, form) for framework in ("torch", "tensorflow") for form in FORMS]
    group = found["torch", "nchw-float32"]
    assert group.usual is not None
    assert group.best is not None
    assert group.ceiling is not None
    assert (group.usual.name, group.best.name) == ("torch.convert-on-device", "torch.upload-converted")
    assert group.ceiling.name == "raw.pinned-async"


def test_the_routes_of_image_batch_are_compared_without_orders_of_work() -> None:
    names = {row.name for group in group_rows(RUN, [""] * len(RUN.measurements)) for row in group.routes}
    assert "torch.to" in names
    assert not any("convert" in name for name in names)


def test_the_gain_has_the_interval_of_both_medians_and_none_if_these_overlap() -> None:
    group = groups()["torch", "nhwc-float32"]
    found = orders.gain(group, group.best, LARGEST)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(4.25, abs=0.01)
    assert orders.gain(group, group.usual, LARGEST) is None
    usual = next(row for row in RUN.measurements if row.route == "torch.convert-on-device" and row.batch == BATCHES[-1])
    assert usual.summary is not None
    summary = msgspec.structs.replace(usual.summary, median_s=0.9999 * usual.summary.median_s)
    alike = with_row("torch.upload-converted", "nhwc-float32", summary=summary)
    assert "about equal" in page_text(alike, columns=80)


def test_the_answer_names_the_range_of_the_last_form() -> None:
    assert orders.answer(RUN) == (
        "As nchw-float32 at batch 512 the fastest orders of work are 4.25 (PyTorch) times as fast as the usual code, "
        "or about equal to it (TensorFlow)."
    )
    assert orders.answer(msgspec.structs.replace(RUN, measurements=())) == ""
    assert orders.answer(DOCUMENTS["image batches"]) == ""
    assert frameworks.answer(RUN).endswith(orders.answer(RUN))


def test_a_fastest_order_that_is_the_usual_code_is_about_equal_to_it() -> None:
    usual = [row for row in RUN.measurements if row.form is None or row.route.endswith("convert-on-device")]
    run = msgspec.structs.replace(RUN, measurements=tuple(usual))
    assert orders.answer(run) == (
        "As nchw-float32 at batch 512 the fastest orders of work are about equal to the usual code."
    )
    assert page_text(run, columns=80).count("about equal\n") == 2 * len(FORMS)
    assert not orders.advice(run)


def test_the_letters_of_notes_stand_in_the_tables_of_orders() -> None:
    text = "it converts on the host first"
    doubted = with_row("torch.cast-on-host", "nhwc-float32", remarks=(Remark("inflated", text),))
    lines = page_text(doubted, columns=80, details=True).splitlines()
    note = next(line for line in lines if text[:12] in line)
    rows = [line for line in lines if line.startswith("cast-on-host ")]
    assert rows[0].endswith(f" {note.split()[0]}")
    grid = orders.grids(doubted)[0]
    assert [mark for mark, _ in grid.notes] == [note.split()[0]]


def test_bytes_are_those_of_the_records_or_those_that_an_order_needs() -> None:
    untraced = with_row("torch.cast-on-host", "nhwc-float32", dma=unknown(runs.NOT_TRACED))
    (traced_row,), (row,) = (
        [row for row in orders.grids(run)[0].rows if str(row["order"]).startswith("cast-on-host")]
        for run in (RUN, untraced)
    )
    assert (traced_row["crosses"].text, row["crosses"].text) == ("384 MiB", "~384 MiB")


def test_every_order_has_its_share_of_the_usual_speed() -> None:
    shown = {str(row["order"]): row["times"].text for row in orders.grids(RUN)[3].rows}
    assert shown == {
        "permute-on-host *": "equal",
        "convert-on-device >": "",
        "cast-on-host": "0.41",
        "convert-on-host": "0.21",
        "upload-converted": "-",
    }


def test_what_the_published_benchmark_could_be_is_the_fastest_order_of_the_same_run() -> None:
    group = orders.could_be(RUN, "tensorflow")
    assert group is not None
    values = orders.could_be_column(group, group.sizes)
    assert [round(value or 0.0) for value in values] == [44528, 47033]
    text = page_text(RUN, columns=80, details=True)
    assert "could be:" in text
    assert "no row is read" in text
    other = make_orders_run(forms=("nchw-float32",))
    assert orders.could_be(other, "tensorflow") is None
    assert "could be" not in page_text(other, columns=80, details=True).lower()


def test_wrong_contents_are_never_the_fastest() -> None:
    wrong = with_row("torch.upload-converted", "nchw-float32", verified=Fact(False))
    best = groups(wrong)["torch", "nchw-float32"].best
    assert best is not None
    assert best.name == "torch.convert-on-device"


def test_the_report_has_a_waterfall_of_each_traced_order_and_bars_of_each_form() -> None:
    charts = REPORT.charts(RUN)
    waterfall, bars = charts["waterfall"], charts["routes"]
    assert waterfall is not None
    assert bars is not None
    traced = [row for row in RUN.measurements if row.form is not None and row.breakdown.value is not None]
    assert len(parts_of(waterfall(928))) == len(traced) == 15
    assert len(parts_of(bars(928))) == 2 + 2 * len(FORMS)
    assert "waterfall" not in REPORT.charts(DOCUMENTS["image batches"])


def test_a_waterfall_whose_trial_was_off_the_median_says_so() -> None:
    row = next(row for row in RUN.measurements if row.route == "torch.cast-on-host" and row.batch == BATCHES[-1])
    breakdown = row.breakdown.value
    assert breakdown is not None

    def titles(run: runs.Run) -> str:
        waterfall = REPORT.charts(run)["waterfall"]
        assert waterfall is not None
        return str([part["title"] for part in parts_of(waterfall(928))])

    parts = tuple(msgspec.structs.replace(part, seconds=1.5 * part.seconds) for part in breakdown.parts)
    slower = msgspec.structs.replace(breakdown, parts=parts, elapsed_s=1.5 * breakdown.elapsed_s)
    assert "1.5 times as long when traced" in titles(
        with_row("torch.cast-on-host", "nhwc-float32", breakdown=Fact(slower))
    )
    assert "when traced" not in titles(RUN)


def test_advice_has_the_code_of_the_fastest_order() -> None:
    found = dict(frameworks.advice(RUN))
    assert found["PyTorch, nchw-float32: 4.25 (4.24 to 4.25) times as fast as the usual code"] == (
        'pyxfer.upload(x, to="torch", dtype="float32", layout="NHWC->NCHW")'
    )
    assert not any(name.startswith("TensorFlow, nchw") for name in found)


def test_next_steps_explain_no_order() -> None:
    assert "explain" not in str(frameworks.next_steps(make_orders_run(with_routes=False)))


def test_csv_tells_forms_apart() -> None:
    text = table_of(RUN).to_csv()
    assert "torch.cast-on-host,h2d,h2d,pageable,framework,nchw-float32" in text


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"forms": ("nhwc-float32",)}, f"measurements[{len(RUN.measurements) - 1}].variant"),
        ({"workload": "copy", "batches": ()}, "parameters.workload"),
    ],
)
def test_a_form_that_the_run_was_not_asked_for_is_refused(changes: dict[str, Any], path: str) -> None:
    parameters = msgspec.structs.replace(RUN.parameters, **changes)
    found = dict(runs.run_problems(msgspec.structs.replace(RUN, parameters=parameters)))
    assert path in found
    assert not list(runs.run_problems(RUN))
