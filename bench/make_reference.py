"""Generates the known hosts in pyxfer/references/ from the runs in bench/results/.

    python bench/make_reference.py [--check]

Each known host has two files: the rates of its raw copies with their intervals, and its run without the single trials.
With --check the script writes nothing; its exit status is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import shared

from pyxfer._doctor.case import is_raw
from pyxfer._document import codec
from pyxfer._document.examinations import Reference, ReferenceFigure
from pyxfer._document.files import read_whole, write_whole
from pyxfer._document.runs import Measurement, Run
from pyxfer.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent


class Known(NamedTuple):
    """A known host: the stem of its file names, its name, and its run (bench/results/DOCUMENT.gz)."""

    stem: str
    name: str
    document: str


KNOWN = (Known("h200_pcie5_x16", "one H200 SXM in a Firecracker VM", "known_h200.json"),)


def made(known: Known, results: Path) -> dict[str, bytes]:
    """Contents of the files of one known host, by file name."""
    data = read_whole(results / f"{known.document}.gz")
    run = codec.decode(Run, data, known.document)
    document = f"{known.stem}.run.json"
    reference = reference_of(run, known.name, document, known.document, hashlib.sha256(data).hexdigest())
    return {
        f"{known.stem}.json": msgspec.json.format(codec.to_sealed_json(reference), indent=1) + b"\n",
        document: codec.to_sealed_json(without_trials(run)) + b"\n",
    }


def reference_of(run: Run, name: str, document: str, source: str, sha256: str) -> Reference:
    """The reference made of a run; `UsageError` if the run is incomplete or its link or MaxPayload is unknown."""
    state, payload = run.link.under_load.value, run.link.max_payload_bytes.value
    if state is None or payload is None or run.ended != "complete":
        raise UsageError(f"{source} cannot be a reference: the run is incomplete, or its link or MaxPayload is unknown")
    return Reference(
        name=name,
        device=run.device.name,
        link=state,
        max_payload_bytes=payload,
        cpu=run.environment.cpu_model.value or "not known",
        taken_at=run.environment.taken_at,
        document=document,
        source=f"bench/results/{source}",
        sha256=sha256,
        figures=tuple(figures(run.measurements)),
    )


def figures(measurements: Sequence[Measurement]) -> list[ReferenceFigure]:
    """The fastest raw copy of every direction, size and memory (pinned or pageable)."""
    found: dict[tuple[str, str, int], ReferenceFigure] = {}
    for row in measurements:
        key, rate = (row.direction, row.memory, row.nbytes), row.rate.value
        if rate is None or not is_raw(row) or row.side != row.direction:
            continue
        if row.memory not in ("pinned", "pageable") or (key in found and found[key].rate.gbps >= rate.gbps):
            continue
        found[key] = ReferenceFigure(row.direction, row.memory, row.nbytes, rate)  # type: ignore[arg-type]
    return [found[key] for key in sorted(found)]


def without_trials(run: Run) -> Run:
    """The run without its trials, which are nine tenths of the document; the statistics stay."""
    bare = tuple(msgspec.structs.replace(row, trials=()) for row in run.measurements)
    return msgspec.structs.replace(run, measurements=bare)


def refresh(root: Path, *, check: bool) -> list[str]:
    """Write the files that are out of date, unless `check` is set; return their names."""
    folder, stale = root / "pyxfer" / "references", []
    for known in KNOWN:
        for name, data in made(known, root / "bench" / "results").items():
            path = folder / name
            if not path.exists() or path.read_bytes() != data:
                stale.append(name)
                if not check:
                    folder.mkdir(exist_ok=True)
                    write_whole(path, data)
    return stale


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the references, or print which are out of date."""
    parser = argparse.ArgumentParser(description="Generate pyxfer/references/ from the runs in bench/results/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    options = parser.parse_args(arguments)
    stale = refresh(root, check=options.check)
    if not stale:
        print("All references are up to date.")
        return 0
    print(f"{'Out of date' if options.check else 'Made'}: {', '.join(stale)}.")
    return 1 if options.check else 0


if __name__ == "__main__":
    shared.run_script(main)
