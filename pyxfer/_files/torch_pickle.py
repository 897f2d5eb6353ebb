"""PyTorch's archives: a pickle that names and describes tensors, and a member for each of their storages.

The pickle is read by a small interpreter, which knows lists, dicts, numbers and texts, and of PyTorch what describes
tensors. Nothing is imported or called, so nothing in a file can run.
"""

from __future__ import annotations

import os
import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyxfer._files.archives import Archive, Member
from pyxfer._files.stored import BITS_OF, FETCH_AGAIN, OpenFile, StoredArray, nbytes_of, shown_name
from pyxfer.errors import ArrayFileError

_RECORD = "data.pkl"
_SCRIPT_RECORD = "constants.pkl"
_SAVE_STATE = "save its tensors alone with torch.save, such as a state_dict()"
_SAVE_AGAIN = "load it and save it again with torch.save"

# A pickle of 100,000 tensors has 15 MB and 4 million operations.
_MAX_PICKLE_BYTES = 64 << 20
_MAX_OPERATIONS = 16 << 20
_MAX_VALUES = 1 << 20  # one list may stand in many others, and so on
_MAX_DEPTH = 100
_MAX_NAME_LENGTH = 1024
_MAX_COUNT = 2**63 - 1

_STORAGES = {
    "torch.FloatStorage": "float32",
    "torch.DoubleStorage": "float64",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.ByteStorage": "uint8",
    "torch.CharStorage": "int8",
    "torch.ShortStorage": "int16",
    "torch.IntStorage": "int32",
    "torch.LongStorage": "int64",
    "torch.BoolStorage": "bool",
    "torch.ComplexFloatStorage": "complex64",
    "torch.ComplexDoubleStorage": "complex128",
    "torch.storage.UntypedStorage": "uint8",
    "torch.UntypedStorage": "uint8",
}
_TWO_IN_A_BYTE = "float4_e2m1fn"
_DTYPES = {
    **{f"torch.{name}": name for name, bits in BITS_OF.items() if bits % 8 == 0},
    f"torch.{_TWO_IN_A_BYTE}_x2": _TWO_IN_A_BYTE,
}
_PERSISTENT_ID = 5  # "storage", type, key, device, number of items


def is_torch(archive: Archive) -> bool:
    return any(os.path.basename(name) == _RECORD for name in archive.names)


def arrays_of_torch(archive: Archive, number: int, wanted: Callable[[str], bool]) -> list[StoredArray]:
    """The tensors of an archive. One that cannot be read as it is is left out if it is not wanted."""
    file = archive.file
    record = _record_of(archive)
    folder = record.name.removesuffix(_RECORD)
    order = f"{folder}byteorder"
    if order in archive.names and archive.contents(archive.locate(order, _SAVE_AGAIN)) != b"little":
        raise file.refused(f"was saved on a processor with another byte order: {_SAVE_AGAIN} on one as this is")
    value = _Reader(file).value_of(archive.contents(record))
    storages = _Storages(archive, f"{folder}data/")
    own_name = os.path.splitext(os.path.basename(file.path))[0]
    found = []
    for name, tensor in _tensors_in(file, value, own_name):
        if tensor.fault and wanted(name):
            raise file.refused(f"has the tensor {shown_name(name)}, which {tensor.fault}")
        if not tensor.fault:
            begin = storages.begin_of(tensor.storage) + tensor.offset
            found.append(StoredArray(name, tensor.dtype, tensor.shape, number, begin, tensor.nbytes))
    return sorted(found, key=lambda array: array.offset)


def _record_of(archive: Archive) -> Member:
    file, names = archive.file, archive.names
    records = [name for name in names if os.path.basename(name) == _RECORD]
    if any(os.path.basename(name) == _SCRIPT_RECORD for name in names):
        raise file.refused(f"is a program of TorchScript: {_SAVE_STATE}")
    if len(records) > 1:
        raise file.refused(f"has {len(records)} members {_RECORD}, and PyTorch's files have one: {FETCH_AGAIN}")
    record = archive.locate(records[0], _SAVE_AGAIN)
    if record.nbytes > _MAX_PICKLE_BYTES:
        raise file.refused(f"has {record.nbytes} bytes of values beside its tensors, which is too many: {_SAVE_STATE}")
    return record


class _Storages:
    """Where each storage begins, once it is known that its bytes are there."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive, self._folder = archive, folder
        self._members: dict[str, Member] = {}

    def begin_of(self, storage: _Storage) -> int:
        member = self._members.get(storage.key)
        if member is None:
            member = self._members[storage.key] = self._archive.locate(self._folder + storage.key, _SAVE_AGAIN)
        if member.nbytes != storage.nbytes:
            sizes = f"has {member.nbytes} bytes, and its tensors need {storage.nbytes}"
            raise self._archive.file.refused(
                f"is damaged, because the member {shown_name(member.name)} {sizes}: {FETCH_AGAIN}"
            )
        return member.offset


# --- values of the pickle --------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """Something of PyTorch or Python by its name."""

    name: str


@dataclass(eq=False, slots=True)
class _Pairs:
    """A dict. Its keys are not compared, because a file could have chosen keys that cost much to compare."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Storage:
    key: str
    dtype: str
    nbytes: int


