"""What can be compared, however it is given: runs, baselines, files, and what a store keeps."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from pyxfer._baseline.compare import DEFAULT_TOLERANCE, compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._baseline.store import Store, choose, open_store
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline, Comparison
from pyxfer._document.files import read_whole
from pyxfer._document.runs import Run
from pyxfer.errors import UsageError

Comparable = Run | Baseline | Sequence[Run] | str | os.PathLike[str]

NAMED = "baseline:"
_RUN_ID = re.compile(r"r-[0-9a-f]{4,64}")
_BASELINE_ID = re.compile(r"b-[0-9a-f]{4,64}")


def compare(a: Comparable, b: Comparable, tolerance: float = DEFAULT_TOLERANCE) -> Comparison:
    """Hold B against A, cell by cell: SAME, FAST, SLOW or AMBIGUOUS, with what differs and likely causes.

    Each is a run, a sequence of runs (one a process) of one machine, a baseline, or a file or store id of one. A file
    goes before an id of its name. `tolerance` is the share of its bandwidth that a cell may lose or win.

    Raises:
        UsageError: the two cannot be compared; the text says why.
        DocumentError: a file is none of these.
        StoreError: the store has no such run or baseline.

    """
    return compare_samples(*apart(sample_of(a, "A"), sample_of(b, "B")), tolerance)


def apart(a: Sample, b: Sample) -> tuple[Sample, Sample]:
    """The two sides under names that tell them apart."""
    if a.name != b.name:
        return a, b
    return Sample(f"{a.name} (A)", a.runs), Sample(f"{b.name} (B)", b.runs)


def sample_of(given: Comparable, name: str, store_url: str | None = None) -> Sample:
    """One side; `name` is for what has none of its own."""
    if isinstance(given, Run):
        return Sample(name, (given,))
    if isinstance(given, Baseline):
        return _of_baseline(given)
    if isinstance(given, (str, os.PathLike)):
        return _named(os.fspath(given), store_url)
    runs = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(run, Run) for run in runs):
        raise UsageError(f"{name} is no run, baseline, file or store id, and no sequence of runs")
    return Sample(name, runs)


def _named(text: str, store_url: str | None) -> Sample:
    if not os.path.exists(text):
        if text.startswith(NAMED):
            with _store(store_url) as store:
                return _of_baseline(store.baseline_of_id(choose(store, text.removeprefix(NAMED)).id))
        if _BASELINE_ID.fullmatch(text):
            with _store(store_url) as store:
                return _of_baseline(store.baseline_of_id(text))
        if _RUN_ID.fullmatch(text):
            with _store(store_url) as store:
                return Sample(text, (store.run(text).run,))
    return _of_file(text)


def _of_file(path: str) -> Sample:
    data, source = read_whole(path), repr(path)
    kind = codec.kind_of(data)
    if kind is codec.BASELINE:
        return Sample(os.path.basename(path), codec.decode(Baseline, data, source).runs)
    if kind is not codec.RUN:
        raise UsageError(f"{source} is {kind.phrase}, and not a run or a baseline; name files that hold one of these")
    return Sample(os.path.basename(path), (codec.decode(Run, data, source),))


def _of_baseline(baseline: Baseline) -> Sample:
    return Sample(f"baseline {baseline.name!r}", baseline.runs)


def _store(url: str | None) -> Store:
    return open_store(url, create=False)
