"""The sides of a comparison as a user names them: objects, files, and names and ids in a store."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.judge import DEFAULT_TOLERANCE
from pyxfer._baseline.samples import Sample
from pyxfer._document import codec
from pyxfer._document.baselines import AnyRun, Baseline, Comparison, KeptBaseline
from pyxfer._document.files import read_whole
from pyxfer._document.links import Links
from pyxfer._document.runs import Run
from pyxfer.errors import StoreError, UsageError
from pyxfer.units import first_of, share_of

if TYPE_CHECKING:
    from pyxfer._baseline.store import Store

Comparable = AnyRun | Baseline | Sequence[AnyRun] | str | os.PathLike[str]

NAMED = "baseline:"
_RUN_ID = re.compile(r"r-[0-9a-f]{4,64}")
_BASELINE_ID = re.compile(r"b-[0-9a-f]{4,64}")
_MAX_NAMED = 8


def compare(a: Comparable, b: Comparable, tolerance: str | float = DEFAULT_TOLERANCE) -> Comparison:
    """Compare B with A, cell by cell: verdicts, differences between the machines, and likely causes.

    Each side is a run, or a run of links, a sequence of them of one machine (one for each process), a baseline, or
    text: the path of a file, or an id or `baseline:NAME` in the store. An existing file has precedence. `tolerance` is
    the share of its bandwidth that a cell may lose or gain and still be SAME, `0.03` or `"3%"`.

    Raises:
        UsageError: the two cannot be compared; the text says why.
        DocumentError: a file is not a run or a baseline.
        StoreError: the store has no such run or baseline.
    """
    share = share_of(tolerance, "tolerance")
    return compare_samples(*distinct_names(sample_of(a, "A"), sample_of(b, "B")), share)


def distinct_names(a: Sample, b: Sample) -> tuple[Sample, Sample]:
    if a.name != b.name:
        return a, b
    return Sample(f"{a.name} (A)", a.runs), Sample(f"{b.name} (B)", b.runs)


def sample_of(side: Comparable, name: str, store_url: str | None = None) -> Sample:
    if isinstance(side, (Run, Links)):
        return Sample(name, (side,))
    if isinstance(side, Baseline):
        return Sample.of(side)
    if isinstance(side, (str, os.PathLike)):
        return _named(os.fspath(side), store_url)
    runs = tuple(side) if isinstance(side, Iterable) else (side,)
    if not all(isinstance(run, (Run, Links)) for run in runs):
        raise UsageError(f"{name} is not a run, a sequence of runs, a baseline, a file or a store id.")
    return Sample(name, runs)


def _named(text: str, store_url: str | None) -> Sample:
    named = text.startswith(NAMED) or _BASELINE_ID.fullmatch(text)
    if os.path.exists(text) or not (named or _RUN_ID.fullmatch(text)):
        data, source = read_whole(text), repr(text)
        kind = codec.kind_of(data)
        if kind is codec.BASELINE:
            return Sample(os.path.basename(text), codec.decode(Baseline, data, source).processes)
        if kind not in (codec.RUN, codec.LINKS):
            is_session = kind is codec.SESSION
            remedy = "pytest --xfer-compare compares sessions" if is_session else "name files that hold one of these"
            raise UsageError(f"{source} is {kind.phrase}, not a run, links or a baseline: {remedy}.")
        return Sample(os.path.basename(text), (codec.decode(kind.struct, data, source),))
    from pyxfer._baseline.store import open_store  # files are compared without SQLAlchemy

    with open_store(store_url, create=False) as store:
        if not named:
            return Sample(text, (store.run(text).run,))
        baseline_id = choose(store, text.removeprefix(NAMED)).id if text.startswith(NAMED) else text
        return Sample.of(store.baseline_of_id(baseline_id))


def choose(store: Store, wanted: str, host: str | None = None) -> KeptBaseline:
    """The current baseline of that name or id. If several hosts have the name and `host` is None, this host's."""
    kept = store.baselines(host)
    of_host = "" if host is None else f" of the host {host!r:.80}"
    found = [row for row in kept if row.id == wanted] or [row for row in kept if row.name == wanted]
    if host is None and len(found) > 1:
        found = [row for row in found if row.fingerprint.host == platform.node()] or found
    if not found:
        names = first_of(sorted({repr(row.name) for row in kept}), _MAX_NAMED)
        there = f"name one of {names}" if names else "make one with pyxfer baseline save"
        raise StoreError(f"The store {store.shown} has no baseline {wanted!r:.80}{of_host}: {there}.")
    if len(found) > 1:
        ids = first_of([f"{row.id} ({row.fingerprint.machine})" for row in found], _MAX_NAMED)
        raise StoreError(f"{len(found)} machines have a baseline {wanted!r:.80}{of_host}: name one by its id, {ids}.")
    return found[0]
