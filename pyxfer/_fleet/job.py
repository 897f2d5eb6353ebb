"""The host job: one document of everything that a fleet judges of one host, within seconds."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from pyxfer._baseline.causes import facts_of
from pyxfer._doctor.examine import examine
from pyxfer._doctor.session import examine_device
from pyxfer._document.examinations import Finding
from pyxfer._document.fleets import HostReport
from pyxfer._document.links import Links
from pyxfer._document.machines import Device, Fact, LinkState, describe
from pyxfer._document.runs import Ending, Run
from pyxfer._fleet.cells import cells_of_links, cells_of_run
from pyxfer._links.plan import DEFAULT_PRECISION, make_request
from pyxfer._links.session import run_on
from pyxfer._machine.devices import find_device, list_devices
from pyxfer._machine.numa import device_node
from pyxfer._machine.sysfs import read_text
from pyxfer._measure.link_runs import runs_of
from pyxfer._measure.sampler import OnProgress, silent
from pyxfer.errors import CudaUnavailableError, PyxferError, UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import items_of, seconds_of

DEFAULT_BUDGET_S = 25.0
MIN_BUDGET_S = 5.0
CLOSING_S = 2.5
"""At the end of the budget: for a run to end that was asked to, and to be written."""
LABELS_VARIABLE = "PYXFER_LABELS"
# Measuring is planned for this part of the time before. Preparation of many GPUs and invalid trials take from the rest.
_PLANNED = 0.75
_ALONE_SHARE = 0.65
_MAX_ALONE_S, _MAX_LINKS_S = 6.0, 8.0
_LINKS_BYTES = "64MiB"
_HOST_LINKS_BYTES = "4MiB"
"""Of the host runtime: 64 MiB would be a copy of ordinary memory that takes long on a small machine."""
_MAX_EXAMINED = 2
REPORTED = ("wrong", "suspicious")
_MAX_LABELS, _LONGEST_LABEL = 50, 200
_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")


def budget_of(budget: str) -> float:
    budget_s = seconds_of(budget, "--budget")
    if budget_s < MIN_BUDGET_S:
        raise UsageError(f"--budget {budget} is too short for a host: give at least {MIN_BUDGET_S:g} s.")
    return budget_s


def labels_of(texts: Iterable[str], variables: Mapping[str, str]) -> dict[str, str]:
    """The labels of `PYXFER_LABELS` ("rack=r7,switch=s2"), and above them those given as `rack=r7`."""
    from_environment = variables.get(LABELS_VARIABLE, "")
    found = dict(_label(text, LABELS_VARIABLE) for text in from_environment.split(",") if text.strip())
    given = [_label(text, "--label") for text in texts]
    if len(dict(given)) < len(given):
        raise UsageError("--label gives the same name twice: give each once.")
    found.update(given)
    if len(found) > _MAX_LABELS:
        raise UsageError(f"--label: {len(found)} labels are too many: a host has at most {_MAX_LABELS}.")
    return found


def is_label(name: str, value: str) -> bool:
    return _LABEL_NAME.fullmatch(name) is not None and 0 < len(value) <= _LONGEST_LABEL


def _label(text: str, where: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    if not is_label(name, value):
        raise UsageError(
            f"{where}: {text!r:.80} is not a label: write it as rack=r7, with letters and digits on the left."
        )
    return name, value


def find_devices(devices: str | None, *, require_gpu: bool = False) -> tuple[Choice, tuple[Device, ...]]:
    """The engine and the chosen devices: all by default, `host` for host memory, else indices, UUIDs or addresses."""
    if devices == HOST and require_gpu:
        raise UsageError("--device host is host memory, but a GPU is required: leave out one of the two.")
    choice = choose(HOST if devices == HOST else 0, require_gpu)
    every = list_devices(choice.engine)
    if devices in (None, HOST) or choice.runtime == "host":  # without a GPU no selector fits
        return choice, every
    chosen = [find_device(choice.engine, selector) for selector in items_of(devices, "--device")]
    return choice, tuple({device.index: device for device in chosen}.values())


@dataclass
class Job:
    """One host job. `report()` is the document so far, at any time and from any thread.

    `_name`: of the host, by default that of the machine.
    """

    _choice: Choice
    _devices: tuple[Device, ...]
    _labels: dict[str, str]
    _budget_s: float = DEFAULT_BUDGET_S
    _on_progress: OnProgress = silent
    _name: str | None = None

    def __post_init__(self) -> None:
        self._started = time.perf_counter()
        self._until = self._started + _PLANNED * (self._budget_s - CLOSING_S)
        self._began_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._runs: dict[int, Run] = {}
        self._links: Links | None = None
        self._findings: list[tuple[int, Finding]] = []
        self._failures: list[str] = []
        self._ended: Ending = "complete"

    def run(self) -> HostReport:
        """Measure every GPU alone, then all together. Ctrl-C ends it with what has been measured."""
        try:
            examined = _examined(self._devices)
            for place, device in enumerate(examined):
                self._measure_alone(device, len(examined) - place)
                if self._ended == "interrupted":
                    return self.report()
            if not self._failures:  # a GPU that failed alone would hold up all others
                self._measure_links()
        except KeyboardInterrupt:
            self._ended = "interrupted"
        return self.report()

    def _measure_alone(self, device: Device, left: int) -> None:
        seconds = min(_MAX_ALONE_S, max(0.1, _ALONE_SHARE * self._left_s() / left))
        try:
            run, examination = examine_device(
                self._choice, device, seconds, self._on_progress, far=False, complete=True, save_to=self._keep_run
            )
        except (PyxferError, MemoryError) as error:
            self._note_failure(f"GPU {device.index}: {error}", error)
            return
        self._note_findings(device, examination.findings)
        self._note_end(f"GPU {device.index}", run)

    def _measure_links(self) -> None:
        size = _LINKS_BYTES if self._choice.runtime == "cuda" else _HOST_LINKS_BYTES
        seconds = min(_MAX_LINKS_S, max(0.1, self._left_s()))
        request = make_request(None, ("together",), ("ce",), size, DEFAULT_PRECISION, seconds, None)
        brief, report = replace(request, brief=True, complete=True), self._on_progress
        keep = partial(setattr, self, "_links")
        try:
            links = run_on(self._choice, self._devices, brief, on_progress=report, save_to=keep)
        except (PyxferError, MemoryError) as error:
            self._note_failure(f"links: {error}", error)
            return
        self._note_end("links", links)
        for run in self._other_runs():
            self._note_findings(run.device, examine(run))

    def _other_runs(self) -> list[Run]:
        runs = () if self._links is None else runs_of(self._links)
        return [run for run in runs if run.device.index not in self._runs]

    def _note_findings(self, device: Device, findings: Iterable[Finding]) -> None:
        self._findings += [(device.index, finding) for finding in findings if finding.status in REPORTED]

    def _keep_run(self, run: Run) -> None:
        """Keep the run, or what there is of it, for a report when the job is stuck."""
        self._runs[run.device.index] = run

    def _note_end(self, what: str, found: Run | Links) -> None:
        if found.ended == "interrupted":
            self._ended = "interrupted"
        elif found.ended == "failed":
            self._failures.append(f"{what}: {found.failure}")

    def _note_failure(self, text: str, error: BaseException) -> None:
        if isinstance(error, CudaUnavailableError) and not self._runs:
            raise error
        self._failures.append(text)

    def _left_s(self) -> float:
        return self._until - time.perf_counter()

    def report(self, failure: str | None = None) -> HostReport:
        """The document so far. `failure`: why the job does not go on."""
        runs, links = tuple(self._runs.values()), self._links
        failures = [*self._failures, *([failure] if failure else [])]
        environment = runs[0].environment if runs else None
        if environment is not None and self._name is not None:  # in a container the host has another name
            environment = msgspec.structs.replace(environment, host=self._name)
        # Each remark once, because most of them are of the host and not of a GPU.
        of_links = () if links is None else links.remarks
        # With one GPU, the remark that nothing was measured together is expected.
        others = (remark for remark in of_links if remark.code != "one-device")
        return HostReport(
            kind="host",
            ended="failed" if failures else self._ended,
            began_at=self._began_at,
            duration_s=time.perf_counter() - self._started,
            runtime=self._choice.runtime,
            runtime_reason=self._choice.reason,
            environment=environment,
            devices=self._devices,
            labels=self._labels,
            cells=(*chain.from_iterable(map(cells_of_run, runs)), *(cells_of_links(links) if links else ())),
            facts=read_facts([*runs, *self._other_runs()]),
            findings=tuple(_merged(self._findings, len(self._devices))),
            remarks=tuple(dict.fromkeys((*chain.from_iterable(run.remarks for run in runs), *others))),
            failure="; ".join(failures) or None,
        )


def _examined(devices: Sequence[Device]) -> Sequence[Device]:
    """The GPUs that the doctor examines, with pageable memory: of many the first of each NUMA node.

    Allocating what these copies need takes seconds for each, and what they show depends on the processor.
    """
    if len(devices) <= _MAX_EXAMINED:
        return devices
    first: dict[int | None, Device] = {}
    for device in devices:
        first.setdefault(device_node(device).value, device)
    return tuple(first.values())


def _merged(found: Sequence[tuple[int, Finding]], devices: int) -> Iterator[Finding]:
    alike: dict[Finding, list[int]] = {}
    for device, finding in found:
        alike.setdefault(finding, []).append(device)
    for finding, numbers in alike.items():
        of_some = "" if len(numbers) == devices else f" of GPU {', '.join(map(str, numbers))}"
        yield msgspec.structs.replace(finding, subject=finding.subject + of_some)


# --- facts that may explain why a host is slower than others ----------------------------------------------------------

# Of one host alone, so that they have nothing in common with a loss; or known from elsewhere in the document.
_NO_FACTS = {"slot (PCI address)", "link", "best link of the device", "best link of the slot", "narrowest hop"}
_OWN_PARAMETERS = {"BOOT_IMAGE", "initrd", "root", "resume", "ip", "rd.luks.uuid", "rootflags", "hostname", "ro", "rw"}
_MAX_PARAMETERS, _LONGEST_PARAMETER, _LONGEST_FACT = 100, 100, 200

_FACT_FILES = {
    "BIOS": "sys/class/dmi/id/bios_version",
    "BIOS date": "sys/class/dmi/id/bios_date",
    "board": "sys/class/dmi/id/board_name",
    "NUMA balancing": "proc/sys/kernel/numa_balancing",
    "processor turned down (no_turbo)": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "ASPM policy": "sys/module/pcie_aspm/parameters/policy",
    "deepest C-state": "sys/module/intel_idle/parameters/max_cstate",
    "microcode": "sys/devices/system/cpu/cpu0/microcode/version",
}


def read_facts(
    runs: Sequence[Run], root: Path = Path("/"), variables: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The known facts by name. A fact of several GPUs has each distinct value once, whichever GPU has it."""
    return {name: value[:_LONGEST_FACT] for name, value in _facts(runs, root, variables)}


