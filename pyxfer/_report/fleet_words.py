"""Sentences about a fleet, for its page, its report and the lines for other programs. All names are made harmless."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pyxfer._document.fleets import CellLoss, CellUnit, CohortCell, Contrast, Fleet, FleetHost, hosts_once
from pyxfer._report.text import clean, counted
from pyxfer.units import first_of, format_gbps, format_percent

LONGEST_NAME = 60
_MAX_NAMED = 5


def host_name(host: FleetHost) -> str:
    return clean(host.host, LONGEST_NAME) or "(no name)"


def some_names(hosts: Sequence[FleetHost]) -> str:
    return first_of(list(map(host_name, hosts)), _MAX_NAMED)


def sentence(fleet: Fleet) -> str:
    slow, suspect = worst_first(fleet.with_verdict("slow")), worst_first(fleet.with_verdict("suspect"))
    once = hosts_once(fleet)
    judged = sum(host.verdict != "not judged" for host in once)
    missing = len(once) - judged
    left = f"; {missing} more {'was' if missing == 1 else 'were'} not judged" if missing else ""
    split = [cell for cohort in fleet.cohorts for cell in cohort.cells if cell.groups is not None]
    if not judged:
        no_document = "no document was found, such as pyxfer fleet host --export-json FILE writes"
        reasons = Counter(clean(host.reason, 200).rstrip(".") for host in once if host.reason)
        reason, count = reasons.most_common(1)[0] if reasons else (no_document, 0)
        none = "The host could not be judged" if len(once) == 1 else f"None of {len(once)} hosts could be judged"
        return f"{none}{f'; {count} of them' if len(reasons) > 1 else ''}: {reason}."
    if slow or suspect:
        verb = ("is" if len(slow) == 1 else "are") if slow else ("was" if len(suspect) == 1 else "were")
        low = "slow" if slow else "low in one look and may be slow"
        first = (slow or suspect)[0]
        worst = "" if first.worst is None else f" {loss_text(first.worst)} in {clean(first.worst.cell.text)}"
        who = f"{len(slow or suspect)} of {counted(judged, 'host')}"
        return f"{who} {verb} {low}: {host_name(first)}{worst}{_cause_text(fleet)}{left}."
    if split:
        widest = max(split, key=lambda cell: 0.0 if cell.groups is None else cell.groups.loss)
        groups = f"{clean(widest.cell.text)}: {groups_text(widest)}"
        return f"{counted(judged, 'host')}, none slow by itself, but in two groups: {groups}{_cause_text(fleet)}{left}."
    none = "The host is not slow" if judged == 1 else f"No host of {judged} is slow"
    return f"{none}{_could_have_found(fleet)}{left}."


def _cause_text(fleet: Fleet) -> str:
    sure = [contrast for contrast in fleet.contrasts if contrast.significant]
    return f"; {contrast_text(sure[0])}" if sure else ""


def _could_have_found(fleet: Fleet) -> str:
    """About the cells of pinned copies that were judged; without any, about all cells that were."""
    judged = [cell for cohort in fleet.cohorts for cell in cohort.cells if cell.judged_by != "none"]
    pinned = [cell for cell in judged if cell.cell.is_alone and cell.cell.memory == "pinned"] or judged
    limits = [cell.detection_limit.value for cell in pinned if cell.detection_limit.value is not None]
    return f"; a loss of {format_percent(max(limits))} of any pinned copy would have been found" if limits else ""


def loss_text(loss: CellLoss) -> str:
    """`3.1 % low`, or of a latency `12 % high`."""
    return f"{format_percent(loss.stated)} {'low' if loss.value < loss.usual else 'high'}"


def figure_text(value: float, unit: CellUnit) -> str:
    return format_gbps(value) if unit == "GB/s" else f"{value:.0f} ns"


def contrast_text(contrast: Contrast) -> str:
    """`rack=r7 on 4 of 4 slow hosts and 0 of 252 others`."""
    name = f"{clean(contrast.what, LONGEST_NAME)}={clean(contrast.value, 80)}"
    slow = f"{contrast.slow} of {counted(contrast.of_slow, 'slow host')}"
    return f"{name} on {slow} and {contrast.others} of {counted(contrast.of_others, 'other')}"


def chance_text(contrast: Contrast) -> str:
    if contrast.chance < 1e-4:  # noqa: PLR2004 - beyond it only the order matters
        return "no coincidence"
    chance = f"by chance in {format_percent(contrast.chance)} of fleets"
    return chance if contrast.significant else f"may be a coincidence: {chance}"


def groups_text(cell: CohortCell) -> str | None:
    """`two groups of 4 and 12 hosts, 7.9 % apart`."""
    groups = cell.groups
    if groups is None:
        return None
    ends = " and ".join(figure_text(value, cell.unit) for value in (groups.slower_median, groups.faster_median))
    sizes = f"{len(groups.slower)} and {len(groups.faster)} hosts"
    return f"two groups of {sizes}, {format_percent(groups.loss)} apart ({ends})"


def worst_first(hosts: Iterable[FleetHost]) -> list[FleetHost]:
    return sorted(hosts, key=lambda host: (-(0.0 if host.worst is None else host.worst.stated), host.host))


def names_text(fleet: Fleet, places: Sequence[int]) -> str:
    return some_names([fleet.hosts[place] for place in places])


def by_family(cells: Sequence[CohortCell]) -> dict[str, list[CohortCell]]:
    """Cells that differ only in the number of the GPU."""
    families: dict[str, list[CohortCell]] = defaultdict(list)
    for cell in cells:
        families[cell.cell.family.text].append(cell)
    return families


def cohort_text(alike: dict[str, str]) -> str:
    known = [value for name, value in alike.items() if name != "virtual machine" and value != "unknown"]
    virtual = alike.get("virtual machine", "no")
    return clean(", ".join([*known, *([] if virtual == "no" else [f"virtual machine ({virtual})"])]), 200)
