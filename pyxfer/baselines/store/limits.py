"""What may be stored: names, labels and runs of sizes that every database keeps, refused with the limit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from pyxfer.errors import UsageError
from pyxfer.model import Run
from pyxfer.model_baselines import Baseline

DEFAULT_NAME = "default"
MOST_LABELS = 64
LONGEST_NAME, LONGEST_VALUE = 200, 2000
LONGEST_HOST = 255
_LONGEST_WORD = 200
_MOST_MEASUREMENTS = 100_000
_MOST_NUMBER = 2**63 - 1
_MOST_GBPS = 1e6
_AGO = re.compile(r"([0-9]{1,6})\s*(min|h|d|w|y)", re.ASCII)
_SECONDS = {"min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365 * 86_400.0}


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a baseline."""
    _check_text(name, "the name of a baseline")
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UsageError(f"the name of a baseline has 1 to {LONGEST_NAME} characters, and this one has {len(name)}")


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse what are no labels, and more or longer ones than are kept."""
    if not isinstance(labels, Mapping):
        raise UsageError(f"labels are names with their values, such as {{'slot': '3'}}, and not {_kind(labels)}")
    if len(labels) > MOST_LABELS:
        raise UsageError(f"a run or baseline has up to {MOST_LABELS} labels, and these are {len(labels)}")
    for name, value in labels.items():
        _check_text(name, "the name of a label")
        _check_text(value, f"the value of the label {name!r:.80}")
        if not 1 <= len(name) <= LONGEST_NAME:
            raise UsageError(f"the name of a label has 1 to {LONGEST_NAME} characters, and one has {len(name)}")
        if len(value) > LONGEST_VALUE:
            raise UsageError(
                f"the value of a label has up to {LONGEST_VALUE} characters, and that of {name!r:.80} has {len(value)}"
            )


def _check_text(value: object, what: str) -> None:
    """Refuse numbers, and bytes that were no text where they were typed: a file could not hold them."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is text, and this is {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not text: {value!r:.80} has bytes that are no UTF-8; write it in UTF-8") from None


def _kind(value: object) -> str:
    return f"of the type {type(value).__name__}"


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """The labels of `--label k=v`, each name once."""
    labels: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--label {text!r:.80} is no label; write a name and a value, such as --label slot=3")
        if name in labels:
            raise UsageError(f"--label {name!r:.80} is given twice; a label has one value")
        labels[name] = value
    check_labels(labels)
    return labels


def seconds_of(moment: str) -> float:
    """A moment as it stands in a document, in seconds since 1970; `UsageError` where it is none."""
    try:
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00"))
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)
        return aware.timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"{moment!r:.60} is no moment; write one such as 2026-01-31T12:00:00+00:00") from None


def parse_since(text: str, now_s: float | None = None) -> float:
    """The moment that `30d`, `12h`, `90min`, `2w` ago was, or that a date is, in seconds since 1970."""
    ago = _AGO.fullmatch(text.strip())
    if ago is None:
        try:
            return seconds_of(text.strip())
        except UsageError:
            raise UsageError(
                f"--since {text!r:.60} is no time: write 30d, 12h, 2w, or a date such as 2026-01-31"
            ) from None
    return (time.time() if now_s is None else now_s) - int(ago[1]) * _SECONDS[ago[2]]


def now_text() -> str:
    """This moment, as documents write it, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def check_run(run: Run) -> None:
    """Refuse what is no run, or one that no pyxfer has measured and that a database could not keep."""
    if not isinstance(run, Run):
        raise UsageError(f"a store takes runs, such as pyxfer.Run.load gives, and not what is {_kind(run)}")
    if len(run.environment.host) > LONGEST_HOST:
        raise UsageError(f"the run's host has a name of more than {LONGEST_HOST} characters, which none has")
    if len(run.measurements) > _MOST_MEASUREMENTS:
        raise UsageError(f"the run has more than {_MOST_MEASUREMENTS} measurements, which none has")
    seconds_of(run.environment.taken_at)
    for row in run.measurements:
        words = (row.route, row.memory, row.mode, row.worker or "", run.device.uuid.value or "", run.device.name)
        if max(map(len, words)) > _LONGEST_WORD:
            raise UsageError(
                f"the run has a route, memory, mode, worker or GPU with a name of more than {_LONGEST_WORD} characters"
            )
        if not (0 <= row.nbytes <= _MOST_NUMBER and 0 <= (row.batch or 0) <= _MOST_NUMBER):
            raise UsageError("the run has a size or batch that no machine has")
        if not (row.gbps or 0.0) <= _MOST_GBPS:
            raise UsageError("the run has a bandwidth that no machine has")


def check_baseline(baseline: Baseline) -> None:
    """Refuse what is no baseline, has no run, or has a name, labels or a moment that are not kept; not its runs."""
    if not isinstance(baseline, Baseline):
        raise UsageError(
            f"a store takes baselines, such as pyxfer.Baseline.load gives, and not what is {_kind(baseline)}"
        )
    check_name(baseline.name)
    check_labels(baseline.labels)
    if not baseline.runs:
        raise UsageError("a baseline is of one run or more, and this one has none")
    seconds_of(baseline.made_at)


def check_asked(**asked: object) -> None:
    """Refuse what is asked for otherwise than in words."""
    for name, value in asked.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name}= is text, and this is {_kind(value)}")
