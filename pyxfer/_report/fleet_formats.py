"""A fleet for other programs: Prometheus, a drain reason for Slurm, node-problem-detector and Nagios.

Node names go into shells and schedulers from here, so they and every text have safe characters only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from pyxfer._document.fleets import Contrast, Fleet, FleetHost, HostVerdict, hosts_once
from pyxfer._report.fleet_words import contrast_text, host_name, loss_text, sentence, worst_first
from pyxfer._report.prometheus import Gauge, exposed, gauges
from pyxfer._report.text import clean

LONGEST_REASON = 120
"""Slurm's tools show about this many characters of a reason."""
LONGEST_LINE = 1000
OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
"""The exit codes of Nagios plugins. Of node-problem-detector's: 0 is fine, 1 a problem, 2 unknown."""

_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:;=+/()%_>-]")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_NOT_ONE_NODE = {"ALL", "DEFAULT"}
"""To Slurm, in any case: every node, and the settings of all nodes."""


def safe(text: str, longest: int) -> str:
    """One line of letters, digits and marks that mean nothing to a shell in quotes, Slurm or Nagios."""
    line = " ".join(_UNSAFE.sub("_", clean(text, LONGEST_LINE).replace("'", "")).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def drain_lines(fleet: Fleet) -> str:
    """`HOST REASON` for each slow host. Hosts that cannot be drained are left out."""
    slow = [host for host in worst_first(fleet.with_verdict("slow")) if can_be_drained(host)]
    causes = causes_of(fleet)
    return "".join(f"{host.host} {drain_reason(host, causes.get(host.host))}\n" for host in slow)


def can_be_drained(host: FleetHost) -> bool:
    """Whether the name is that of one node, and not only its document says so."""
    return host.named and _HOST_NAME.fullmatch(host.host) is not None and host.host.upper() not in _NOT_ONE_NODE


def causes_of(fleet: Fleet) -> dict[str, Contrast]:
    sure = [contrast for contrast in fleet.contrasts if contrast.significant]
    return {fleet.hosts[place].host: contrast for contrast in reversed(sure) for place in contrast.hosts}


def drain_reason(host: FleetHost, cause: Contrast | None) -> str:
    """At most 120 safe characters. They begin with `pyxfer:`, so that who has drained a node can be seen later."""
    worst = host.worst
    if worst is None:
        return safe(f"pyxfer: {host.verdict}", LONGEST_REASON)
    more = f" and {len(host.losses) - 1} more" if len(host.losses) > 1 else ""
    why = "" if cause is None else f"; {cause.what}={cause.value}"
    return safe(f"pyxfer: {loss_text(worst)} in {worst.cell.text}{more}{why}", LONGEST_REASON)


def npd_line(fleet: Fleet, name: str | None) -> tuple[str, int]:
    text, slow, known = _state_of(fleet, name)
    return safe(text, LONGEST_LINE), OK if known and not slow else 1 if slow else 2


def nagios_line(fleet: Fleet, name: str | None) -> tuple[str, int]:
    text, slow, known = _state_of(fleet, name)
    counts = Counter(host.verdict for host in (hosts_once(fleet) if name is None else [fleet.host(name)]))
    code = CRITICAL if slow else WARNING if counts["suspect"] else OK if known else UNKNOWN
    word = ("OK", "WARNING", "CRITICAL", "UNKNOWN")[code]
    figures = f"slow={counts['slow']};;0 suspect={counts['suspect']};0 missing={counts['not judged']}"
    return f"PYXFER {word} - {safe(text, LONGEST_LINE)} | {figures}", code


def unknown_line(line: str, reason: str) -> tuple[str, int]:
    text = safe(reason, LONGEST_LINE)
    return (f"PYXFER UNKNOWN - {text}", UNKNOWN) if line == "nagios" else (text, 2)


def _state_of(fleet: Fleet, name: str | None) -> tuple[str, bool, bool]:
    if name is None:
        verdicts = {host.verdict for host in hosts_once(fleet)}
        return sentence(fleet), "slow" in verdicts, verdicts == {"fine"}
    host = fleet.host(name)
    is_known = host.verdict not in ("not judged", "suspect")
    return host_text(host, causes_of(fleet).get(host.host)), host.verdict == "slow", is_known


def host_text(host: FleetHost, cause: Contrast | None) -> str:
    worst, name = host.worst, host_name(host)
    if host.verdict == "not judged":
        return f"{name} was not judged: {host.state}, {clean(host.reason or 'no reason given', 200)}"
    if worst is None or host.verdict == "fine":
        return f"{name} is as fast as the others"
    why = "" if cause is None else f"; {contrast_text(cause)}"
    return f"{name} is {host.verdict}: {loss_text(worst)} in {clean(worst.cell.text)}{why}"


def _gauges(fleet: Fleet) -> Iterator[Gauge]:
    hosts = hosts_once(fleet)
    counts = Counter(host.verdict for host in hosts)
    verdicts: tuple[HostVerdict, ...] = ("fine", "slow", "suspect", "not judged")
    yield (
        *("pyxfer_fleet_hosts", "Hosts by their verdict.", ("verdict",)),
        [((verdict,), float(counts[verdict])) for verdict in verdicts],
    )
    yield (
        *("pyxfer_fleet_host_slow", "1 of a slow host, 0 of one that is fine.", ("host",)),
        [((host.host,), float(host.verdict == "slow")) for host in hosts if host.verdict in ("fine", "slow")],
    )
    yield (
        *("pyxfer_fleet_loss_ratio", "Loss of a flagged host, as a share.", ("host", "cell", "verdict")),
        [((host.host, loss.cell.text, host.verdict), loss.stated) for host in hosts for loss in host.losses],
    )
    yield (
        *("pyxfer_fleet_detection_limit_ratio", "Smallest loss that would be found.", ("cohort", "cell")),
        [
            ((str(number), cell.cell.text), cell.detection_limit.value)
            for number, cohort in enumerate(fleet.cohorts)
            for cell in cohort.cells
            if cell.detection_limit.value is not None
        ],
    )


def prometheus_text(fleet: Fleet) -> str:
    return exposed(lambda: gauges(_gauges(fleet))).decode()
