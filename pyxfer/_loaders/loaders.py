"""Ways to load files: the table of known loaders, and those that users have registered."""

from __future__ import annotations

import importlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, cast, get_args

from pyxfer._document.printing import ShortRepr
from pyxfer._document.runs import FrameworkName
from pyxfer._frameworks.base import installed_version
from pyxfer._frameworks.messages import Reference
from pyxfer._frameworks.registry import find_reference
from pyxfer.errors import RefusedError, UsageError

Arrays: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]
Pairs: TypeAlias = Iterator[tuple[str, Any]]
Load: TypeAlias = Callable[[list[str], str], Arrays]

LoaderFramework: TypeAlias = FrameworkName | Literal["numpy"]
FRAMEWORKS: tuple[LoaderFramework, ...] = (*get_args(FrameworkName), "numpy")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*\.[a-z0-9][a-z0-9_.-]*")


@dataclass(frozen=True, repr=False)
class Loader(ShortRepr):
    """A way to load arrays from files.

    `name`: its owner, a dot, and its own name. `load` is called with the paths of the files and a device such as
    "cuda:0" or "cpu", and returns arrays by name, or pairs of a name and an array. It has to be at the top of a module
    or a script, so that another process can import it. `framework`: whose arrays it returns. `call`: the code that a
    user writes. `distributions`: what has to be installed. `formats`: the endings of the files that it reads, such as
    ".npy"; by default it is tried with any file.
    """

    name: str
    load: Load | Reference
    framework: str = "torch"
    call: str = ""
    distributions: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    def _summary(self) -> str:
        return f"{self.name} {self.call}"


# --- the loaders of others, as their documentation writes them -------------------------------------------------------


def with_pyxfer(paths: list[str], device: str, to: Any = "torch") -> Arrays:
    from pyxfer._files.load import load_tensors

    return load_tensors(paths, to, device="host" if device == "cpu" else int(device.partition(":")[2]))


def with_pyxfer_to_cupy(paths: list[str], device: str) -> Arrays:
    return with_pyxfer(paths, device, "cupy")


def with_pyxfer_to_jax(paths: list[str], device: str) -> Arrays:
    return with_pyxfer(paths, device, "jax")


def with_pyxfer_to_tensorflow(paths: list[str], device: str) -> Arrays:
    return with_pyxfer(paths, device, "tensorflow")


def with_pyxfer_to_numpy(paths: list[str], device: str) -> Arrays:
    return with_pyxfer(paths, device, "numpy")


def _with_load_file(module: str, paths: list[str], **options: str) -> Pairs:
    files: Any = importlib.import_module(module)
    for path in paths:
        yield from files.load_file(path, **options).items()


def with_load_file(paths: list[str], device: str) -> Pairs:
    return _with_load_file("safetensors.torch", paths, device=device)


def with_load_file_to_numpy(paths: list[str], _device: str) -> Pairs:
    return _with_load_file("safetensors.numpy", paths)


def with_load_file_to_jax(paths: list[str], _device: str) -> Pairs:
    return _with_load_file("safetensors.flax", paths)


def with_load_file_to_tensorflow(paths: list[str], _device: str) -> Pairs:
    return _with_load_file("safetensors.tensorflow", paths)


def with_safe_open(paths: list[str], device: str) -> Pairs:
    safetensors: Any = importlib.import_module("safetensors")
    for path in paths:
        with safetensors.safe_open(path, framework="pt", device=device) as file:
            for name in file.keys():  # noqa: SIM118 - it is not a mapping
                yield name, file.get_tensor(name)


def with_safetensors_prefetch(paths: list[str], device: str) -> Pairs:
    safetensors: Any = importlib.import_module("safetensors")
    if not hasattr(safetensors.safe_open, "prefetch"):
        raise RefusedError(f"safetensors {installed_version(('safetensors',))} has no prefetch: 0.9 has it")
    for path in paths:
        with safetensors.safe_open(path, framework="pt", device=device, backend="pread") as file:
            yield from file.prefetch()


def with_fastsafetensors(paths: list[str], device: str) -> Pairs:
    fastsafetensors: Any = importlib.import_module("fastsafetensors")
    with fastsafetensors.fastsafe_open(filenames=list(paths), device=device, nogds=True) as file:
        for name in file.keys():  # noqa: SIM118 - it is not a mapping
            yield name, file.get_tensor(name)


def with_instanttensor(paths: list[str], device: str) -> Pairs:
    instanttensor: Any = importlib.import_module("instanttensor")
    with instanttensor.safe_open(list(paths), framework="pt", device=device) as file:
        yield from file.tensors()


