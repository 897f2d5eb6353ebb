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

from pyxfer._document import codec
from pyxfer._document.derivations import derived
from pyxfer._document.files import read_whole, write_whole
from pyxfer._document.fleets import Fleet, FleetHost

ROOT = Path(__file__).resolve().parent.parent


def saved_again(data: bytes, source: str) -> bytes | None:
    """The file of a document with its figures as they follow; None for data that is no document of pyxfer."""
    parsed: Any = msgspec.json.decode(data)
    kinds = {name: kind for kind in codec.KINDS for name in (kind.name, *kind.also)}
    kind = kinds.get(str(parsed.get("kind"))) if isinstance(parsed, dict) and "schema_version" in parsed else None
    if kind is None:
        return None
    document = codec.decode_unchecked(kind.struct, data, source)
    if isinstance(document, Fleet):
        document = msgspec.structs.replace(document, hosts=tuple(map(_with_errors, document.hosts)))
    return codec.encode(derived(kind.name, document))


def _with_errors(host: FleetHost) -> FleetHost:
    """Of a fleet that was saved without the errors of its figures, which are not known."""
    return host if host.errors else msgspec.structs.replace(host, errors=(None,) * len(host.values))


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
