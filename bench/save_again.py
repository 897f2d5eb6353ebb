"""Save every committed document anew: with the figures that its trials give now, and with its seal.

    python bench/save_again.py            # bench/results and pyxfer/references
    python bench/save_again.py --check    # write nothing; exit 1 if a file would change

It reads documents without their seal, and believes their trials. So it is for documents of this repository alone, after
a rule has changed by which figures follow from trials.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import make_reference
import msgspec
import timers

from pyxfer._document import codec
from pyxfer._document.derivations import derived, differences
from pyxfer._document.files import read_whole, write_whole

ROOT = Path(__file__).resolve().parent.parent


def saved_again(data: bytes, source: str) -> bytes | None:
    """The file of a document with its figures as they follow; None for data that is no document of pyxfer."""
    parsed: Any = msgspec.json.decode(data)
    if not isinstance(parsed, dict):
        return None
    if parsed.get("kind") == "timers":
        return _plain(_timers_again(msgspec.convert(parsed, timers.Timers)))
    if isinstance(parsed.get("loops"), list):
        return _plain({**parsed, "loops": [_loop_again(loop, source) for loop in parsed["loops"]]})
    found = _derived(parsed, source)
    return None if found is None else codec.encode(found)


def _derived(parsed: dict[str, Any], source: str) -> Any:
    """The document with its figures as they follow; None if it is none of pyxfer."""
    kinds = {name: kind for kind in codec.KINDS for name in (kind.name, *kind.also)}
    kind = kinds.get(str(parsed.get("kind"))) if "schema_version" in parsed else None
    if kind is None:
        return None
    document = codec.decode_unchecked(kind.struct, msgspec.json.encode(parsed), source)
    found = derived(document)
    # Rounding alone would make another file each time.
    return found if any(differences(document, found)) else document


def _loop_again(loop: dict[str, Any], source: str) -> dict[str, Any]:
    """A loop of a measurement; the document of its watch has no seal of its own."""
    return {**loop, "watched": _derived(loop["watched"], source)} if "watched" in loop else loop


def _timers_again(document: timers.Timers) -> timers.Timers:
    rows = (
        timers.summarised(row.call, row.timer, [list(samples) for samples in row.rounds]) if row.rounds else row
        for row in document.rows
    )
    return msgspec.structs.replace(document, rows=tuple(rows))


def _plain(document: Any) -> bytes:
    """The file of a measurement, as `shared.write_document` writes it."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def refresh(root: Path, *, check: bool) -> list[str]:
    """Save the documents that are not as they would be saved now, unless `check` is set; return their names."""
    stale = []
    for path in sorted((root / "bench" / "results").glob("*.json.gz")):
        before = read_whole(path)
        after = saved_again(before, path.name)
        if after is not None and after != before:
            stale.append(path.name)
            if not check:
                write_whole(path, after)
    # The references are made of the documents, which have to be readable for that.
    return [*stale, *make_reference.refresh(root, check=check)] if not (check and stale) else stale


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Save them, or print which would change."""
    parser = argparse.ArgumentParser(description="Save the committed documents anew.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    options = parser.parse_args(arguments)
    stale = refresh(root, check=options.check)
    for name in stale:
        print(name)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
