"""Arrays in structures."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections import OrderedDict, UserDict, defaultdict, deque
from enum import Flag
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._upload.trees import map_arrays
from pyxfer.errors import UsageError


class Pair(NamedTuple):
    images: Any
    labels: Any


@dataclasses.dataclass
class Batch:
    images: Any
    labels: Any = None
    count: int = dataclasses.field(default=0, init=False)
    never: Any = dataclasses.field(init=False, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    images: Any
    twice: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", [self.images, self.images])


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    images: Any


class Named(dict[str, Any]):
    """A dict with a name."""

    name = ""


class Listed(list[Any]):
    """A list with a name."""

    name = ""


class Tupled(tuple[Any, ...]):
    """A tuple with a name, whose constructor takes more than its items."""

    name: str

    def __new__(cls, name: str, *items: Any) -> Tupled:
        made = super().__new__(cls, items)
        made.name = name
        return made


class Colour(Flag):
    RED = 1
    GREEN = 2


def number(x: Any) -> int:
    """Stands for a sent array."""
    return int(np.asarray(memoryview(x)).sum())


def array(value: int) -> np.ndarray[Any, Any]:
    return np.array([value])


def arrays_of(tree: Any, name: str = "batch") -> list[tuple[str, Any]]:
    """Each array in a structure with its place, as an error names it."""
    found: list[Any] = []
    map_arrays(tree, found.append, name)
    return [(place_of(number, tree, name), x) for number, x in enumerate(found)]


def place_of(number: int, tree: Any, name: str) -> str:
    counted = itertools.count()

    def send(_: Any) -> None:
        if next(counted) == number:
            raise UsageError("refused")

    with pytest.raises(UsageError) as caught:
        map_arrays(tree, send, name)
    return str(caught.value).removesuffix(": refused")


keys = st.text(max_size=3) | st.integers() | st.tuples(st.integers())
single = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
arrays = st.integers(-(2**40), 2**40).map(array)


def containers(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inside, max_size=4),
        st.lists(inside, max_size=4).map(tuple),
        st.dictionaries(keys, inside, max_size=4),
        st.dictionaries(keys, inside, max_size=4).map(OrderedDict),
        st.builds(Pair, inside, inside),
        st.builds(Batch, inside, inside),
        st.builds(Slotted, inside),
    )


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, containers, max_leaves=12)


@given(trees(single))
def test_a_structure_without_arrays_is_unchanged(tree: Any) -> None:
    assert map_arrays(tree, number) == tree
    assert arrays_of(tree) == []


@given(trees(single | arrays))
def test_map_arrays_changes_only_the_arrays(tree: Any) -> None:
    held: list[Any] = []

    def send(x: Any) -> Any:
        held.append(x)
        return Sent(x)

    sent = map_arrays(tree, send)
    assert [id(x) for _, x in arrays_of(tree)] == [id(x) for x in held]
    assert arrays_of(sent) == []
    assert repr(sent) == repr(tree)


class Sent:
    """A sent array, with the same repr as the array."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    def __repr__(self) -> str:
        return repr(self.x)


@given(trees(single | arrays))
def test_the_place_of_each_array_is_a_python_expression(tree: Any) -> None:
    for place, x in arrays_of(tree):
        assert eval(place, {"batch": tree}) is x


def test_scalars_and_buffers_in_a_structure_are_arrays() -> None:
    tree = {"scalar": np.float64(2.0), "bytes": b"\x01\x02", "text": np.str_("a"), "number": 1.5}
    assert map_arrays(tree, number) == {"scalar": 2, "bytes": 3, "text": "a", "number": 1.5}


def test_a_dict_keeps_its_type_order_and_attributes() -> None:
    counted: defaultdict[str, Any] = defaultdict(list, b=array(1), a=array(2))
    made = map_arrays(counted, number)
    assert (type(made), list(made.items()), made.default_factory) == (defaultdict, [("b", 1), ("a", 2)], list)
    named = Named(x=array(3))
    named.name = "own"
    made = map_arrays(named, number)
    assert (type(made), made, made.name) == (Named, {"x": 3}, "own")


def test_a_list_and_a_tuple_keep_their_types_and_attributes() -> None:
    listed = Listed([array(1)])
    listed.name = "own"
    made = map_arrays([listed, Tupled("own", array(2), 5)], number)
    assert [(type(x), x, x.name) for x in made] == [(Listed, [1], "own"), (Tupled, (2, 5), "own")]


