"""Runs and baselines as a user gives them: objects, files, and names and ids of a store."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence

from pyxfer._baseline import store_schema
from pyxfer._baseline.cells import fingerprint_of, identity
from pyxfer._baseline.compare import DEFAULT_TOLERANCE, compare_samples
from pyxfer._baseline.samples import Sample, collect
from pyxfer._baseline.store import Store, open_store
from pyxfer._document import codec
from pyxfer._document.baselines import Baseline, Comparison, KeptBaseline
from pyxfer._document.files import read_whole
from pyxfer._document.runs import Run
from pyxfer.errors import DocumentError, StoreError, UsageError

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


_MOST_NAMED = 8


def choose(store: Store, wanted: str, host: str | None = None) -> KeptBaseline:
    """The current baseline of that name or id. Without `host`, this host's goes before those of others.

    Raises:
        StoreError: there is none, or several machines have it.

    """
    kept = store.baselines(host)
    of_host = "" if host is None else f" of the host {host!r:.80}"
    named = [each for each in kept if each.id == wanted] or [each for each in kept if each.name == wanted]
    if host is None and len(named) > 1:
        named = [each for each in named if each.fingerprint.host == platform.node()] or named
    if not named:
        names = _listed(sorted({repr(each.name) for each in kept}))
        there = f"it has {names}" if names else "it has none; pyxfer baseline save makes one"
        raise StoreError(f"the store {store.shown} has no baseline {wanted!r:.80}{of_host}; {there}")
    if len(named) > 1:
        ids = _listed([f"{each.id} ({machine(each)})" for each in named])
        raise StoreError(f"{len(named)} machines have a baseline {wanted!r:.80}{of_host}: name one by its id, {ids}")
    return named[0]


def machine(kept: KeptBaseline) -> str:
    """The host, and which GPU of it."""
    gpu = kept.fingerprint.gpu.value
    return f"{kept.fingerprint.host}, {gpu or kept.fingerprint.device}"


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def check_import(baseline: Baseline, source: str) -> None:
    """Refuse a file that pyxfer has not exported: with wrong numbers, runs of another machine, or no times."""
    try:
        store_schema.check_baseline(baseline)
        for run in baseline.runs:
            store_schema.check_run(run)
    except UsageError as error:
        raise DocumentError(f"{source} is not what pyxfer baseline export writes: {error}") from error
    said, found = baseline.fingerprint, [fingerprint_of(run) for run in baseline.runs]
    if said not in found or any(identity(each) != identity(said) for each in found):
        raise DocumentError(
            f"{source} names another machine than its runs are of: it has been changed since pyxfer baseline export "
            "wrote it; export it again"
        )
    if not any(series.n for series in collect(baseline.runs).values()):
        raise DocumentError(
            f"{source} has no time of any cell that a copy can take, so there is nothing to compare with later; export "
            "it again from where it was saved"
        )
