"""What `pyxfer baseline save` and `check` measure: the link of one device, or with --links those of all GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer._cli import completion
from pyxfer._cli.completion import some_of
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._baseline.measure import AnyOrder, LinksOrder, Order
    from pyxfer._document.baselines import AnyRun, Fingerprint

LinksFlag = Annotated[
    bool, typer.Option("--links", help="Measure the links of all GPUs, as pyxfer links does, and not that of one.")
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="LIST",
        help="With --links: GPUs by index, UUID or PCI address; all by default.",
        autocompletion=some_of(completion.devices),
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="LIST",
        help="With --links: list of host, together, pairs, local, latency, numa, small; all but small by default.",
        autocompletion=some_of(completion.link_groups),
    ),
]
Engines = Annotated[
    str | None,
    typer.Option(
        "--engines",
        metavar="LIST",
        help="With --links: list of ce (copy engines, the default), sm (kernels).",
        autocompletion=some_of(completion.copy_engines),
    ),
]
_OF_ONE_DEVICE = ("device", "directions", "memories", "modes")
_OF_LINKS = ("devices", "groups", "engines")


def check_options(context: typer.Context, *, links: bool, require_gpu: bool) -> None:
    """Refuse options that the kind of measurement does not have.

    Raises:
        UsageError: one of them was given.

    """
    for name in _OF_ONE_DEVICE if links else _OF_LINKS:
        if name in context.params and _is_given(context, name):
            other = "leave out --links" if links else "add --links"
            raise UsageError(
                f"--{name} is for {'the link of one device' if links else 'links'}: leave it out, or {other}."
            )
    name = "devices" if links else "device"
    if require_gpu and context.params.get(name) == "host":
        raise UsageError(f"--{name} host and --require-gpu exclude each other: leave one of them out.")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"  # the enumeration is typer's own in some versions


def order_of_device(directions: str, memories: str, modes: str, sizes: str, budget: str) -> Order:
    """What a process measures of one device, which `Target.order` fills in."""
    from pyxfer._baseline.measure import Order
    from pyxfer._ceiling.plans import DIRECTIONS, MEMORIES, modes_of
    from pyxfer.units import seconds_of, sizes_of, words_of

    return Order(
        "",
        words_of(directions, DIRECTIONS, "--directions"),
        words_of(memories, MEMORIES, "--memories"),
        modes_of(modes, "--modes"),
        ",".join(map(str, sizes_of(sizes, "--sizes"))),
        seconds_of(budget, "--budget"),
    )


def order_of_links(
    context: typer.Context, groups: str | None, engines: str | None, sizes: str, budget: str
) -> LinksOrder:
    """What a process measures of links. Sizes and budget have the defaults of pyxfer links."""
    from pyxfer._baseline.measure import DEFAULT_ENGINES, DEFAULT_GROUPS, DEFAULT_PRECISION, LinksOrder
    from pyxfer._links.plan import make_request

    request = make_request(
        None,
        DEFAULT_GROUPS if groups is None else groups,
        DEFAULT_ENGINES if engines is None else engines,
        sizes if _is_given(context, "sizes") else None,
        DEFAULT_PRECISION,
        budget if _is_given(context, "budget") else None,
        None,
    )
    nbytes = request.host_bytes if request.sized else None
    return LinksOrder((), request.budget_s, request.groups, request.engines, nbytes)


@dataclass(frozen=True)
class Target:
    """The machine, and the names of the device or of the devices whose links are measured."""

    fingerprint: Fingerprint
    device: str = ""
    devices: tuple[str, ...] = ()

    def order(self, asked: AnyOrder) -> AnyOrder:
        """The order for this device or these devices."""
        from pyxfer._baseline.measure import LinksOrder

        if isinstance(asked, LinksOrder):
            return replace(asked, devices=self.devices)
        return replace(asked, device=self.device)

    def again(self, earlier: AnyRun) -> AnyOrder:
        """The order of an earlier run."""
        from pyxfer._baseline.measure import LinksOrder, Order
        from pyxfer._document.links import Links

        if isinstance(earlier, Links):
            return LinksOrder.again(self.devices, earlier)
        return Order.again(self.device, earlier)


def find_target(device: str, devices: str | None, *, links: bool) -> Target:
    """This machine with the device, or with the links of the devices.

    Raises:
        CudaUnavailableError: no GPU answers, and host memory was not asked for.
        UsageError: there is no such device.

    """
    from pyxfer._baseline.check import these_links, this_machine

    if links:
        fingerprint, names = these_links(devices)
        return Target(fingerprint, devices=names)
    fingerprint, found = this_machine(device)
    return Target(fingerprint, device=found)
