"""This machine as a page: every fact, or why it is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer import model, units
from pyxfer.model_tuning import RingState

from .ring_page import ring_lines
from .run_sections import peak_lines
from .terminal import Page
from .text import clean, device_text, fact_text, link_state_text, link_text, memory_text, remark_text, yes_no

_Lines = list[tuple[str, str]]


def print_machine(
    devices: Sequence[model.Device],
    links: Sequence[model.Link],
    placements: Sequence[model.Placement],
    rings: Sequence[RingState],
    environment: model.Environment,
    page: Page,
) -> None:
    """Each device with its link, its place and its ring, then what they share."""
    for device, link, placement, ring in zip(devices, links, placements, rings, strict=True):
        page.line(device_text(device), style="bold")
        page.hanging(_indented(_device_lines(device)))
        page.heading(f"Link: {link_text(link)}")
        page.hanging(_indented(_link_lines(link, device)))
        page.heading("Placement")
        page.hanging(_indented(_placement_lines(placement)))
        page.heading("Ring for staging pageable memory")
        page.hanging(_indented(ring_lines(ring)))
        page.line()
    page.line("Environment", style="bold")
    page.hanging(_indented(_environment_lines(environment)))


def _indented(lines: _Lines) -> _Lines:
    return [(f"  {name}", text) for name, text in lines]


def _device_lines(device: model.Device) -> _Lines:
    memory = [("memory", memory_text(device.memory_bytes))]
    if device.runtime == "host":
        return [("name", clean(device.name)), *memory]
    return [
        ("name", clean(device.name)),
        *memory,
        ("UUID", fact_text(device.uuid)),
        ("PCI address", fact_text(device.pci)),
        ("compute capability", fact_text(device.compute_capability)),
        ("copy engines", fact_text(device.copy_engines)),
        ("MIG instance", fact_text(device.mig, yes_no)),
        ("vGPU", fact_text(device.vgpu, yes_no)),
        ("confidential computing", fact_text(device.confidential, yes_no)),
    ]


def _link_lines(link: model.Link, device: model.Device) -> _Lines:
    if device.runtime == "host":
        return [("peaks", "none, because nothing crosses a link")]
    peaks = [(f"{name} peak", text) for name, text in peak_lines(link)]
    return [
        ("now", fact_text(link.now, link_state_text)),
        ("under load", fact_text(link.under_load, link_state_text)),
        ("device at most", fact_text(link.device_most, link_state_text)),
        ("device in this slot", fact_text(link.system_most, link_state_text)),
        ("MaxPayload", fact_text(link.max_payload_bytes, units.format_size)),
        ("MaxReadReq", fact_text(link.max_read_request_bytes, units.format_size)),
        ("relaxed ordering", fact_text(link.relaxed_ordering, yes_no)),
        *((f"hop {clean(hop.pci)}", _hop_text(hop)) for hop in link.hops),
        ("narrowest hop", fact_text(link.narrowest_hop, lambda hop: hop.pci)),
        *peaks,
        *(("remark", remark_text(remark)) for remark in link.remarks),
    ]


def _hop_text(hop: model.Hop) -> str:
    return f"now {fact_text(hop.now, link_state_text)}, at most {fact_text(hop.most, link_state_text)}"


def _placement_lines(placement: model.Placement) -> _Lines:
    return [
        ("NUMA node of the device", fact_text(placement.device_node)),
        ("CPUs for measuring", fact_text(placement.cpus)),
        ("memory from node", fact_text(placement.memory_node)),
    ]


def _environment_lines(environment: model.Environment) -> _Lines:
    return [
        ("host", f"{clean(environment.host)}, {clean(environment.taken_at)}"),
        ("pyxfer", clean(environment.pyxfer)),
        ("Python", clean(environment.python)),
        ("NumPy", clean(environment.numpy)),
        ("CUDA runtime", clean(environment.cuda_runtime)),
        ("driver", fact_text(environment.driver)),
        ("driver's CUDA", fact_text(environment.driver_cuda)),
        ("CUDA_VISIBLE_DEVICES", fact_text(environment.visible_devices)),
        ("GPU clocks", fact_text(environment.gpu_clocks, _clocks_text)),
        ("throttled by", fact_text(environment.throttle_reasons, _list_text)),
        ("performance state", fact_text(environment.performance_state)),
        ("GPU temperature", fact_text(environment.temperature_c, lambda celsius: f"{celsius} C")),
        ("persistence", fact_text(environment.persistence, yes_no)),
        ("other GPU processes", fact_text(environment.other_gpu_processes, _list_text)),
        ("CPU", f"{fact_text(environment.cpu_model)}, {environment.cpus_usable} usable"),
        ("CPU governor", fact_text(environment.cpu_governor)),
        ("memory", fact_text(environment.memory_bytes, memory_text)),
        ("memory available", fact_text(environment.memory_available_bytes, memory_text)),
        ("transparent huge pages", fact_text(environment.transparent_huge_pages)),
        ("IOMMU", fact_text(environment.iommu)),
        ("kernel", clean(environment.kernel)),
        ("system", fact_text(environment.system)),
        ("container", fact_text(environment.container)),
        ("virtual machine", fact_text(environment.virtual_machine)),
    ]


def _clocks_text(clocks: model.Clocks) -> str:
    return (
        f"SM {clocks.sm_mhz} MHz of at most {clocks.sm_most_mhz}, "
        f"memory {clocks.memory_mhz} MHz of at most {clocks.memory_most_mhz}"
    )


def _list_text(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items) or "none"
