"""How a ring is built: threads, chunks and slots; what they cost, and how they are made to fit."""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import msgspec

from pyxfer._document.files import write_whole
from pyxfer._document.machines import Fact
from pyxfer._document.tunings import (
    TUNING_SCHEMA_VERSION,
    KeptTuning,
    RingFill,
    RingSetup,
    Tuned,
    TuningFile,
    TuningKey,
)
from pyxfer._machine import numa
from pyxfer._machine.engine import is_host
from pyxfer._machine.pci import canonical_address, hop_gbps, read_hops, read_node
from pyxfer._machine.sysfs import read_text
from pyxfer.errors import UsageError
from pyxfer.units import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyxfer.native import Engine
    from pyxfer.native._cuda import Ring


RING_VARIABLE = "PYXFER_RING"
_EXAMPLE = f'write some of {RING_VARIABLE}="threads=8,chunk=64KiB,slots=512,fill=streaming"'


# Of many threads those that demote are the faster, and of few those that stream: on the H200 host they meet between
# eight and twelve. What was tuned is right for the threads that it was tuned with.
_FEW_THREADS = 8
_FILL_OF_FEW: Fill = "streaming"
_FILL_OF_MANY: Fill = "demoting"


@dataclass(frozen=True)
class Given:
    """What is given; the rest is None."""

    threads: int | None = None
    chunk_bytes: int | None = None
    slots: int | None = None
    fill: Fill | None = None
    spin_us: int | None = None

    @property
    def _parts(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def names(self) -> str:
        """Such as `threads and slots`; nothing where nothing is given."""
        *some, last = [name.partition("_")[0] for name in self._parts] or [""]
        return f"{', '.join(some)} and {last}" if some else last

    @property
    def needs_no_tuning(self) -> bool:
        """Whether what matters is given; the way of filling alone is not worth a second."""
        return None not in (self.threads, self.chunk_bytes, self.slots)

    def over(self, other: Given) -> Given:
        """This, and of the other what is not given here."""
        return Given(**{**other._parts, **self._parts})

    def applied_to(self, settings: RingSettings) -> RingSettings:
        """The settings with what is given; where that is few threads, filled as is right for so few.

        Raises:
            UsageError: no ring can be built like that.

        """
        is_few = isinstance(self.threads, int) and self.threads <= _FEW_THREADS  # what is none the settings refuse
        fill = _FILL_OF_FEW if is_few and settings.fill == _FILL_OF_MANY else settings.fill
        return replace(settings, **{"fill": fill, **self._parts})


def given_by_environment(environ: Mapping[str, str]) -> Given:
    """What the variable says.

    Raises:
        UsageError: it is no such text; shows one that is.

    """
    text = environ.get(RING_VARIABLE, "").strip()
    parts: dict[str, Any] = {}
    for item in text.split(",") if text else ():
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in _READ:
            _refuse(text, f"{item.strip()!r:.80} is no setting of a ring")
        field, read = _READ[name]
        if field in parts:
            _refuse(text, f"{name} is given twice")
        try:
            parts[field] = read(value)
        except ValueError as error:  # UsageErrors among them
            _refuse(text, str(error))
    found = Given(**parts)
    try:
        found.applied_to(default_settings())
    except UsageError as error:
        _refuse(text, str(error))
    return found


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"{text!r:.80} is no whole number")
    return int(text)


def _microseconds(text: str) -> int:
    """Never to spin is a choice too, and no duration otherwise."""
    return 0 if _NOUGHT.fullmatch(text) else round(parse_duration(text) * 1e6)


def _fill(text: str) -> str:
    if text not in get_args(RingFill):
        raise ValueError(f"slots are filled plain, streaming or demoting, and not {text!r:.80}")
    return text


_MOST_DIGITS = 9
_NOUGHT = re.compile(r"0+\s*(us|ms|s)?")
_READ = {
    "threads": ("threads", _whole),
    "chunk": ("chunk_bytes", parse_size),
    "slots": ("slots", _whole),
    "fill": ("fill", _fill),
    "spin": ("spin_us", _microseconds),
}


def _refuse(text: str, why: str) -> NoReturn:
    raise UsageError(f"{RING_VARIABLE} is {text!r:.200}: {why}; {_EXAMPLE}") from None


_DRIVER = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def key_of(engine: Engine, device: int, root: Path = Path("/")) -> TuningKey:
    """That of a device here and now, without NVML, which takes long to start."""
    properties = engine.device_properties(device)
    return TuningKey(
        host=platform.node().encode(errors="backslashreplace").decode(),  # whatever its encoding, JSON can have it
        device=properties.uuid or properties.name,
        driver=_driver(engine, root),
        cpus_usable=usable_cpus(),
        numa_node=node_of(engine, device).value,
        link=None if is_host(engine) else _link(properties.pci, root),
        pyxfer=_version(),
    )