def with_run_ai(paths: list[str], device: str) -> Pairs:
    streamers: Any = importlib.import_module("runai_model_streamer")
    with streamers.SafetensorsStreamer() as streamer:
        streamer.stream_files(list(paths))
        for name, tensor in streamer.get_tensors():
            yield name, tensor.to(device)


def with_torch_load(paths: list[str], device: str) -> Pairs:
    torch: Any = importlib.import_module("torch")
    for path in paths:
        yield from torch.load(path, map_location=device, mmap=True, weights_only=True).items()


def _with_numpy(paths: list[str]) -> Pairs:
    numpy: Any = importlib.import_module("numpy")
    formats: Any = importlib.import_module("pyxfer._files.formats")
    for path in paths:
        found = numpy.load(path)
        if isinstance(found, numpy.ndarray):
            yield formats.stored_arrays(path).arrays[0].name, found
        else:
            with found:
                yield from found.items()


def with_numpy_to_torch(paths: list[str], device: str) -> Pairs:
    torch: Any = importlib.import_module("torch")
    for name, array in _with_numpy(paths):
        yield name, torch.from_numpy(array).to(device)


def with_numpy_to_cupy(paths: list[str], _device: str) -> Pairs:
    cupy: Any = importlib.import_module("cupy")
    for name, array in _with_numpy(paths):
        yield name, cupy.asarray(array)


def with_numpy_to_jax(paths: list[str], _device: str) -> Pairs:
    jax: Any = importlib.import_module("jax")
    for name, array in _with_numpy(paths):
        yield name, jax.device_put(array)


def with_numpy_to_tensorflow(paths: list[str], _device: str) -> Pairs:
    tensorflow: Any = importlib.import_module("tensorflow")
    for name, array in _with_numpy(paths):
        yield name, tensorflow.constant(array)


def with_numpy_alone(paths: list[str], _device: str) -> Arrays:
    return _with_numpy(paths)


_SAFETENSORS = (".safetensors",)
_NUMPYS = (".npy", ".npz")
_OWN = {
    "torch": with_pyxfer,
    "tensorflow": with_pyxfer_to_tensorflow,
    "jax": with_pyxfer_to_jax,
    "cupy": with_pyxfer_to_cupy,
    "numpy": with_pyxfer_to_numpy,
}
_BY_NUMPY = {
    "torch": (with_numpy_to_torch, "torch.from_numpy(numpy.load(path)).to(device)"),
    "tensorflow": (with_numpy_to_tensorflow, "tf.constant(numpy.load(path))"),
    "jax": (with_numpy_to_jax, "jax.device_put(numpy.load(path))"),
    "cupy": (with_numpy_to_cupy, "cupy.asarray(numpy.load(path))"),
    "numpy": (with_numpy_alone, "numpy.load(path)"),
}
_BY_LOAD_FILE = {
    "torch": (with_load_file, "safetensors.torch.load_file(path, device)"),
    "tensorflow": (with_load_file_to_tensorflow, "safetensors.tensorflow.load_file(path)"),
    "jax": (with_load_file_to_jax, "safetensors.flax.load_file(path)"),
    "numpy": (with_load_file_to_numpy, "safetensors.numpy.load_file(path)"),
}
_TABLE = (
    *(Loader("pyxfer.load-tensors", load, to, f"pyxfer.load_tensors(paths, to={to!r})") for to, load in _OWN.items()),
    *(
        Loader("safetensors.load-file", load, to, call, ("safetensors",), _SAFETENSORS)
        for to, (load, call) in _BY_LOAD_FILE.items()
    ),
    Loader(
        "safetensors.get-tensor",
        with_safe_open,
        "torch",
        'safetensors.safe_open(path, "pt", device).get_tensor(name)',
        ("safetensors",),
        _SAFETENSORS,
    ),
    Loader(
        "safetensors.prefetch",
        with_safetensors_prefetch,
        "torch",
        'safetensors.safe_open(path, "pt", device, backend="pread").prefetch()',
        ("safetensors",),
        _SAFETENSORS,
    ),
    Loader(
        "fastsafetensors.open",
        with_fastsafetensors,
        "torch",
        "fastsafetensors.fastsafe_open(paths, device=device, nogds=True)",
        ("fastsafetensors",),
        _SAFETENSORS,
    ),
    Loader(
        "instanttensor.open",
        with_instanttensor,
        "torch",
        'instanttensor.safe_open(paths, "pt", device).tensors()',
        ("instanttensor",),
        _SAFETENSORS,
    ),
    Loader(
        "runai.stream",
        with_run_ai,
        "torch",
        "SafetensorsStreamer().stream_files(paths), then tensor.to(device)",
        ("runai-model-streamer",),
        _SAFETENSORS,
    ),
    Loader(
        "torch.load",
        with_torch_load,
        "torch",
        "torch.load(path, device, mmap=True, weights_only=True)",
        ("torch",),
        (".pt", ".pth", ".bin"),
    ),
    *(Loader("numpy.load", load, to, call, ("numpy",), _NUMPYS) for to, (load, call) in _BY_NUMPY.items()),
)