@dataclass(eq=False, slots=True)
class _Tensor:
    storage: _Storage
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    fault: str
    """Why its bytes are not the array, or an empty text."""


def _tensors_in(file: OpenFile, value: Any, own_name: str) -> Iterator[tuple[str, _Tensor]]:
    """The tensors with their dotted names. A single tensor has the name of the file."""
    if isinstance(value, _Tensor):
        yield own_name, value
        return
    waiting: list[tuple[str, int, Any]] = [("", 0, value)]
    seen = 0
    while waiting:
        name, depth, value = waiting.pop()
        seen += 1
        if seen > _MAX_VALUES or depth > _MAX_DEPTH or len(name) > _MAX_NAME_LENGTH:
            raise file.refused(f"has too many values, too deep in each other, or under too long names: {_SAVE_STATE}")
        if isinstance(value, _Tensor):
            yield name, value
        elif isinstance(value, _Storage):
            raise file.refused(f"has the storage {shown_name(name)} without a tensor: save tensors")
        else:
            inner = value.items if isinstance(value, _Pairs) else enumerate(value)
            found = [(key, each) for key, each in inner if _may_have_tensors(each)]
            before = f"{name}." if depth else ""
            waiting += [(before + _key_text(file, name, key), depth + 1, each) for key, each in reversed(found)]


def _key_text(file: OpenFile, name: str, key: Any) -> str:
    if isinstance(key, str):
        return key
    if not _is_count(key):
        raise file.refused(f"has a key that is neither text nor a whole number, in {shown_name(name)}: {_SAVE_STATE}")
    return str(key)


def _may_have_tensors(value: Any) -> bool:
    return isinstance(value, (_Tensor, _Storage, _Pairs, list)) or type(value) is tuple


# --- the interpreter -------------------------------------------------------------------------------------------------


