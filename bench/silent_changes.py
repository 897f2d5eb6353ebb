"""Which changes of one field change the page of a document, and are not refused.

    python bench/silent_changes.py                      # the committed documents of every kind
    python bench/silent_changes.py FILE... --each 3     # these documents, three fields of each name

Each field of a document is multiplied by 1.1 and by 0.5, made negative, zero and huge, swapped with its neighbour, or
set to another word of its kind. Twice: in the file (`edited`), which the digest has to refuse, and with a new digest
(`resealed`), which only the document's other fields can refuse. The fields that are printed are those that nothing else
in the document knows. Each of them needs a reason in `REASONS` or has to be one of the `FACTS`; without one the exit
status is 1, as after an edited file that was believed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pyxfer._baseline.fingerprints import fingerprint_of
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline
from pyxfer._document.files import read_whole
from pyxfer._document.runs import Run
from pyxfer.errors import DocumentError

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = (
    *("explain_torch_to", "small", "links", "host_job", "fleet_ray", "compare_one_three", "doctor", "pytest_example"),
)
WATCHES = "watched_torch"
"""The measurement that holds documents of watches."""
FACTS = (
    *("*device.mig.value", "*device.vgpu.value", "*device.confidential.value", "*device.index", "*link.now.value.*"),
    *("*link.device_most.value.*", "*link.system_most.value.*"),
    *("*devices[].traits[]", "*devices[].nvlinks.value", "*devices[].nvlink_gbps.value"),
    *("used_before_bytes.value", "used_after_bytes.value", "activity.value.streams[].stream"),
    *("ceiling_source.value.source", "*parameters.precision", "*parameters.budget_s", "*parameters.seed", "tolerance"),
    *(f"blocks.beside.value[].{name}" for name in ("block_bytes", "count", "direction", "method", "multiprocessors")),
    "blocks.beside.value[].work",
    *("compute_s", "memory", "order", "share", "moves[].method", "source.made_by", "source.origin"),  # of a plan
    *("*duration_s", "workers[].start_s.value", "name", "*cell.nbytes", "*cell.source[]", "*cell.destination[]"),
)
"""Patterns of fields with what the machine, a clock or the user said once. No figure and no verdict is among them; that
of the doctor on a link follows from what the link, the device and the slot can do."""
FACT = "the machine, a clock or the user said it once, and no figure follows from it"
_ENDED = "whether the user or the program stopped it is in no figure"
_NO_CEILING = "of a test whose ceiling is not in the document, because it has none or only its rate was kept"
_NO_RUN = "the run that a plan rests on is not in the document"
REASONS = {
    "ended": _ENDED,
    "workers[].ended": _ENDED,
    "tests[].outcome": "the rest of the test is not in the document",
    "tests[].measurement.direction": _NO_CEILING,
    "tests[].measurement.ceiling_share.value.value": _NO_CEILING,
    "hosts[].state": "why a host has no document is known where it was collected",
    "hosts[].named": "who named a host is known where it was collected",
    "latencies[].footprint_bytes": "it depends on the memory that was free",
    "break_even.value.blocks": _NO_RUN,
    "break_even.value.low": _NO_RUN,
    "break_even.value.high": _NO_RUN,
    "times_measured": _NO_RUN,
    "trials": _NO_RUN,
    "measurements[].dma.value.seconds.value": "one trial was traced, whose records the document leaves out",
}
"""Why nothing else in the document knows a figure or a word that is not among the facts."""
_WITHIN = re.compile(r"^(run|runs\[\]|links|links\[\])\.(?=[a-z_]+)")
"""Before the name of a field of a run within another document."""
HUGE = 1e30
_WIDTH = 160
Path_ = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A field that holds no others, where it is, and the value of a neighbour of the same type."""

    path: Path_
    value: Any
    neighbour: Any

    @property
    def name(self) -> str:
        """The path without the places in lists."""
        return "".join("[]" if isinstance(each, int) else f".{each}" for each in self.path).lstrip(".")


class Change(NamedTuple):
    """A change that was believed: `line` is the first line of the page that it has changed."""

    kind: str
    name: str
    how: str
    line: str


def leaves(document: Any, path: Path_ = ()) -> Iterator[Leaf]:
    """The numbers, booleans and words of a parsed document."""
    items = list(document.items() if isinstance(document, dict) else enumerate(document))
    for place, (key, value) in enumerate(items):
        if isinstance(value, (dict, list)):
            yield from leaves(value, (*path, key))
        elif value is not None:
            others = [other for _, other in (*items[place + 1 :], *items[:place]) if type(other) is type(value)]
            yield Leaf((*path, key), value, next((other for other in others if other != value), value))


def mutations(leaf: Leaf, words: Sequence[set[str]]) -> Iterator[tuple[str, Any]]:
    """The changed values of a field. `words`: the sets of words, of which some fields have one."""
    value = leaf.value
    if isinstance(value, bool):
        yield "flip", not value
    elif isinstance(value, (int, float)):
        whole = isinstance(value, int)
        for how, factor in (("x1.1", 1.1), ("x0.5", 0.5), ("neg", -1.0)):
            yield how, round(value * factor) if whole else value * factor
        yield "zero", 0 if whole else 0.0
        yield "huge", 10**15 if whole else HUGE
        yield "swap", leaf.neighbour
    else:
        for known in words:
            if value in known:
                yield from (("flip", word) for word in sorted(known - {value})[:2])