def _facts(runs: Sequence[Run], root: Path, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    texts_of: dict[str, list[str | None]] = defaultdict(list)
    for name, text in chain.from_iterable(facts_of(run).items() for run in runs):
        if name not in _NO_FACTS:
            texts_of[name].append(text)
    texts_of |= {
        "link capability": [_described(run.link.system_most, run.link.device_most) for run in runs],
        "link state": [_described(run.link.under_load, run.link.now) for run in runs],
        "narrowest hop": [_described(hop.working) if (hop := run.link.narrowest_hop.value) else None for run in runs],
    }
    for name, texts in texts_of.items():
        if known := {text for text in texts if text is not None}:
            yield name, " and ".join(sorted(known))
    for name, file in _FACT_FILES.items():
        if (content := read_text(root / file).value) is not None:
            yield name, content
    yield from _kernel_parameters(root)
    if "CUDA_MPS_PIPE_DIRECTORY" in variables:
        yield "MPS", "on"


def _described(*states: Fact[LinkState]) -> str | None:
    return next((describe(state.value) for state in states if state.value is not None), None)


def _kernel_parameters(root: Path) -> Iterator[tuple[str, str]]:
    """Each parameter of the kernel's command line by itself, because whole lines name disks and differ everywhere.

    What follows a `--` is for the first process, and addresses and long values are of one installation.
    """
    words = (read_text(root / "proc/cmdline").value or "").split()
    for word in words[: words.index("--") if "--" in words else _MAX_PARAMETERS]:
        name, _, value = word.partition("=")
        if name not in _OWN_PARAMETERS and "://" not in value and len(word) <= _LONGEST_PARAMETER:
            yield f"kernel parameter {name}", value or "given"
