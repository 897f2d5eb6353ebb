"""`pyxfer compare`: two measurements, cell by cell."""

from __future__ import annotations

from typing import Annotated

import typer

from pyxfer.errors import UsageError

from .comparisons import SLOWER, Outlet, Output, Tolerance
from .failures import say
from .verb_baseline import Url

_FORMS = ("table", "md", "json")
_EXAMPLE = "write --fail-on slower:5%"

What = "A file that holds a run or a baseline, an id of the store (r-..., b-...), or baseline:NAME."


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=What)],
    b: Annotated[str, typer.Argument(metavar="B", help="What is held against it.")],
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", metavar="slower:SHARE", help="Exit code 1 where a cell has certainly lost more."),
    ] = None,
    tolerance: Tolerance = "3%",
    form: Annotated[str, typer.Option("--format", metavar="table|md|json", help="How it is told.")] = "table",
    output: Output = None,
    store: Url = None,
) -> None:
    """Hold one measurement against another, cell by cell: SAME, FAST, SLOW or AMBIGUOUS.

    What differs between the two machines stands above the table, and likely causes of what is slow below it. Exit code
    1 comes from --fail-on alone.
    """
    from pyxfer.baselines.comparing import certainly_slower, compare_samples
    from pyxfer.baselines.inputs import apart, sample_of
    from pyxfer.units import parse_ratio

    limit = None if fail_on is None else _limit(fail_on)
    outlet, share = Outlet(form, output, _FORMS), parse_ratio(tolerance)
    comparison = compare_samples(*apart(sample_of(a, a, store), sample_of(b, b, store)), share)
    outlet.deliver(comparison)
    slower = [] if limit is None else certainly_slower(comparison, limit)
    if slower:
        cells = "1 cell is" if len(slower) == 1 else f"{len(slower)} cells are"
        say(f"{cells} certainly slower by more than {fail_on.partition(':')[2] if fail_on else ''}")
        raise SystemExit(SLOWER)


def _limit(text: str) -> float:
    from pyxfer.units import parse_ratio

    word, colon, share = text.partition(":")
    if word != "slower" or not colon:
        raise UsageError(f"--fail-on {text!r} says nothing to fail on; {_EXAMPLE}")
    try:
        return parse_ratio(share)
    except UsageError as error:
        raise UsageError(f"--fail-on: {error}; {_EXAMPLE}") from error
