"""Comparisons in words, as JSON, and as Markdown."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from pyxfer._document import table
from pyxfer._document.baselines import Cause, CellComparison, Comparison
from pyxfer._document.json_text import described, to_json
from pyxfer._document.runs import Remark
from pyxfer.units import format_gbps, format_percent

_FAR_FASTER = -math.log(100)
_HEADER = ("cell", "A", "B", "change", "95 % interval", "verdict")


def encode(comparison: Comparison) -> bytes:
    """The document as JSON that a person can read too."""
    return to_json(comparison) + b"\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a comparison, which `docs/comparison.schema.json` holds."""
    return described(Comparison, "pyxfer comparison", "docs/comparison.schema.json")


# --- words -----------------------------------------------------------------------------------------------------------


def change_text(log_ratio: float) -> str:
    """How much of the bandwidth is gone or was won: `4.8 % slower`."""
    if log_ratio < _FAR_FASTER:
        return "many times faster"
    share = math.expm1(-log_ratio)
    return f"{format_percent(abs(share))} {'slower' if share < 0 else 'faster'}"


def signed_change(ratio: float | None) -> str:
    """The change of bandwidth: `-4.8 %`, `+0.2 %`."""
    if not ratio:
        return ""
    share = 1 / ratio - 1
    return f"{share * 100:+.1f} %".replace("-0.0 ", "0.0 ").replace("+0.0 ", "0.0 ")


def interval_text(row: CellComparison) -> str:
    """The interval of the change of bandwidth: `-5.1 to -4.4 %`."""
    if not row.low.value or not row.high.value:
        return ""
    return f"{signed_change(row.high.value).removesuffix(' %')} to {signed_change(row.low.value)}"


def overall_text(comparison: Comparison) -> str:
    """The whole, with its error."""
    mean, low, high = comparison.overall.value, comparison.overall_low.value, comparison.overall_high.value
    if not mean or not low or not high:
        return f"not known: {comparison.overall.reason or 'no reason given'}"
    ends = f"{signed_change(high).removesuffix(' %')} to {signed_change(low)}"
    beyond = comparison.verdict == "AMBIGUOUS" and 1 - 1 / low > comparison.tolerance
    together = ": together they have lost more than the tolerance, though no cell has for certain" if beyond else ""
    return f"{signed_change(mean)} ({ends}), the geometric mean of all cells{together}"


def compared(comparison: Comparison) -> list[CellComparison]:
    """The cells that both sides have a time of."""
    return [row for row in comparison.cells if row.ratio.value is not None]


def left_out(comparison: Comparison) -> dict[str, list[str]]:
    """Why cells were not compared, and which each time."""
    reasons: dict[str, list[str]] = {}
    for row in comparison.cells:
        if row.ratio.value is None:
            reasons.setdefault(row.why.removeprefix("not compared: "), []).append(row.text)
    return reasons


def doubts(comparison: Comparison) -> list[str]:
    """Of the cells that cannot be told, why, one line a cell."""
    return [f"{row.text}: {row.why}" for row in compared(comparison) if row.verdict == "AMBIGUOUS"]


def headline(comparison: Comparison) -> str:
    """The verdict of the whole and how it comes about."""
    missing = len(comparison.cells) - len(compared(comparison))
    return f"{_verdict(comparison)}{f' {missing} more could not be compared.' if missing else ''}"


def _verdict(comparison: Comparison) -> str:
    rows, limit = compared(comparison), format_percent(comparison.tolerance)
    verdict = comparison.verdict
    those = [row for row in rows if row.verdict == verdict]
    if verdict == "SAME":
        return f"SAME: {_cells(rows)} of {comparison.b} {_is(rows)} within {limit} of {comparison.a}."
    if verdict == "AMBIGUOUS":
        fast = sum(row.verdict == "FAST" for row in rows)
        same = len(rows) - len(those) - fast
        others = ", ".join(f"{count} {word}" for count, word in ((same, "SAME"), (fast, "FAST")) if count)
        doubt = f"whether {len(those)} of {_cells(rows)} {_have(those)} lost {limit} cannot be told"
        return f"AMBIGUOUS: {doubt}{'; ' * bool(others)}{others}."
    word = "slower" if verdict == "SLOW" else "faster"
    most = max(those, key=lambda row: abs(math.log(row.ratio.value or 1.0)))
    worst = f"{most.text} by {signed_change(most.ratio.value).lstrip('+-')}"
    sure = [row for row in those if row.confirmed]
    confirmed = f" {_processes(sure)} {len(sure)} of them." if sure else ""
    return (
        f"{verdict}: {len(those)} of {_cells(rows)} of {comparison.b} {_is(those)} {word} than {comparison.a} by more "
        f"than {limit}, most of all {worst}.{confirmed}"
    )


def cause_text(cause: Cause) -> str:
    """What is likely, by what was seen, and what to do."""
    fix = f" To do: {cause.fix}." if cause.fix else ""
    return f"{cause.text} Seen: {cause.evidence}.{fix}"


def remark_text(remark: Remark) -> str:
    """What a remark says, and what would change it."""
    return f"{remark.text.rstrip('.')}. To do: {remark.fix}." if remark.fix else remark.text


def _cells(rows: Sequence[CellComparison]) -> str:
    return "1 cell" if len(rows) == 1 else f"{len(rows)} cells"


def _is(rows: Sequence[CellComparison]) -> str:
    return "is" if len(rows) == 1 else "are"


def _have(rows: Sequence[CellComparison]) -> str:
    return "has" if len(rows) == 1 else "have"


def _processes(rows: Sequence[CellComparison]) -> str:
    most = max(row.b_processes for row in rows)
    return "1 process confirms" if most == 1 else f"Each of {most} processes confirms"


# --- Markdown --------------------------------------------------------------------------------------------------------


def to_markdown(comparison: Comparison) -> str:
    """The comparison for a page or a pull request."""
    lines = [f"**{table.escape_markdown(headline(comparison))}**", ""]
    lines += [f"A is {_bare(comparison.a)}, B is {_bare(comparison.b)}. Overall {_bare(overall_text(comparison))}.", ""]
    lines += _listed("Differences", [f"{each.what}: {each.a}, now {each.b}" for each in comparison.differences])
    lines += [table.to_markdown(_HEADER, [_row(row) for row in compared(comparison)])]
    lines += _listed("Likely causes", [cause_text(cause) for cause in comparison.causes])
    lines += _listed("Not told", doubts(comparison))
    lines += _listed("Not compared", [f"{', '.join(cells)}: {why}" for why, cells in left_out(comparison).items()])
    lines += _listed("To know", [remark_text(remark) for remark in comparison.remarks])
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(row: CellComparison) -> tuple[table.Cell, ...]:
    rates = (None if fact.value is None else format_gbps(fact.value) for fact in (row.a_gbps, row.b_gbps))
    return row.text, *rates, signed_change(row.ratio.value), interval_text(row), row.verdict


def _listed(name: str, items: Sequence[str]) -> list[str]:
    return [f"{name}:", "", *(f"- {_bare(item)}" for item in items), ""] if items else []


def _bare(text: str) -> str:
    return table.escape_markdown(text)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
