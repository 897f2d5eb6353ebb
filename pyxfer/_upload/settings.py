"""The settings of rings: their limits, those that a user sets, those for files, and the file of tuned ones."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args

import msgspec

from pyxfer._config import machine_setting
from pyxfer._document.machines import Fact, LinkState, describe, version_of
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
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Ring


# --- settings --------------------------------------------------------------------------------------------------------

DEFAULT_BUDGET_BYTES = 256 << 20

# The driver sends copies up to this size together with the command, which no slot can beat.
DIRECT_BYTES = 32 << 10

# The driver has read an upload of this size when its call returns, without a wait for the earlier work of the stream
# (csrc/ring/ring.hpp).
MAX_AT_ONCE_BYTES = 1 << 20

# An upload of two chunks to this many has ended before a second thread is awake (csrc/ring/settings.hpp).
_CHUNKS_OF_DRIVER = 4
LARGEST_TUNED_CHUNK_BYTES = 256 << 10


def is_left_to_driver(nbytes: int, chunk_bytes: int | None) -> bool:
    """Whether an upload goes past the slots; without the ring's `chunk_bytes`, whether it may with tuned settings."""
    if nbytes < DIRECT_BYTES:
        return True
    least = 0 if chunk_bytes is None else chunk_bytes
    return least < nbytes <= _CHUNKS_OF_DRIVER * (chunk_bytes or LARGEST_TUNED_CHUNK_BYTES)


# The same limits as in csrc/ring/settings.hpp.
MAX_THREADS = 64
MIN_SLOTS, MAX_SLOTS = 2, 4096
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4 << 10, 64 << 20
MAX_SPIN_US = 10**6

# A small budget is divided into this many slots or more, as long as chunks do not become smaller than that: with fewer
# slots threads wait for one, and smaller chunks cost more copies.
_FEW_SLOTS = 16
_SMALLEST_SHRUNK_CHUNK_BYTES = 16 << 10


