"""What `pyxfer baseline save` and `check` measure: the link of one device, or with --links those of all GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer._cli import completion
from pyxfer._cli import options as opt
from pyxfer._cli.defaults import is_given
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._baseline.measure import AnyRequest, LinksRequest, RunRequest
    from pyxfer._document.baselines import AnyRun, Fingerprint

LinksFlag = Annotated[
    bool, typer.Option("--links", help="Measure the links of all GPUs, as pyxfer links does, and not that of one.")
]
_DEVICES = "A GPU by index, UUID or PCI address, default 0; with --links a list, all by default."
_GROUPS = "With --links: list of host, together, pairs, local, latency, numa, small; all but small by default."
_ENGINES = "With --links: list of ce (copy engines, the default), sm (kernels)."
Devices = Annotated[str | None, opt.listed("--device", _DEVICES, completion.devices)]
Groups = Annotated[str | None, opt.listed("--group", _GROUPS, completion.link_groups)]
Engines = Annotated[str | None, opt.listed("--engine", _ENGINES, completion.copy_engines)]
_OF_ONE_DEVICE = ("direction", "memory", "mode")
_OF_LINKS = ("group", "engine")


def check_options(context: typer.Context, *, links: bool, require_gpu: bool) -> None:
    for name in _OF_ONE_DEVICE if links else _OF_LINKS:
        if name in context.params and is_given(context, name):
            other = "leave out --links" if links else "add --links"
            raise UsageError(
                f"--{name} is for {'the link of one device' if links else 'links'}: leave it out, or {other}."
            )
    if not links and "," in (context.params.get("device") or ""):
        raise UsageError("Several devices are for links: name one, or add --links.")
    if require_gpu and context.params.get("device") == "host":
        raise UsageError("--device host and --require-gpu exclude each other: leave one of them out.")


def request_of_device(direction: str, memory: str, mode: str, size: str, budget: str) -> RunRequest:
    """What a process measures of one device, which `Target.request` fills in."""
    from pyxfer._baseline.measure import RunRequest
    from pyxfer._ceiling.plans import DIRECTIONS, MEMORIES, modes_of
    from pyxfer.units import seconds_of, sizes_of, words_of

    return RunRequest(
        "",
        words_of(direction, DIRECTIONS, "--direction"),
        words_of(memory, MEMORIES, "--memory"),
        modes_of(mode, "--mode"),
        ",".join(map(str, sizes_of(size, "--size"))),
        seconds_of(budget, "--budget"),
    )


def request_of_links(
    context: typer.Context, group: str | None, engine: str | None, size: str, budget: str
) -> LinksRequest:
    """What a process measures of links. Sizes and budget have the defaults of pyxfer links."""
    from pyxfer._baseline.measure import DEFAULT_ENGINES, DEFAULT_GROUPS, DEFAULT_PRECISION, LinksRequest
    from pyxfer._links.plan import make_request

    request = make_request(
        None,
        DEFAULT_GROUPS if group is None else group,
        DEFAULT_ENGINES if engine is None else engine,
        size if is_given(context, "size") else None,
        DEFAULT_PRECISION,
        budget if is_given(context, "budget") else None,
        None,
    )
    nbytes = request.host_bytes if request.sized else None
    return LinksRequest((), request.budget_s, request.groups, request.engines, nbytes)


@dataclass(frozen=True)
class Target:
    fingerprint: Fingerprint
    device: str = ""
    devices: tuple[str, ...] = ()

    def request(self, asked: AnyRequest) -> AnyRequest:
        from pyxfer._baseline.measure import LinksRequest

        if isinstance(asked, LinksRequest):
            return replace(asked, devices=self.devices)
        return replace(asked, device=self.device)

    def again(self, earlier: AnyRun) -> AnyRequest:
        from pyxfer._baseline.measure import LinksRequest, RunRequest
        from pyxfer._document.links import Links

        if isinstance(earlier, Links):
            return LinksRequest.again(self.devices, earlier)
        return RunRequest.again(self.device, earlier)


def find_target(device: str | None, *, links: bool) -> Target:
    from pyxfer._baseline.check import these_links, this_machine

    if links:
        fingerprint, names = these_links(device)
        return Target(fingerprint, devices=names)
    fingerprint, found = this_machine("0" if device is None else device)
    return Target(fingerprint, device=found)