def words_of(schema: Any) -> list[set[str]]:
    """The sets of words that a schema allows somewhere."""
    if isinstance(schema, dict):
        own = (
            [set(schema["enum"])] if "enum" in schema and all(isinstance(word, str) for word in schema["enum"]) else []
        )
        return [*own, *(found for value in schema.values() for found in words_of(value))]
    return [found for value in schema for found in words_of(value)] if isinstance(schema, list) else []


def replaced(document: Any, path: Path_, value: Any) -> Any:
    """The document with another value at this place."""
    if not path:
        return value
    first, *rest = path
    if isinstance(document, dict):
        return {**document, first: replaced(document[first], tuple(rest), value)}
    return [replaced(each, tuple(rest), value) if place == first else each for place, each in enumerate(document)]


def page_of(document: Any) -> str:
    """The page that `pyxfer show` prints."""
    from pyxfer._report.kinds import page_text

    return page_text(document, _WIDTH)


def silent(data: bytes, each: int, reseal: Callable[[bytes], bytes] | None) -> tuple[list[Change], int]:
    """The changes of a document that are believed and change its page, and the number that were tried."""
    kind = codec.kind_of(data)
    before = page_of(codec.decode(kind.struct, data)).splitlines()
    document = msgspec.json.decode(data)
    words = words_of(codec.schema(kind.struct))
    seen: Counter[str] = Counter()
    found, tried = [], 0
    for leaf in leaves(document):
        seen[leaf.name] += 1
        if leaf.path == (codec.DIGEST,) or seen[leaf.name] > each:
            continue
        for how, value in mutations(leaf, words):
            if value == leaf.value:
                continue
            tried += 1
            changed = msgspec.json.encode(replaced(document, leaf.path, value))
            line = _believed(kind, reseal(changed) if reseal else changed, before)
            if line is not None:
                found.append(Change(kind.name, leaf.name, how, line))
    return found, tried


def _believed(kind: Any, data: bytes, before: Sequence[str]) -> str | None:
    """The first line of the page that has changed; None if the document was refused, or its page is the same."""
    try:
        document = codec.decode(kind.struct, data)
    except DocumentError:
        return None
    after = page_of(document).splitlines()
    return None if after == before else next((line for line in after if line not in before), "lines are missing")


def reason_of(name: str) -> str | None:
    """Why nothing else in the document knows this field; None if it should be known."""
    own = _WITHIN.sub("", name)
    facts = (re.compile(re.escape(pattern).replace(r"\*", ".*")) for pattern in FACTS)
    return FACT if any(fact.fullmatch(own) for fact in facts) else REASONS.get(own)


def print_changes(changes: Sequence[Change]) -> None:
    """One line for each field, with what was done to it and what the page then says."""
    by_field: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in changes:
        by_field[change.kind, change.name].append(change)
    for (kind, name), own in sorted(by_field.items()):
        ways = " ".join(dict.fromkeys(change.how for change in own))
        print(f"  {kind} {name}: {ways} | {re.sub(r' +', ' ', own[0].line.strip())[:100]}")
        print(f"    {reason_of(name) or 'NO REASON'}")


def committed() -> Iterator[tuple[Path, bytes]]:
    """A committed document of every kind. A baseline is made of a run."""
    results = ROOT / "bench" / "results"
    for name in COMMITTED:
        yield results / name, read_whole(results / f"{name}.json.gz")
    run = codec.load_any(results / f"{COMMITTED[0]}.json.gz", (Run,))
    yield Path("baseline"), codec.encode(Baseline("default", fingerprint_of(run), run.environment.taken_at, {}, (run,)))
    for loop in msgspec.json.decode(read_whole(results / f"{WATCHES}.json.gz"))["loops"]:
        yield results / WATCHES, codec.seal(msgspec.json.encode(loop["watched"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the fields; the exit code is 1 if an edited file was believed, or a change that has no reason."""
    parser = argparse.ArgumentParser(description="Find changes of documents that are believed.")
    parser.add_argument("files", nargs="*", type=Path, help="documents; by default the committed ones")
    parser.add_argument("--each", type=int, default=2, help="how many fields of one name are changed")
    options = parser.parse_args(arguments)
    edited: list[Change] = []
    resealed: list[Change] = []
    named = [(file, read_whole(file)) for file in options.files] or [*committed()]
    for file, data in named:
        own, tried = silent(data, options.each, None)
        again, _ = silent(data, options.each, codec.seal)
        print(f"{file.name}: {tried} changes; believed: {len(own)} edited, {len(again)} resealed")
        edited, resealed = [*edited, *own], [*resealed, *again]
    for title, changes in (("edited", edited), ("resealed", resealed)):
        print(f"{title}: {len({(change.kind, change.name) for change in changes})} fields")
        print_changes(changes)
    figures = {change.name for change in resealed if reason_of(change.name) != FACT}
    print(f"figures and words that nothing else knows: {len(figures)}")
    return 1 if edited or any(reason_of(name) is None for name in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