def _driver(engine: Engine, root: Path) -> str:
    """Its own version where the kernel tells it, beside that of its CUDA."""
    found = _DRIVER.search(read_text(root / "proc/driver/nvidia/version").value or "")
    return f"{found[1] if found else 'unknown'}, CUDA {engine.driver_version()}"


def _link(pci: str | None, root: Path) -> str | None:
    """What the device's link can do: what it does now depends on how busy it is."""
    address = canonical_address(pci or "")
    hops = read_hops(address, root) if address else ()
    most = [hop.most for hop in hops if hop.most.value is not None]
    if not most:
        return None
    least = min(most, key=hop_gbps).value
    return f"PCIe {least.generation}.0 x{least.width}" if least else None


def _version() -> str:
    try:
        return metadata.version("pyxfer")
    except metadata.PackageNotFoundError:
        return "unknown"


CACHE_VARIABLE = "PYXFER_CACHE"
OFF = "off"
_NAME = "ring.json"
_ANOTHER = f"{CACHE_VARIABLE} names another folder"
_MOST_BYTES = 1 << 20
# Pods and containers have a new host name each time, and one home.
_MOST_TUNINGS = 32


def cache_path(environ: Mapping[str, str] = os.environ) -> Fact[Path]:
    """Where the file is, whether or not it is there."""
    named = environ.get(CACHE_VARIABLE, "")
    if named.lower() == OFF:
        return Fact(reason=f"{CACHE_VARIABLE} is {OFF}, so nothing is kept")
    if named:
        return Fact(Path(named).absolute() / _NAME)
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():  # any other is to be ignored: XDG Base Directory Specification
        return Fact(shared / "pyxfer" / _NAME)
    try:
        return Fact(Path.home() / ".cache" / "pyxfer" / _NAME)
    except RuntimeError:
        return Fact(reason=f"this user has no home; name a folder with {CACHE_VARIABLE}")


