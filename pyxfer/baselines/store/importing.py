"""A baseline from a file: taken as data, and only if it is what it says."""

from __future__ import annotations

from pyxfer.baselines.fingerprint import fingerprint_of, identity
from pyxfer.baselines.spread import collect
from pyxfer.errors import DocumentError, UsageError
from pyxfer.model_baselines import Baseline

from . import limits


def check_import(baseline: Baseline, source: str) -> None:
    """Refuse what pyxfer has not exported: sizes beyond all bounds, runs of another machine, and no times."""
    try:
        limits.check_baseline(baseline)
        for run in baseline.runs:
            limits.check_run(run)
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