def test_a_struct_time_is_unchanged_and_one_of_arrays_is_made_anew() -> None:
    now = time.localtime()
    assert map_arrays((now, array(1)), number) == (now, 1)
    made = map_arrays(time.struct_time([array(4), *range(1, 9)]), number)
    assert (type(made), list(made)) == (time.struct_time, [4, *range(1, 9)])


def test_a_dataclass_keeps_fields_that_its_constructor_does_not_take() -> None:
    batch = Batch(array(1))
    batch.count = 7
    made = map_arrays(batch, number)
    assert (made.images, made.labels, made.count, hasattr(made, "never")) == (1, None, 7, False)


def test_a_frozen_dataclass_is_copied_without_its_constructor() -> None:
    made = map_arrays(Frozen(array(1)), number)
    assert (type(made), made.images, made.twice) == (Frozen, 1, [1, 1])
    assert map_arrays(Slotted(array(2)), number) == Slotted(2)


def test_an_array_that_occurs_twice_is_sent_twice() -> None:
    x = array(4)
    assert map_arrays([x, {"again": x}], number) == [4, {"again": 4}]


@pytest.mark.parametrize("leaf", [None, "text", 1, 2.5, 1j, True, Path("a"), Colour.RED, Colour, np.float32, number])
def test_a_single_object_is_unchanged(leaf: Any) -> None:
    assert map_arrays({"x": leaf}, number) == {"x": leaf}


@pytest.mark.parametrize(
    "unknown", [{1}, deque(), UserDict(), MappingProxyType({}), iter([]), range(3)], ids=lambda x: type(x).__name__
)
def test_an_unknown_container_is_refused(unknown: Any) -> None:
    with pytest.raises(UsageError, match=r'^batch\["x"\]: pyxfer does not look for arrays in this'):
        map_arrays({"x": unknown}, number)


def test_an_object_with_arrays_in_its_attributes_is_refused_and_another_is_unchanged() -> None:
    with pytest.raises(UsageError, match=r'^batch\["x"\]: .* the attributes of this types\.SimpleNamespace: make it'):
        map_arrays({"x": SimpleNamespace(words="a", images=array(4))}, number)
    plain = SimpleNamespace(words="a")
    assert map_arrays({"x": plain}, number)["x"] is plain


def test_a_tensor_that_is_not_one_array_is_refused_and_not_left_on_the_host() -> None:
    class Ragged:
        shape = (2, None)
        dtype = np.dtype(np.int32)

    with pytest.raises(UsageError, match=r"^batch\[0\]: this .*Ragged is not one array"):
        map_arrays((Ragged(), np.zeros(3)), lambda array: array)


PLACES = {
    "field": (Batch(array(1)), "batch.images"),
    "quoted": ({'a"\n': array(1)}, r'batch["a\"\n"]'),
    "other letters": ({"größe": array(1)}, 'batch["größe"]'),
    "half a letter": ({"\ud800": array(1)}, r'batch["\ud800"]'),
    "long": ({("x" * 100,): array(1)}, f"batch[('{'x' * 12}...{'x' * 13}',)]"),
}


@pytest.mark.parametrize(("tree", "place"), PLACES.values(), ids=PLACES)
def test_places_are_written_in_python_syntax(tree: Any, place: str) -> None:
    assert [each for each, _ in arrays_of(tree)] == [place]


def test_other_errors_of_sending_are_raised_unchanged() -> None:
    error = MemoryError("no more")

    def send(_: Any) -> None:
        raise error

    with pytest.raises(MemoryError) as caught:
        map_arrays([array(1)], send)
    assert caught.value is error


def test_a_structure_that_contains_itself_is_refused() -> None:
    tree: dict[str, Any] = {"inner": {}}
    tree["inner"]["outer"] = [tree]
    with pytest.raises(UsageError, match=re.escape('batch["inner"]["outer"][0] is batch again: ')):
        map_arrays(tree, number)


def nested(depth: int) -> Any:
    tree: Any = array(1)
    for _ in range(depth):
        tree = [tree]
    return tree


def test_a_structure_may_be_nested_100_deep_and_not_deeper() -> None:
    assert len(arrays_of(nested(100))) == 1
    with pytest.raises(UsageError, match="batch is nested more than 100 deep: flatten it"):
        map_arrays(nested(101), number)
    with pytest.raises(UsageError, match="nested"):
        map_arrays(nested(100_000), number)
