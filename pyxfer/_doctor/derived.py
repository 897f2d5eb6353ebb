"""What follows from the parts of an examination, as its files are checked with it."""

from __future__ import annotations

import msgspec

from pyxfer._ceiling.derived import derive_run
from pyxfer._doctor.examine import differences, examine
from pyxfer._doctor.links import examine_links
from pyxfer._document.derivations import derived
from pyxfer._document.examinations import Examination, Nearest
from pyxfer._document.machines import Fact


def derive_examination(examination: Examination) -> Examination:
    """With what follows from its run, the values around it, and the known host beside it, or from its links."""
    if examination.links is not None:
        return examine_links(derived(examination.links))
    run, nearest = derive_run(examination.run), examination.nearest.value
    state = run.link.under_load.value
    if nearest is not None and state is not None:
        differs = differences(nearest.reference, run, state)
        nearest = Nearest(nearest.reference, not differs, differs)
    findings = examine(run, examination.health.value, nearest)
    known = {(each.code, each.subject): each for each in findings}
    stated = tuple(
        msgspec.structs.replace(each, status=known[each.code, each.subject].status)
        for each in examination.findings
        if (each.code, each.subject) in known
    )
    return msgspec.structs.replace(
        examination,
        run=run,
        nearest=examination.nearest if nearest is None else Fact(nearest),
        findings=stated if len(stated) == len(findings) else findings,
    )