# --- those of a run --------------------------------------------------------------------------------------------------

_registered: dict[str, Loader] = {}


def register_loader(loader: Loader) -> None:
    """Add your own loader to those that `pyxfer files` times.

    Raises:
        UsageError: the name is not `owner.name` or is taken, the framework is not known, or another process cannot
            import the function.

    """
    if not isinstance(loader, Loader):
        raise UsageError(f"register_loader() takes a pyxfer.Loader; got {type(loader).__name__}.")
    if not isinstance(loader.name, str) or not _NAME.fullmatch(loader.name):
        raise UsageError(f"{loader.name!r:.80} is not a name of a loader: write owner.name in lower case.")
    check_framework(loader.framework)
    if any(loader.name == other.name for other in (*_TABLE, *_registered.values())):
        raise UsageError(f"A loader {loader.name!r} exists already: choose another name.")
    reference_of(loader)
    _registered[loader.name] = loader


def check_framework(name: str) -> None:
    if name not in FRAMEWORKS:
        raise UsageError(f"Unknown framework {name!r:.80}. Known are {', '.join(FRAMEWORKS)}.")


def unregister_loader(name: str) -> None:
    """Remove a loader that `register_loader` added.

    Raises:
        UsageError: no loader of this name is registered.

    """
    if _registered.pop(name, None) is None:
        raise UsageError(f"No loader {name!r:.80} is registered.")


def loaders_of(framework: str) -> tuple[Loader, ...]:
    """All loaders that return arrays of this framework, registered ones last."""
    return tuple(each for each in (*_TABLE, *_registered.values()) if each.framework == framework)


def select_loaders(framework: str, wanted: Sequence[str], paths: Sequence[str]) -> tuple[Loader, ...]:
    """Those that are asked for, by names, patterns or `module:function`; by default all that read files like these.

    Of the default, those that are not installed are left out. `pyxfer.load-tensors` is always there.
    """
    known = loaders_of(framework)
    if not wanted:
        return tuple(each for each in known if _reads(each, paths) and _is_installed(each))
    found = {known[0].name: known[0]}
    for word in wanted:
        if ":" in word:
            fitting = [_own(word, framework, found)]
        else:
            fitting = [each for each in known if fnmatchcase(each.name, word)]
        if not fitting:
            names = ", ".join(each.name for each in known)
            raise UsageError(f"No loader of {framework} fits {word!r:.80}. Known are {names}, and module:function.")
        found.update((each.name, each) for each in fitting)
    return tuple(found.values())


def why_unavailable(loader: Loader, paths: Sequence[str]) -> str | None:
    if not _reads(loader, paths):
        return f"it reads {', '.join(loader.formats)} files only"
    if not _is_installed(loader):
        return f"{loader.distributions[0]} is not installed: pip install {loader.distributions[0]}"
    return None


def _reads(loader: Loader, paths: Sequence[str]) -> bool:
    return not loader.formats or all(path.endswith(loader.formats) for path in paths)


def _is_installed(loader: Loader) -> bool:
    return not loader.distributions or installed_version(loader.distributions) is not None


def _own(word: str, framework: str, known: Mapping[str, Loader]) -> Loader:
    """The loader of `module:function` or `file.py:function`, which only the worker imports.

    Another one of this name is numbered.
    """
    home, _, name = word.rpartition(":")
    if not home or not name.isidentifier():
        raise UsageError(f"{word!r:.80} is not module:function or file.py:function.")
    is_script = home.endswith(".py")
    reference = Reference("__main__" if is_script else home, name, os.path.abspath(home) if is_script else None)
    names = (f"own.{name.lower()}{'' if number == 1 else f'-{number}'}" for number in itertools.count(1))
    free = next(each for each in names if each not in known or known[each].load == reference)
    return Loader(free, reference, framework, f"{word}(paths, device)")


def reference_of(loader: Loader) -> Reference:
    """Where the worker finds the loader's function."""
    load = cast("Any", loader.load)
    return load if isinstance(load, Reference) else find_reference(load)