class _Reader:
    """Reads one pickle. The stack and the memo are those of the format; marks are heights of the stack."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def value_of(self, pickled: bytes) -> Any:
        try:
            for count, (operation, argument, _) in enumerate(pickletools.genops(pickled)):
                if count > _MAX_OPERATIONS:
                    raise self._file.refused(f"has too many values beside its tensors: {_SAVE_STATE}")
                act = _ACTIONS.get(operation.name)
                if act is None:
                    raise self._file.refused(
                        f"has a value of a kind that pyxfer does not read (pickle's {operation.name}): {_SAVE_STATE}"
                    )
                act(self, argument)
            (value,) = self._stack
        except ArrayFileError:
            raise
        except (ValueError, IndexError, KeyError) as error:
            raise self._file.refused(f"is damaged, because its pickle cannot be read: {FETCH_AGAIN}") from error
        return value if _may_have_tensors(value) else []

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        return self._stack.pop()

    def above_mark(self) -> list[Any]:
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def mark(self, _: None) -> None:
        self._marks.append(len(self._stack))

    def put(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def memoize(self, _: None) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, number: int) -> None:
        self._stack.append(self._memo[number])

    def tuple_of(self, count: int) -> None:
        found = tuple(self._stack[-count:])
        if len(found) != count:
            raise IndexError
        self._stack[-count:] = [found]

    def append_all(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise ValueError
        target.extend(values)

    def set_all(self, values: list[Any]) -> None:
        self._pairs_on_top().extend(_paired(values))

    def known(self, name: str) -> None:
        if name not in _CALLS and name not in _STORAGES and name not in _DTYPES:
            raise self._file.refused(
                f"has a value that needs {shown_name(name)}, which pyxfer does not know: {_SAVE_STATE}"
            )
        self.push(_Known(name))

    def call(self, _: None) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Known) or type(arguments) is not tuple:
            raise ValueError
        try:
            self.push(_CALLS[function.name](*arguments))
        except TypeError as error:  # other arguments than PyTorch gives
            raise ValueError from error

    def build(self, _: None) -> None:
        """A state_dict has the versions of its modules as an attribute, which describe no tensor."""
        self.pop()
        self._pairs_on_top()

    def storage(self, _: None) -> None:
        identity = self.pop()
        if type(identity) is not tuple or len(identity) != _PERSISTENT_ID:
            raise ValueError
        word, kind, key, _device, items = identity
        dtype = _STORAGES.get(kind.name) if isinstance(kind, _Known) else None
        if word != "storage" or dtype is None or not isinstance(key, str) or not _is_count(items):
            raise ValueError
        self.push(_Storage(key, dtype, items * BITS_OF[dtype] // 8))

    def _pairs_on_top(self) -> list[tuple[Any, Any]]:
        target = self._stack[-1]
        if not isinstance(target, _Pairs):
            raise ValueError
        return target.items


def _paired(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(values) % 2:
        raise ValueError
    return zip(values[::2], values[1::2], strict=True)


_Action = Callable[[_Reader, Any], None]


def _pushing(make: Callable[[Any], Any]) -> _Action:
    return lambda reader, argument: reader.push(make(argument))


_ACTIONS: dict[str, _Action] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda reader, _: None),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _Reader.push),
    **dict.fromkeys(("FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Reader.push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), _Reader.push),
    "NONE": _pushing(lambda _: None),
    "NEWTRUE": _pushing(lambda _: True),
    "NEWFALSE": _pushing(lambda _: False),
    "EMPTY_TUPLE": _pushing(lambda _: ()),
    "EMPTY_LIST": _pushing(lambda _: []),
    "EMPTY_DICT": _pushing(lambda _: _Pairs()),
    "MARK": _Reader.mark,
    "TUPLE": lambda reader, _: reader.push(tuple(reader.above_mark())),
    "TUPLE1": lambda reader, _: reader.tuple_of(1),
    "TUPLE2": lambda reader, _: reader.tuple_of(2),
    "TUPLE3": lambda reader, _: reader.tuple_of(3),
    "LIST": lambda reader, _: reader.push(reader.above_mark()),
    "DICT": lambda reader, _: reader.push(_Pairs(list(_paired(reader.above_mark())))),
    "APPEND": lambda reader, _: reader.append_all([reader.pop()]),
    "APPENDS": lambda reader, _: reader.append_all(reader.above_mark()),
    "SETITEM": lambda reader, _: reader.set_all([reader.pop(), reader.pop()][::-1]),
    "SETITEMS": lambda reader, _: reader.set_all(reader.above_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Reader.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Reader.get),
    "MEMOIZE": _Reader.memoize,
    "GLOBAL": lambda reader, name: reader.known(name.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda reader, _: reader.known(_dotted(reader.pop(), reader.pop())),
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
    "BINPERSID": _Reader.storage,
}


def _dotted(name: Any, module: Any) -> str:
    if not isinstance(name, str) or not isinstance(module, str):
        raise ValueError
    return f"{module}.{name}"


# --- what PyTorch's pickles call -------------------------------------------------------------------------------------


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_COUNT


def _are_counts(values: Any) -> bool:
    return type(values) is tuple and all(map(_is_count, values))


def _rebuilt(storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, metadata: Any = None) -> Any:
    if not isinstance(storage, _Storage):
        raise ValueError
    return _tensor(storage, storage.dtype, offset, shape, strides, metadata)


def _rebuilt_of_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, metadata: Any = None
) -> Any:
    name = _DTYPES.get(dtype.name) if isinstance(dtype, _Known) else None
    if not isinstance(storage, _Storage) or name is None:
        raise ValueError
    return _tensor(storage, name, offset, shape, strides, metadata)


def _tensor(storage: _Storage, dtype: str, offset: Any, shape: Any, strides: Any, metadata: Any) -> _Tensor:
    if not _is_count(offset) or not _are_counts(shape) or not _are_counts(strides) or len(shape) != len(strides):
        raise ValueError
    item = "uint8" if dtype == _TWO_IN_A_BYTE else dtype  # of which PyTorch counts bytes
    nbytes = nbytes_of(item, shape)
    begin = offset * BITS_OF[item] // 8 if nbytes else 0
    if nbytes is None:
        raise ValueError
    fault = _fault(shape, strides, nbytes, metadata)
    if not fault and begin + nbytes > storage.nbytes:
        raise ValueError
    if item != dtype:
        shape = (*shape[:-1], shape[-1] * 2)
    return _Tensor(storage, dtype, shape, begin, nbytes, fault)


def _fault(shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int, metadata: Any) -> str:
    if metadata is not None and not (isinstance(metadata, _Pairs) and not metadata.items):
        return "is conjugated or negated: save it after .resolve_conj().resolve_neg()"
    expected = 1
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if nbytes and count != 1 and stride != expected:
            return "is a view of other memory, in another order, with gaps or repeated: save it after .contiguous()"
        expected *= count
    return ""


def _parameter(data: Any, _grad: Any, _hooks: Any, _state: Any = None) -> Any:
    if not isinstance(data, _Tensor):
        raise ValueError
    return data


def _empty_pairs() -> _Pairs:
    return _Pairs()


def _size(values: Any) -> Any:
    if not _are_counts(values):
        raise ValueError
    return values


_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _empty_pairs,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_tensor_v3": _rebuilt_of_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}