class TuningCache:
    """The file at one path. Nothing in it, or about it, raises: it is told by remarks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, key: TuningKey) -> Fact[Tuned]:
        """The tuning for that key, or why there is none."""
        kept = self._read()
        if kept.value is None:
            return Fact(reason=kept.reason)
        found = next((each.tuning for each in reversed(kept.value) if each.key == key), None)
        return Fact(reason="") if found is None else Fact(found)

    def store(self, key: TuningKey, tuning: Tuned) -> str:
        """Add it, in place of one for the same key; why that could not be done, or nothing."""
        from pyxfer._document.codec import to_json  # it imports every struct, which `pyxfer.upload` does not need

        # Read as late as can be: what another process has stored meanwhile stays, but for a moment's race.
        others = [each for each in self._read().value or () if each.key != key]
        kept = (*others[1 - _MOST_TUNINGS :], KeptTuning(key, tuning))
        try:
            if self._path.exists() and not self._path.is_file():  # a pipe that nobody reads would wait
                return f"the tuning is not kept: {str(self._path)!r} is no file; {_ANOTHER}"
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, to_json(TuningFile(TUNING_SCHEMA_VERSION, kept)) + b"\n")
        except UsageError as error:
            return f"the tuning is not kept: {error}; {_ANOTHER}"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            return f"the tuning is not kept: the folder {str(self._path.parent)!r} cannot be made ({why}); {_ANOTHER}"
        return ""

    def _read(self) -> Fact[Sequence[KeptTuning]]:
        """All that the file holds; an empty reason where there is none."""
        try:
            return Fact(_decoded(_bytes_of(self._path)))
        except FileNotFoundError:
            return Fact(reason="")
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, as is UsageError
            why = getattr(error, "strerror", None) or str(error)
            return Fact(reason=f"{str(self._path)!r} is not used ({why}); a tuning writes it anew")


def _bytes_of(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe that nobody writes to would wait
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("it is larger than any that pyxfer writes")
    return data


def _decoded(data: bytes) -> tuple[KeptTuning, ...]:
    whole = msgspec.json.decode(data)
    version = whole.get("schema_version") if isinstance(whole, dict) else None
    if version != TUNING_SCHEMA_VERSION:
        raise ValueError(f"it is of version {version!r:.20}, and this pyxfer knows {TUNING_SCHEMA_VERSION}")
    tunings = msgspec.convert(whole, TuningFile).tunings
    for each in tunings:  # what no tuning ends with was not written by pyxfer
        if settings_of(each.tuning.ring).pinned_bytes > DEFAULT_BUDGET_BYTES:
            raise ValueError(f"it holds a ring of more than {format_size(DEFAULT_BUDGET_BYTES)}")
    return tunings


Fill = RingFill
DEFAULT_BUDGET_BYTES = 256 << 20

# So little the driver sends together with the command, which no slot can beat.
DIRECT_BYTES = 32 << 10

# As csrc/ring/settings.hpp has them.
MOST_THREADS = 64
LEAST_SLOTS, MOST_SLOTS = 2, 4096
LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 4 << 10, 64 << 20
MOST_SPIN_US = 10**6

# Of a ring that has to be small: with fewer slots threads wait for one, and smaller chunks cost more copies.
_FEW_SLOTS = 16
_LEAST_SHRUNK_BYTES = 16 << 10
_MOST_DEFAULT_THREADS = 8


@dataclass(frozen=True)
class RingSettings:
    """What a ring is made of: threads that share `slots` page-locked slots, each of one chunk.

    Raises:
        UsageError: no ring can be built like that; says what can.

    """

    threads: int
    chunk_bytes: int
    slots: int
    fill: Fill
    spin_us: int

    def __post_init__(self) -> None:
        _require("threads", self.threads, 1, MOST_THREADS)
        _require("slots", self.slots, LEAST_SLOTS, MOST_SLOTS)
        _require("microseconds to spin", self.spin_us, 0, MOST_SPIN_US)
        if not _is_chunk(self.chunk_bytes):
            raise UsageError(
                f"a ring has chunks of {LEAST_CHUNK_BYTES} to {MOST_CHUNK_BYTES} bytes, a power of two, and not of "
                f"{self.chunk_bytes!r:.40}"
            )
        if self.fill not in get_args(Fill):
            raise UsageError(f"a ring fills its slots plain, streaming or demoting, and not {self.fill!r:.40}")

    @property
    def pinned_bytes(self) -> int:
        """The page-locked memory that the ring holds."""
        return self.slots * self.chunk_bytes

    @property
    def least_bytes(self) -> int:
        """The smallest budget that these fit into."""
        return LEAST_SLOTS * self._least_chunk_bytes

    def within(self, budget_bytes: int) -> RingSettings:
        """These, or as near to them as that much page-locked memory allows: fewer slots, and smaller chunks.

        Threads stay as they are, because they hold no such memory.

        Raises:
            UsageError: the budget is below the least; names it.

        """
        if budget_bytes < self.least_bytes:
            raise UsageError(
                f"a budget of {format_size(budget_bytes)} is too small for any ring: give at least "
                f"{format_size(self.least_bytes)}"
            )
        few = min(self.slots, _FEW_SLOTS)
        chunk = self.chunk_bytes
        while chunk > self._least_chunk_bytes and few * chunk > budget_bytes:
            chunk //= 2
        return replace(self, chunk_bytes=chunk, slots=min(self.slots, budget_bytes // chunk))

    @property
    def _least_chunk_bytes(self) -> int:
        return min(self.chunk_bytes, _LEAST_SHRUNK_BYTES)


def usable_cpus() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0))


def default_settings() -> RingSettings:
    """What is good on most hosts, before anything was measured."""
    threads = max(1, min(_MOST_DEFAULT_THREADS, usable_cpus() - 1))
    return RingSettings(threads=threads, chunk_bytes=64 << 10, slots=512, fill="streaming", spin_us=20)


def settings_of(setup: RingSetup) -> RingSettings:
    """Those of a document.

    Raises:
        UsageError: no ring can be built like that.

    """
    return RingSettings(setup.threads, setup.chunk_bytes, setup.slots, setup.fill, setup.spin_us)


def setup_of(settings: RingSettings) -> RingSetup:
    """As a document has them."""
    return RingSetup(**asdict(settings))


def make_ring(engine: Engine, device: int, settings: RingSettings) -> Ring:
    """A ring like that, its threads and its slots near the device.

    Raises:
        CudaMemoryError: page-locked memory ran out.

    """
    with numa.bind(engine, node_of(engine, device)):  # threads inherit the CPUs of the one that starts them
        return engine.Ring(
            device,
            threads=settings.threads,
            chunk_bytes=settings.chunk_bytes,
            slots=settings.slots,
            fill=settings.fill,
            spin_us=settings.spin_us,
            direct_bytes=DIRECT_BYTES,
        )


def node_of(engine: Engine, device: int) -> Fact[int]:
    """The NUMA node that the device hangs on, as the kernel alone tells it: NVML takes long to start."""
    address = None if is_host(engine) else canonical_address(engine.device_properties(device).pci or "")
    return read_node(address) if address else Fact(reason="the device has no PCI address")


def _is_chunk(given: int) -> bool:
    return type(given) is int and LEAST_CHUNK_BYTES <= given <= MOST_CHUNK_BYTES and given & (given - 1) == 0


def _require(what: str, given: int, least: int, most: int) -> None:
    if type(given) is not int or not least <= given <= most:
        raise UsageError(f"a ring has {least} to {most} {what}, and not {given!r:.40}")
