"""Every code of a remark: how serious it is, and its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Severity = Literal["fault", "doubt", "precision", "info"]
"""`fault`: something did not work. `doubt`: the figures may not be what was asked for. `precision`: they are right, and
less precise than asked for. `info`: changes no figure."""


class RemarkKind(NamedTuple):
    """What the remarks of a code have in common."""

    severity: Severity
    meaning: str


# In the order of the page of documentation: trials and rows, runs, links, comparisons, watches, fleets.
REMARKS: Mapping[str, RemarkKind] = {
    "contents": RemarkKind("fault", "The bytes that arrived are not the bytes that were sent."),
    "missing": RemarkKind("fault", "There is no figure; the text has the reason."),
    "failed": RemarkKind("fault", "A row ended early."),
    "untraced": RemarkKind("fault", "The device's records of a row are missing."),
    "unstable": RemarkKind("precision", "The median is not known to the target precision."),
    "wide": RemarkKind("precision", "The interval of a median is wider than the target precision."),
    "drift": RemarkKind("precision", "The time rose or fell during the run."),
    "exhausted": RemarkKind("doubt", "The most trials that a row may have did not reach the target precision."),
    "few-trials": RemarkKind("doubt", "There are too few trials for an interval."),
    "bimodal": RemarkKind("doubt", "The trials have two typical times."),
    "outliers": RemarkKind("info", "Some trials are far outside the others; the median does not depend on them."),
    "invalid-trials": RemarkKind("info", "Some trials were not used; the text has the reason."),
    "share": RemarkKind("doubt", "The share of the ceiling differs between the common rounds and the medians of all."),
    "above-ceiling": RemarkKind("doubt", "A row is faster than its ceiling."),
    "inflated": RemarkKind("doubt", "More bytes cross the link than the row counts."),
    "wrong-memory": RemarkKind("doubt", "The copies used another kind of host memory than the route says."),
    "outside": RemarkKind("doubt", "The copies ran outside of the trial that timed them."),
    "traced": RemarkKind("info", "A traced trial took longer or shorter than the timed ones."),
    "debugger": RemarkKind("doubt", "A debugger or coverage tool slows down Python code."),
    "other-size": RemarkKind("doubt", "A measured function's result has another size than was stated."),
    "clock-disagreement": RemarkKind("doubt", "The clocks of GPU and host disagree about one span."),
    "late": RemarkKind("doubt", "The budget was too short, so rows have few trials or none."),
    "contended": RemarkKind("doubt", "Another pyxfer measured the same device at the same time."),
    "shared": RemarkKind("doubt", "Other processes use the GPU."),
    "throttled": RemarkKind("doubt", "The GPU's clocks were held down."),
    "launch-blocking": RemarkKind("doubt", "CUDA_LAUNCH_BLOCKING makes every call wait."),
    "ring": RemarkKind("info", "Settings of the ring were not kept or not found."),
    "locking": RemarkKind("fault", "The cost of page-locking was not measured."),
    "stuck": RemarkKind("fault", "A call could not be ended in time; its memory stays allocated."),
    "cleanup": RemarkKind("fault", "Something could not be released."),
    "link-narrow": RemarkKind("doubt", "The link has fewer lanes than device and slot can use."),
    "link-slow": RemarkKind("doubt", "The link has a lower PCIe generation than device and slot can use."),
    "slot-limit": RemarkKind("info", "The device could use a faster slot."),
    "hop-narrow": RemarkKind("doubt", "A port above the device is its narrowest link."),
    "max-payload-128": RemarkKind("info", "Packets of 128 bytes spend more of the link on headers."),
    "relaxed-ordering-off": RemarkKind("info", "Relaxed ordering is off, which can slow down copies."),
    "numa": RemarkKind("info", "NUMA nodes were not compared."),
    "one-device": RemarkKind("info", "There is one GPU, so nothing was measured together or in pairs."),
    "multiprocessors": RemarkKind("info", "No launch ran on some multiprocessors."),
    "host-memory": RemarkKind("info", "Both sides of a comparison are of host memory."),
    "same-run": RemarkKind("doubt", "One run is on both sides of a comparison."),
    "other-gpu": RemarkKind("doubt", "The sides of a comparison are of two GPUs of one model."),
    "one-process": RemarkKind("doubt", "Each side is one process, so a spread between processes is assumed."),
    "left-out": RemarkKind("doubt", "A process differs from the others of its side and is left out."),
    "interrupted": RemarkKind("doubt", "A side of a comparison was interrupted; what it measured is compared."),
    "unconfirmed": RemarkKind("doubt", "A check was interrupted before it could confirm a slow cell."),
    "least-loss": RemarkKind("info", "The smallest loss that a check can find."),
    "clock": RemarkKind("doubt", "The host's clock has gone back."),
    "correlated": RemarkKind("doubt", "Neighbouring runs are alike, so a small change may be a coincidence."),
    "same-name": RemarkKind("doubt", "A host name has several GPUs; each has its own history."),
    "limit": RemarkKind("info", "A history does not have all runs."),
    "nothing": RemarkKind("info", "A store has no such measurement."),
    "no-gpu": RemarkKind("doubt", "There is no usable GPU to watch."),
    "first-steps": RemarkKind("info", "The first steps took long and are left out."),
    "slow-steps": RemarkKind("info", "Some steps are slow; parts and predictions are of the usual ones."),
    "failed-steps": RemarkKind("fault", "Steps failed and are not in the figures."),
    "unclosed-steps": RemarkKind("info", "Steps had not ended with the window."),
    "many-steps": RemarkKind("info", "Only the first steps are listed."),
    "no-steps": RemarkKind("doubt", "No step was found, so the window is one period."),
    "ends-only": RemarkKind("doubt", "Only the ends of steps are known."),
    "nested": RemarkKind("info", "Steps inside a step of the same thread are part of it."),
    "optimizers": RemarkKind("doubt", "The steps of several optimizers are counted separately."),
    "functions": RemarkKind("doubt", "The calls of several compiled functions are counted separately."),
    "step-function": RemarkKind("fault", "The function that --step names could not be followed."),
    "restarted": RemarkKind("info", "Calls before the first step are in the figures of the window."),
    "full": RemarkKind("info", "The window closed after the most steps that it can have."),
    "capacity": RemarkKind("info", "The window ends where the capacity for records was used up."),
    "never-opened": RemarkKind("fault", "The window never opened."),
    "lost": RemarkKind("fault", "What was recorded is lost."),
    "gave-way": RemarkKind("fault", "Another watch recorded the program."),
    "dropped": RemarkKind("fault", "Records are missing, so sums are too low."),
    "untimed": RemarkKind("info", "The device gave no time for some copies."),
    "other-devices": RemarkKind("info", "Records of other devices are not in the figures."),
    "children": RemarkKind("doubt", "Child processes ran; their work is not in the report."),
    "open-ranges": RemarkKind("info", "Ranges had not ended with the window."),
    "many-ranges": RemarkKind("info", "Only the longest ranges are listed."),
    "ranges": RemarkKind("info", "Ranges are left out, because there were too many."),
    "lines": RemarkKind("info", "The program's own lines are not known."),
    "host-conversion": RemarkKind("info", "A line casts or reorders on the host, beside other work."),
    "clock-error": RemarkKind("precision", "The clocks of device and host are matched less closely than usual."),
    "clock-drift": RemarkKind("doubt", "The clocks of device and host drifted apart in the window."),
    "no-ceiling": RemarkKind("info", "There is no ceiling for the copies of a watch."),
    "other-device": RemarkKind("doubt", "The ceiling is of another device."),
    "other-link": RemarkKind("doubt", "The ceiling was measured on a link in another state."),
    "other-sizes": RemarkKind("doubt", "The ceiling has other sizes than the copies."),
    "versions": RemarkKind("info", "The hosts of a fleet were measured by several versions of pyxfer."),
    "one-machine": RemarkKind("doubt", "Several hosts of a fleet call themselves by one name."),
    "duplicates": RemarkKind("info", "Hosts have several documents, of which one is judged."),
    "unanswered": RemarkKind("fault", "Hosts that were to be measured again did not answer."),
    "future": RemarkKind("doubt", "Documents are of the future by their hosts' clocks."),
    "other-name": RemarkKind("info", "Files of hosts measured again do not have the names of their hosts."),
    "too-early": RemarkKind("info", "Documents of hosts measured again are older than the judged ones."),
    "no-control": RemarkKind("doubt", "No host without a loss was measured again, so no loss is confirmed."),
    "unsteady": RemarkKind("doubt", "A figure is low on one host and then on another, so it flags none."),
    "all-slow": RemarkKind("doubt", "Equal hosts are all far below what is expected."),
}


def severity_of(code: str) -> Severity:
    """How serious a remark is; of a code that only a later pyxfer has, `doubt`."""
    return REMARKS[code].severity if code in REMARKS else "doubt"
