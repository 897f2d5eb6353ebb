"""PyTorch's archives: files that PyTorch wrote, and pickles made byte by byte."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from files.making import (
    DATA,
    FLOAT,
    ORDERED_DICT,
    REBUILD,
    REBUILD_OF_DTYPE,
    Built,
    Call,
    Global,
    Opcodes,
    Persistent,
    bytes_of,
    found,
    pickled,
    storage,
    tensor,
    torch_archive,
)

from pyxfer._files.formats import stored_arrays
from pyxfer._files.stored import BITS_OF
from pyxfer.errors import ArrayFileError, UsageError

FLOAT8 = Global("torch", "float8_e4m3fn")
UNTYPED = Global("torch.storage", "UntypedStorage")
HALF = Global("torch", "HalfStorage")


# --- files of PyTorch ------------------------------------------------------------------------------------------------


def test_every_dtype_of_pytorch_has_its_bytes() -> None:
    path = DATA / "dtypes.pt"
    arrays = found(path)
    assert len(arrays) == 21
    for name, array in arrays.items():
        assert array.dtype == name.removesuffix("_x2")
        assert array.shape == ((2, 6) if name.endswith("_x2") else (2, 3))
        size = BITS_OF[array.dtype] * array.shape[0] * array.shape[1] // 8
        assert bytes_of(array, path) == bytes(each % 2 if name == "bool" else each for each in range(size))


def test_a_state_dict_has_the_names_of_its_module() -> None:
    path = DATA / "state_dict.pt"
    arrays = found(path)
    running = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert tuple(arrays) == ("0.weight", "0.bias", "1.weight", "1.bias", *running)
    assert arrays["0.weight"].shape == (2, 3)
    counted = arrays["1.num_batches_tracked"]
    assert (counted.dtype, counted.shape) == ("int64", ())
    assert bytes_of(arrays["0.bias"], path) == b"\0\0\x80\x3f" * 2  # 1.0


@pytest.mark.parametrize("name", ["checkpoint.pt", "protocol5.pt"])
def test_a_checkpoint_is_flattened_to_dotted_names(name: str) -> None:
    path = DATA / name
    arrays = found(path)
    others = {"parameters.0", "parameters.1", "state.0.step", "nothing"}
    assert {each for each in arrays if not each.startswith(("model.", "tied."))} == others
    assert "model.0.weight" in arrays
    tied = [arrays[f"tied.{number}"] for number in range(4)]
    assert msgspec.structs.replace(tied[0], name="tied.1") == tied[1]
    assert [array.offset - tied[0].offset for array in tied] == [0, 0, 16, 16]
    assert [array.shape for array in tied] == [(12,), (12,), (4,), (2, 4)]
    assert (arrays["nothing"].shape, arrays["nothing"].nbytes) == ((0, 3), 0)
    assert bytes_of(arrays["parameters.1"], path) == b"\0\0\0\0\0\0\x80\x3f"


def test_a_single_tensor_has_the_name_of_its_file() -> None:
    assert list(found(DATA / "alone.pt")) == ["alone"]


@pytest.mark.parametrize("name", ["turned", "apart", "spread"])
def test_views_are_refused_by_name_if_they_are_wanted(name: str) -> None:
    assert list(found(DATA / "views.pt", "good")) == ["good"]
    with pytest.raises(ArrayFileError, match=rf"'{name}', which is a view .* save it after \.contiguous\(\)\.$"):
        found(DATA / "views.pt", name)


REFUSED = {
    "views.pt": "has the tensor 'turned', which is a view of other memory",
    "repeated.pt": "has the tensor 'repeated', which is a view of other memory",
    "conjugated.pt": "which is conjugated or negated: save it after .resolve_conj().resolve_neg().",
    "module.pt": "needs 'torch.nn.modules.linear.Linear', which pyxfer does not know: save its tensors alone",
    "sparse.pt": "needs 'torch._utils._rebuild_sparse_tensor'",
    "storage.pt": "has the storage 'storage' without a tensor",
    "before_1_6.pt": "is a pickle, which could run any code when it is read: load it where you trust it",
    "script.pt": "is a program of TorchScript: save its tensors alone",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_of_pytorch_are_refused(name: str) -> None:
    with pytest.raises(ArrayFileError) as caught:
        found(DATA / name)
    assert REFUSED[name] in str(caught.value)


# --- pickles ---------------------------------------------------------------------------------------------------------


def test_tensors_are_described_by_their_pickle(tmp_path: Path) -> None:
    value = {"w": tensor((2, 2), (2, 1)), "rest": [tensor((3,), (1,), 1), 1.5, None, "text", -1, 1 << 70]}
    path = torch_archive(tmp_path / "m.pt", value)
    whole, rest = found(path).values()
    assert (whole.name, whole.shape, whole.nbytes) == ("w", (2, 2), 16)
    assert (rest.name, rest.shape, rest.nbytes) == ("rest.0", (3,), 12)
    assert bytes_of(rest, path) == bytes(range(4, 16))


WRITTEN = {
    "one row": tensor((1, 4), (9, 1)),  # the stride of one item says nothing
    "one column": tensor((4, 1, 1), (1, 7, 0)),
    "with no marks": tensor((4,), (1,), 0, None, {}),
    "no rows": tensor((0, 4), (4, 1)),
    "no items beyond the storage": tensor((0,), (5,), 99),
    "a parameter": Call(Global("torch._utils", "_rebuild_parameter"), (tensor(), True, ORDERED_DICT)),
    "a parameter with attributes": Call(
        Global("torch._utils", "_rebuild_parameter_with_state"), (tensor(), True, ORDERED_DICT, {"a": 1})
    ),
    "a dtype without a storage": Call(
        REBUILD_OF_DTYPE, (storage(16, kind=UNTYPED), 4, (12,), (1,), False, ORDERED_DICT, FLOAT8)
    ),
    "a torch.Size": tensor(Call(Global("torch", "Size"), ((2, 2),)), (2, 1)),
    "bytes": tensor((16,), (1,), 0, storage(16, kind=UNTYPED)),
    "half precision": tensor((8,), (1,), 0, storage(8, kind=HALF)),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_tensors_as_pytorch_writes_them_are_read(tmp_path: Path, case: str) -> None:
    path = torch_archive(tmp_path / "m.pt", {"w": WRITTEN[case]})
    array = found(path)["w"]
    assert bytes_of(array, path) == bytes(range(16))[16 - array.nbytes :]


@pytest.mark.parametrize("value", [1, "text", None, [], {}, {"a": [1, {"b": ()}]}, Global("torch", "float16")])
def test_a_file_without_tensors_has_no_arrays(tmp_path: Path, value: object) -> None:
    assert not found(torch_archive(tmp_path / "m.pt", value))


def test_the_attributes_of_a_state_dict_say_nothing(tmp_path: Path) -> None:
    value = {"state": Built({"w": tensor()}, {"_metadata": ORDERED_DICT, "items": [tensor()], "value": "x"})}
    assert list(found(torch_archive(tmp_path / "m.pt", value))) == ["state.w"]


def test_a_file_of_an_older_pytorch_says_nothing_of_the_byte_order(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", pickled({"w": tensor()}))
        archive.writestr("m/data/0", bytes(16))
    assert list(found(tmp_path / "m.pt")) == ["w"]


@pytest.mark.parametrize("module", ["os", "posix"])
def test_nothing_in_a_file_runs(tmp_path: Path, module: str) -> None:
    sign = tmp_path / "it ran"
    value = Call(Global(module, "system"), (f"touch '{sign}'",))
    with pytest.raises(ArrayFileError, match=rf"needs '{module}\.system', which pyxfer does not know"):
        found(torch_archive(tmp_path / "m.pt", {"w": tensor(), "x": value}))
    assert not sign.exists()


def test_a_name_with_escapes_is_printed_harmlessly(tmp_path: Path) -> None:
    value = {"w": tensor(), "\x1b[31m" + "x" * 200: tensor((2, 2), (1, 2))}
    with pytest.raises(ArrayFileError) as caught:
        found(torch_archive(tmp_path / "m.pt", value))
    assert str(caught.value).isprintable()
    assert "x" * 90 not in str(caught.value)


def _in_dicts(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = {"a": value}
    return value


SAID: dict[str, tuple[object, dict[str, Any], str]] = {
    "big order": ({"w": tensor()}, {"order": "big"}, "another byte order"),
    "no storage": ({"w": tensor()}, {"storages": {}}, "has no member 'archive/data/0'"),
    "short storage": ({"w": tensor()}, {"storages": {"0": bytes(8)}}, "has 8 bytes, and its tensors need 16"),
    "long storage": ({"w": tensor()}, {"storages": {"0": bytes(17)}}, "has 17 bytes, and its tensors need 16"),
    "two kinds": ([tensor(), tensor(of=storage(4, kind=HALF))], {}, "need 8"),
    "a set": (Opcodes(b"\x8f"), {}, "EMPTY_SET"),
    "a new object": (Opcodes(b"ctorch\nSize\n)\x81"), {}, "NEWOBJ"),
    "an extension": (Opcodes(b"\x82\x01"), {}, "EXT1"),
    "another function of PyTorch": ({"f": Global("torch", "load")}, {}, "'torch.load'"),
    "a name below a name": ({"f": Global("torch._utils", "_rebuild_tensor_v2.x")}, {}, "._rebuild_tensor_v2.x'"),
    "a key of two": (Opcodes(b"}(K\x01K\x02\x86" + pickled([tensor()])[2:-1] + b"u"), {}, "neither text nor a whole"),
    "a truth as a key": ({"a": {True: tensor()}}, {}, "neither text nor a whole number, in 'a'"),
    "a negative key": ({-1: tensor()}, {}, "neither text nor a whole"),
    "a long name": ({"a" * 1025: tensor()}, {}, "too long names"),
    "one name twice": ({"a": {"b": tensor()}, "a.b": tensor()}, {}, "the array 'a.b', which is there twice"),
    "a conjugate": ({"w": tensor((4,), (1,), 0, None, {"conj": True})}, {}, "conjugated or negated"),
    "deep dicts": (_in_dicts(tensor(), 101), {}, "too deep"),
    "a list of itself": (Opcodes(b"]q\x00h\x00a"), {}, "too deep"),
    "a dict of itself": (Opcodes(b"}q\x00X\x01\x00\x00\x00ah\x00s"), {}, "too deep"),
}


@pytest.mark.parametrize("case", SAID)
def test_what_cannot_be_read_is_said(tmp_path: Path, case: str) -> None:
    value, more, text = SAID[case]
    path = torch_archive(tmp_path / "m.pt", value, **more)
    with pytest.raises(ArrayFileError) as caught:
        found(path)
    assert str(caught.value).startswith(f"'{path}' ")
    assert text in str(caught.value)
    assert str(caught.value).endswith(".")


DAMAGED = {
    "nothing": b"",
    "no end": b"\x80\x02}",
    "nothing on the stack": b"\x80\x02.",
    "two values": pickled(Opcodes(b"NN")),
    "an unknown operation": b"\x80\x02\xff.",
    "a text that is cut short": b"\x80\x02X\xff\xff\xff\xffa.",
    "a value that was never put": pickled(Opcodes(b"h\x07")),
    "a mark that was never set": pickled(Opcodes(b"t")),
    "a tuple of too few": pickled(Opcodes(b"N\x87")),
    "an item of no list": pickled(Opcodes(b"NNa")),
    "a pair of no dict": pickled(Opcodes(b"NNNs")),
    "half a pair": pickled(Opcodes(b"}(Nu")),
    "attributes of a list": pickled(Built([], {"a": 1})),
    "attributes of a tensor": pickled(Built(tensor(), {"shape": (9,)})),
    "attributes of a function": pickled(Built(REBUILD, {"a": 1})),
    "a call of a text": pickled(Opcodes(b"X\x01\x00\x00\x00a)R")),
    "a call of a dtype": pickled(Call(FLOAT8, ())),
    "a call without a tuple": pickled(Opcodes(b"ccollections\nOrderedDict\nNR")),
    "too few arguments": pickled(Call(REBUILD, (storage(),))),
    "too many arguments": pickled(Call(Global("collections", "OrderedDict"), ([],))),
    "a tensor of no storage": pickled(Call(REBUILD, (1, 0, (1,), (1,), False, None))),
    "a parameter of no tensor": pickled(Call(Global("torch._utils", "_rebuild_parameter"), (1, False, None))),
    "a size of texts": pickled(Call(Global("torch", "Size"), (("a",),))),
    "another persistent thing": pickled(Persistent(("module", HALF, "0", "cpu", 1))),
    "a short persistent thing": pickled(Persistent(("storage",))),
    "a persistent text": pickled(Persistent("storage")),
    "a storage of a text": pickled(Persistent(("storage", "torch.HalfStorage", "0", "cpu", 1))),
    "a storage of a dtype": pickled(Persistent(("storage", FLOAT8, "0", "cpu", 1))),
    "a storage without a name": pickled(Persistent(("storage", HALF, 0, "cpu", 1))),
    "a negative storage": pickled(Persistent(("storage", HALF, "0", "cpu", -1))),
    "a name of no text": pickled(Opcodes(b"NN\x93")),
    "a storage as dtype": pickled(
        Call(REBUILD_OF_DTYPE, (storage(kind=UNTYPED), 0, (1,), (1,), False, ORDERED_DICT, FLOAT))
    ),
}
SHAPES: list[tuple[Any, Any, Any]] = [
    *(((5,), (1,), 0), ((4,), (1,), 1), ((-1,), (1,), 0), ((4,), (-1,), 0), ((4,), (1,), -1), ((4,), (1, 1), 0)),
    *(((True,), (1,), 0), (("4",), (1,), 0), ([4], (1,), 0), (4, 1, 0), ((4,), (1,), None), ((4,), (1,), 1.0)),
    *(((1 << 62, 4), (4, 1), 0), ((1 << 64, 0), (1, 1), 0), ((1,) * 65, (1,) * 65, 0), ((4,), (1,), 1 << 2000)),
]


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_pickle_is_refused(tmp_path: Path, case: str) -> None:
    path = torch_archive(tmp_path / "m.pt", DAMAGED[case])
    with pytest.raises(ArrayFileError, match="is damaged, because its pickle cannot be read: fetch it again"):
        found(path)


@pytest.mark.parametrize(("shape", "strides", "offset"), SHAPES)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path, shape: Any, strides: Any, offset: Any) -> None:
    path = torch_archive(tmp_path / "m.pt", [tensor(shape, strides, offset)])
    with pytest.raises(ArrayFileError, match="is damaged, because its pickle cannot be read"):
        found(path)


def test_lists_in_lists_in_lists_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyxfer._files.torch_pickle._MAX_VALUES", 10_000)
    # Each list holds the one before ten times.
    layers = b"".join(b"(" + b"h\x00" * 10 + b"lq\x00" for _ in range(90))
    path = torch_archive(tmp_path / "m.pt", Opcodes(b"(]q\x00" + layers + b"t"))
    with pytest.raises(ArrayFileError, match="too many values"):
        found(path)


@pytest.mark.parametrize("limit", ["_MAX_PICKLE_BYTES", "_MAX_OPERATIONS"])
def test_a_pickle_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    path = torch_archive(tmp_path / "m.pt", {"w": tensor(), "x": "x" * 1000})
    monkeypatch.setattr(f"pyxfer._files.torch_pickle.{limit}", 10)
    with pytest.raises(ArrayFileError, match="values beside its tensors"):
        found(path)


def test_a_member_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    path = torch_archive(tmp_path / "m.pt", {"w": tensor()})
    with zipfile.ZipFile(path) as archive:
        places = [archive.getinfo(f"archive/{name}").header_offset for name in ("version", "data/0")]
    whole = path.read_bytes()
    begin, end = (struct.pack("<I", place) + b"archive/version" for place in places)
    path.write_bytes(whole.replace(begin, end))  # nobody reads the version
    with pytest.raises(ArrayFileError, match="its list of members does not fit the member"):
        found(path)


def test_two_pickles_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("a/data.pkl", pickled({}))
        archive.writestr("b/data.pkl", pickled({}))
    with pytest.raises(ArrayFileError, match=r"has 2 members data\.pkl"):
        found(tmp_path / "m.pt")


def test_a_pickle_that_does_not_fit_its_checksum_is_refused(tmp_path: Path) -> None:
    path = torch_archive(tmp_path / "m.pt", {"wwww": tensor()})
    path.write_bytes(path.read_bytes().replace(b"wwww", b"vvvv"))
    with pytest.raises(ArrayFileError, match="does not fit its checksum"):
        found(path)


def test_names_that_are_missing_are_said(tmp_path: Path) -> None:
    path = torch_archive(tmp_path / "m.pt", {"model": {"weight": tensor()}})
    with pytest.raises(UsageError, match=r"'model\.wieght' \(did you mean 'model\.weight'\?\)"):
        stored_arrays(os.fspath(path), ["model.wieght"])
