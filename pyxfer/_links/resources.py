"""The engine's resources of a run: kernels, peer access, flows and memory, made on first use and released together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyxfer._document.links import HOST_END
from pyxfer._document.runs import Fact
from pyxfer._links.memory import Memory
from pyxfer._measure.run import Resource, Resources
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError

if TYPE_CHECKING:
    from pyxfer._links.plan import FlowPlan, TrafficPlan
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Copier, Flow, FlowStamps, Kernels

# Far longer than any stretch of copies; a device that needs more has hung.
PATIENCE_S = 30.0
GATE_TIMEOUT_S = 1.0


class LinkResources(Resources):
    def __init__(self, engine: Engine, memory: Memory) -> None:
        super().__init__(engine)
        self.memory = memory
        self._kernels: dict[int, Kernels] = {}
        self._no_kernels: dict[int, str] = {}
        self._flows: list[Flow] = []
        self._copiers: dict[int, Copier] = {}
        self._enabled: set[tuple[int, int]] = set()

    def kernels(self, device: int) -> Kernels:
        """The kernels of a device. A failure is not tried again."""
        if device in self._no_kernels:
            raise MeasurementError(self._no_kernels[device])
        if device not in self._kernels:
            try:
                self._kernels[device] = self.engine.Kernels(device)
            except (CudaUnavailableError, DeviceLostError):
                raise
            except CudaError as error:
                self._no_kernels[device] = f"the copy kernels are not available: {error}"
                raise MeasurementError(self._no_kernels[device]) from error
        return self._kernels[device]

    def kernels_s(self, device: int) -> Fact[float]:
        try:
            return Fact(self.kernels(device).load_s)
        except MeasurementError as error:
            return Fact(reason=str(error))

    def gate(self, devices: Sequence[int]) -> Literal["kernel", "host"]:
        """Kernels open the gates of several devices together where all have them."""
        return "kernel" if all(self.kernels_s(device).value is not None for device in devices) else "host"

    def flow(self, plan: FlowPlan, traffic: TrafficPlan, depth: int) -> Flow:
        return self._kept(
            self.engine.Flow(
                device=plan.device,
                engine=traffic.engine,
                destination=self.memory.landing(plan, traffic.node, traffic.nbytes).address,
                source=self.memory.source(plan, traffic.node, traffic.nbytes).address,
                nbytes=traffic.nbytes,
                kernels=self.known_kernels(plan.device, needed=traffic.engine == "sm"),
                depth=depth,
                source_device=plan.source,
                destination_device=plan.destination,
            )
        )

    def known_kernels(self, device: int, *, needed: bool) -> Kernels | None:
        """The kernels of a device; without any None, or the error if they are needed."""
        if needed:
            return self.kernels(device)
        return self._kernels[device] if self.kernels_s(device).value is not None else None

    def any_flow(self, **settings: Any) -> Flow:
        return self._kept(self.engine.Flow(**settings))

    def _kept(self, flow: Flow) -> Flow:
        self._flows.append(flow)
        return flow

    def drop(self, flow: Flow) -> None:
        self._flows.remove(flow)
        flow.close()

    def run(
        self, flows: Sequence[Flow], devices: Sequence[int], seconds: float, *, gated: bool = True
    ) -> list[FlowStamps]:
        timeout_s = GATE_TIMEOUT_S if gated else 0.0
        return self.engine.run_flows(flows, seconds, PATIENCE_S, self.gate(devices), timeout_s)

    def copier(self, device: int) -> Copier:
        if device not in self._copiers:
            self._copiers[device] = self.engine.Copier(device, 1, PATIENCE_S)
        return self._copiers[device]

    def set_access(self, flow: FlowPlan, wanted: bool) -> None:
        """Let the two GPUs of a flow access each other's memory directly, or not; before every run that depends on it.

        It asks the driver each time, because other libraries in the process change peer access too.
        """
        if HOST_END in (flow.source, flow.destination) or flow.source == flow.destination:
            return
        for pair in ((flow.source, flow.destination), (flow.destination, flow.source)):
            if wanted:
                self.engine.enable_peer(*pair)
                self._enabled.add(pair)
            else:
                self.engine.disable_peer(*pair)
                self._enabled.discard(pair)

    def _held(self) -> list[Resource]:
        access = [_PeerAccess(self.engine, pair) for pair in self._enabled]
        return [*self._flows, *self._copiers.values(), *self._kernels.values(), *access, *self.memory.held]

    def _forget(self) -> None:
        self._flows.clear()
        self._copiers.clear()
        self._kernels.clear()
        self._enabled.clear()
        self.memory.forget()


class _PeerAccess:
    def __init__(self, engine: Engine, pair: tuple[int, int]) -> None:
        self._engine = engine
        self._pair = pair

    def close(self) -> None:
        self._engine.disable_peer(*self._pair)

    def abandon(self) -> None: ...