class RingSettings(RingSetup, frozen=True):
    """A setup within the limits of the engine."""

    def __post_init__(self) -> None:
        for value, least, most, name in (
            (self.threads, 1, MAX_THREADS, "threads"),
            (self.slots, MIN_SLOTS, MAX_SLOTS, "slots"),
            (self.spin_us, 0, MAX_SPIN_US, "microseconds to spin"),
        ):
            if type(value) is not int or not least <= value <= most:
                raise UsageError(f"a ring must have {least} to {most} {name}; got {value!r:.40}")
        chunk = self.chunk_bytes
        if type(chunk) is not int or not MIN_CHUNK_BYTES <= chunk <= MAX_CHUNK_BYTES or chunk & (chunk - 1):
            raise UsageError(
                f"the chunks of a ring must be a power of two from {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES} bytes; got "
                f"{chunk!r:.40}"
            )
        if self.fill not in get_args(RingFill):
            raise UsageError(f"the fill of a ring must be plain, streaming or demoting; got {self.fill!r:.40}")

    @property
    def min_budget_bytes(self) -> int:
        return MIN_SLOTS * self._min_shrunk_chunk_bytes

    def within(self, budget_bytes: int) -> RingSettings:
        """Reduce the slots, and then the chunks, until the page-locked memory fits the budget.

        Threads stay as they are, because they hold no page-locked memory.
        """
        if budget_bytes < self.min_budget_bytes:
            raise UsageError(
                f"max_pinned {format_size(budget_bytes)} is too small for any ring: give at least "
                f"{format_size(self.min_budget_bytes)}"
            )
        few = min(self.slots, _FEW_SLOTS)
        chunk = self.chunk_bytes
        while chunk > self._min_shrunk_chunk_bytes and few * chunk > budget_bytes:
            chunk //= 2
        return msgspec.structs.replace(self, chunk_bytes=chunk, slots=min(self.slots, budget_bytes // chunk))

    @property
    def _min_shrunk_chunk_bytes(self) -> int:
        return min(self.chunk_bytes, _SMALLEST_SHRUNK_CHUNK_BYTES)


def usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def default_settings() -> RingSettings:
    """Settings that are good on most hosts, used before a tuning."""
    threads = max(1, min(8, usable_cpus() - 1))
    return RingSettings(threads=threads, chunk_bytes=64 << 10, slots=512, fill="streaming", spin_us=20)


def settings_of(setup: RingSetup) -> RingSettings:
    return RingSettings(*msgspec.structs.astuple(setup))


def setup_of(settings: RingSettings) -> RingSetup:
    """The settings as a document has them: structs of two types are never equal."""
    return RingSetup(*msgspec.structs.astuple(settings))


def make_ring(engine: Engine, device: int, settings: RingSettings) -> Ring:
    with numa.bind(engine, node_of(engine, device)):  # the ring's threads inherit the CPUs of this thread
        return engine.Ring(device, **msgspec.structs.asdict(settings), direct_bytes=DIRECT_BYTES)


def node_of(engine: Engine, device: int) -> Fact[int]:
    """The NUMA node of the device. The kernel reports it, because NVML takes long to start."""
    address = None if is_host(engine) else canonical_address(engine.device_properties(device).pci or "")
    return read_node(address) if address else Fact(reason="the device has no PCI address")


# --- settings that users give, in a call, by a variable or in a file --------------------------------------------------

# Demoting is faster with many threads, streaming with few: on the H200 host the two are equal between eight and twelve.
# A tuned fill is right only for the threads that it was tuned with.
_FEW_THREADS = 8


class PartialSettings(NamedTuple):
    """Settings of which some are given; the others are None."""

    threads: int | None = None
    chunk_bytes: int | None = None
    slots: int | None = None
    fill: RingFill | None = None
    spin_us: int | None = None

    @property
    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def names(self) -> str:
        """The names of the given settings, such as `threads and slots`; empty if none is given."""
        *some, last = [name.partition("_")[0] for name in self._given] or [""]
        return f"{', '.join(some)} and {last}" if some else last

    @property
    def needs_no_tuning(self) -> bool:
        """Whether all settings but the fill are given: a fill alone is not worth a second of tuning."""
        return None not in (self.threads, self.chunk_bytes, self.slots)

    def completed_by(self, other: PartialSettings) -> PartialSettings:
        return PartialSettings(**{**other._given, **self._given})

    def applied_to(self, settings: RingSettings) -> RingSettings:
        """Replace the given settings. If few threads are given, demoting becomes streaming."""
        are_few = isinstance(self.threads, int) and self.threads <= _FEW_THREADS
        fill = "streaming" if are_few and settings.fill == "demoting" else settings.fill
        return msgspec.structs.replace(settings, **{"fill": fill, **self._given})


RING_VARIABLE = "PYXFER_RING"
READ_RING_VARIABLE = "PYXFER_READ_RING"
_KEYS = {RING_VARIABLE: "ring", READ_RING_VARIABLE: "read_ring"}
_EXAMPLES = {
    "ring": "threads=8,chunk=64KiB,slots=512,fill=streaming",
    "read_ring": "threads=16,chunk=256KiB,slots=128",
}


def settings_set(environ: Mapping[str, str], variable: str = RING_VARIABLE) -> tuple[PartialSettings, str]:
    """The settings that a variable or a file of the user sets, and where; the text is empty if none does."""
    text = environ.get(variable, "").strip()
    key = _KEYS[variable]
    if text:
        return _parse(text, f"{variable}=", variable, key), f"{variable}={text}"
    setting = machine_setting(key)
    if setting is None:
        return PartialSettings(), ""
    text = setting.value.strip()
    return _parse(text, f"{setting.where} ", key, key), f"{setting.where}: {text}"


def _parse(text: str, where: str, name: str, key: str) -> PartialSettings:
    def refuse(why: str) -> NoReturn:
        raise UsageError(f'{where}{text!r:.200} cannot be used: {why}. Example: {name}="{_EXAMPLES[key]}"') from None

    values: dict[str, Any] = {}
    for item in text.split(",") if text else ():
        setting, equals, value = (part.strip() for part in item.partition("="))
        if not equals or setting not in _PARSERS:
            refuse(f"{item.strip()!r:.80} is not a setting of a ring")
        if key == "read_ring" and setting == "fill":
            refuse("the system fills the slots when it reads a file")
        field, parse = _PARSERS[setting]
        if field in values:
            refuse(f"{setting} is given twice")
        try:
            values[field] = parse(value)
        except ValueError as error:  # UsageError is a ValueError
            refuse(str(error))
    settings = PartialSettings(**values)
    try:
        settings.applied_to(default_settings())
    except UsageError as error:
        refuse(str(error))
    return settings


def _parse_integer(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(f"{text!r:.80} is not a whole number")
    return int(text)


def _parse_microseconds(text: str) -> int:
    is_zero = re.fullmatch(r"0+\s*(us|ms|s)?", text)  # parse_duration refuses it
    return 0 if is_zero else round(parse_duration(text) * 1e6)


_PARSERS: dict[str, tuple[str, Callable[[str], int | str]]] = {
    "threads": ("threads", _parse_integer),
    "chunk": ("chunk_bytes", parse_size),
    "slots": ("slots", _parse_integer),
    "fill": ("fill", str),
    "spin": ("spin_us", _parse_microseconds),
}


# --- the ring that reads files ---------------------------------------------------------------------------------------

# Hosts with 16 processors and an H100 or H200 read 46 to 49 GB/s with these, from the page cache of ext4 or tmpfs.
# With 16 threads it is 40 to 48, and with 12 down to 18 from tmpfs. 32 MiB are as much as the second-level caches of
# the processors hold; from half of that the device reads 37 GB/s, because it waits for these caches.
_MAX_READERS = 15
_READ_CHUNK_BYTES = 256 << 10
_READ_SLOTS = 128


def read_settings(engine: Engine, device: int, environ: Mapping[str, str] = os.environ) -> RingSettings:
    """The settings of the ring that reads files: not tuned, because they would depend on each file system."""
    given, _ = settings_set(environ, READ_RING_VARIABLE)
    with numa.bind(engine, node_of(engine, device)):  # as the threads will be
        threads = min(_MAX_READERS, usable_cpus())
    return given.applied_to(RingSettings(threads, _READ_CHUNK_BYTES, _READ_SLOTS, fill="plain", spin_us=20))


# --- what a tuning depends on ----------------------------------------------------------------------------------------


def tuning_key(engine: Engine, device: int, root: Path = Path("/")) -> TuningKey:
    """All that a tuning of this device depends on, read without NVML, which takes long to start."""
    properties = engine.device_properties(device)
    shown = read_text(root / "proc/driver/nvidia/version").value or ""
    found = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", shown)
    link = link_state_of(None if is_host(engine) else properties.pci, root).value
    return TuningKey(
        host=platform.node().encode(errors="backslashreplace").decode(),  # JSON refuses half surrogates
        device=properties.uuid or properties.name,
        driver=f"{found[1] if found else 'unknown'}, CUDA {engine.driver_version()}",
        cpus_usable=usable_cpus(),
        numa_node=node_of(engine, device).value,
        link=None if link is None else describe(link),
        pyxfer=version_of("pyxfer"),
    )


def link_state_of(pci: str | None, root: Path = Path("/")) -> Fact[LinkState]:
    """The highest rate that the device's link can train to: the current one depends on the load."""
    address = canonical_address(pci or "")
    hops = read_hops(address, root) if address else ()
    most = [hop.most for hop in hops if hop.most.value is not None]
    return min(most, key=hop_gbps) if most else Fact(reason="the kernel shows no rate of this device's link")


# --- the file of tunings ---------------------------------------------------------------------------------------------

CACHE_VARIABLE = "PYXFER_CACHE"
_FILE_NAME = "ring.json"
_REMEDY = f"set {CACHE_VARIABLE} to another folder"
# Pods and containers have a new host name each time, and the same home folder.
_MAX_TUNINGS = 32


def cache_path(environ: Mapping[str, str] = os.environ) -> Fact[Path]:
    """The path of the file of tunings, which need not exist."""
    named = environ.get(CACHE_VARIABLE, "")
    if named.lower() == "off":
        return Fact(reason=f"{CACHE_VARIABLE} is off, so nothing is kept")
    if named:
        return Fact(Path(named).absolute() / _FILE_NAME)
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():  # relative paths are ignored: XDG Base Directory Specification
        return Fact(shared / "pyxfer" / _FILE_NAME)
    try:
        return Fact(Path.home() / ".cache" / "pyxfer" / _FILE_NAME)
    except RuntimeError:
        return Fact(reason=f"this user has no home folder: set {CACHE_VARIABLE} to a folder")


def find_tuning(path: Path, key: TuningKey) -> tuple[Tuned | None, str]:
    """The kept tuning of that key, and why the file was ignored."""
    kept, trouble = _read(path)
    return next((entry.tuning for entry in reversed(kept) if entry.key == key), None), trouble


def keep_tuning(path: Path, key: TuningKey, tuning: Tuned) -> str:
    """Write a tuning to the file, in place of an older one of that key. Returns why it failed, or an empty text."""
    from pyxfer._document.codec import to_json  # it imports every struct, which `pyxfer.upload` does not need
    from pyxfer._document.files import write_whole

    # The file is read just before it is written, so that tunings of other processes are seldom lost.
    others = [entry for entry in _read(path)[0] if entry.key != key]
    kept = (*others[1 - _MAX_TUNINGS :], KeptTuning(key, tuning))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, to_json(TuningFile(TUNING_SCHEMA_VERSION, kept)) + b"\n")
    except UsageError as error:
        return f"the tuning is not kept: {error} Or {_REMEDY}."
    except (OSError, ValueError) as error:
        return f"the tuning is not kept: the folder {str(path.parent)!r} cannot be made ({_text(error)}); {_REMEDY}"
    return ""


def _read(path: Path) -> tuple[tuple[KeptTuning, ...], str]:
    try:
        document = msgspec.json.decode(path.read_bytes())
        version = document.get("schema_version") if isinstance(document, dict) else None
        if version != TUNING_SCHEMA_VERSION:
            raise ValueError(f"it has version {version!r:.20}, and this pyxfer reads {TUNING_SCHEMA_VERSION}")
        tunings = msgspec.convert(document, TuningFile).tunings
        for entry in tunings:
            settings_of(entry.tuning.ring)  # raises if a value is outside the engine's limits
        return tunings, ""
    except FileNotFoundError:
        return (), ""
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors and UsageError are ValueErrors
        return (), f"{str(path)!r} is ignored ({_text(error)}); the next tuning overwrites it"


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
