"""What `xfer.result` holds, and what may be believed of it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import msgspec

from pyxfer.model import Fact, Measurement, Rate, Remark, Share, Summary, unknown
from pyxfer.raw.measuring import Beside
from pyxfer.units import format_gbps

# No copy over a link is this much quicker than raw copies of pinned memory; in host memory one that finds its bytes
# in the caches is.
FAR_OVER_A_LINK, FAR_IN_MEMORY = 1.25, 10.0
_PRECISION_FLAG = re.compile(r"--precision (\S+)")


@dataclass(frozen=True)
class Outcome:
    """What one use of `xfer` has found.

    `ceiling`: what raw copies of the size reached in the same rounds.
    """

    measurement: Measurement
    ceiling: Fact[Rate]

    @property
    def gbps(self) -> float | None:
        """1e9 bytes a second at the median, or None; then `reason` says why."""
        return self.measurement.gbps

    @property
    def reason(self) -> str | None:
        """Why there is no bandwidth."""
        return self.measurement.rate.reason

    @property
    def elapsed_s(self) -> float | None:
        """Median seconds of a call, between two CUDA events."""
        return self.measurement.elapsed_s

    @property
    def summary(self) -> Summary | None:
        """The seconds of all calls: median with its interval, quartiles, extremes."""
        return self.measurement.summary

    @property
    def of_ceiling(self) -> float | None:
        """The share of what raw copies reached in the same rounds."""
        return self.measurement.of_ceiling

    @property
    def share(self) -> Share | None:
        """The same with its interval."""
        return self.measurement.ceiling_share.value

    @property
    def ceiling_gbps(self) -> float | None:
        """What raw copies of the size reached in the same rounds."""
        return None if self.ceiling.value is None else self.ceiling.value.gbps

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known of it."""
        return tuple(remark.text for remark in self.measurement.remarks)


def believed(beside: Beside, value: object, others: list[Remark], *, fixed: bool) -> Outcome:
    """What of it may be said: no bandwidth that cannot be true; and what is to be known of the rest."""
    measurement = _without_what_cannot_be(beside)
    remarks = [_in_words_of_pytest(remark, fixed=fixed) for remark in measurement.remarks]
    remarks += [remark for remark in (_other_size(measurement.nbytes, value), _tracer()) if remark is not None]
    return Outcome(msgspec.structs.replace(measurement, remarks=(*remarks, *others)), beside.ceiling)


def _without_what_cannot_be(beside: Beside) -> Measurement:
    found, share = beside.measurement, beside.measurement.ceiling_share.value
    far = FAR_IN_MEMORY if beside.choice.runtime == "host" else FAR_OVER_A_LINK
    if share is None or found.gbps is None or share.value <= far:
        return found
    why = (
        f"{format_gbps(found.gbps)} would be {share.value:.3g} times what raw copies of this size reached in the same "
        "rounds, so these bytes did not all move: they were there already, or nbytes is too large"
    )
    return msgspec.structs.replace(found, rate=unknown(why), peak_share=unknown(why), ceiling_share=unknown(why))


def _in_words_of_pytest(remark: Remark, *, fixed: bool) -> Remark:
    """The options of the command line have other names here; rounds that are given bound what more time could do."""
    fix = remark.fix
    if fix is None:
        return remark
    if not fix.startswith("-"):
        more = "more rounds" if fixed else "a longer --xfer-budget"
        return msgspec.structs.replace(remark, fix=fix.replace("a longer --budget", more))
    if fixed:
        return msgspec.structs.replace(remark, fix="give it more rounds")
    fix = _PRECISION_FLAG.sub(r"precision='\1' in the marker", fix.replace("--budget ", "--xfer-budget="))
    return msgspec.structs.replace(remark, fix=fix if fix.startswith("-") else f"ask for less, with {fix}")


def _other_size(nbytes: int, value: object) -> Remark | None:
    """What moved and what came back should have one size."""
    size = getattr(value, "nbytes", None)
    if not isinstance(size, int) or size == nbytes:
        return None
    return Remark(
        "other-size",
        f"what the function returns has {size} bytes, and nbytes is {nbytes}",
        "give nbytes= as the bytes that cross the link in one call",
    )


def _tracer() -> Remark | None:
    if sys.gettrace() is None:
        return None
    return Remark(
        "traced",
        "a debugger or a measurement of coverage follows every line, which makes Python code slow",
        "measure without it",
    )
