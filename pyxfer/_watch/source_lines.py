"""What a statement of the program casts or reorders on the host, by its syntax tree.

A function is read from its first statement to its last, without its branches and loops: each name is what was assigned
to it last. An array that it gets from elsewhere is taken for one in host memory.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_OTHER_NAMES = {"half": "float16", "single": "float32", "float": "float32", "double": "float64", "bool_": "bool"}
_OTHER_NAMES |= {"f2": "float16", "f4": "float32", "f8": "float64", "u1": "uint8", "i1": "int8"}
_HAVE_DTYPES = ("numpy", "torch", "tensorflow", "ml_dtypes")
_MODULES = (*_HAVE_DTYPES, "jax", "cupy", "pyxfer")
_CASTS = {"float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16"}
_ARRAYS = ("asarray", "array", "ascontiguousarray", "as_tensor", "tensor")
_FREE = (
    *("from_numpy", "frombuffer", "as_tensor", "asarray", "detach", "to"),
    *("reshape", "view", "squeeze", "unsqueeze", "expand_dims"),
)
_SCALES = ("div", "div_", "mul", "mul_")
_PERMUTES = ("permute", "transpose", "moveaxis", "movedim", "swapaxes")
_SENDS = ("cuda", "device_put", "constant", "convert_to_tensor", "upload")
_FETCHES = ("cpu", "numpy", "get", "item", "tolist")
_FETCHING = ("device_get", "download", "asnumpy")
_KNOWN_LAYOUTS = {(0, 3, 1, 2): "NHWC->NCHW", (0, 2, 3, 1): "NCHW->NHWC", (2, 0, 1): "HWC->CHW", (1, 2, 0): "CHW->HWC"}
_LETTERS = "ABCDEF"
_LITERALS = (ast.List, ast.Tuple, ast.Constant, ast.ListComp)  # of which an array is made, and not cast
_DEEPEST = 30


@dataclass(frozen=True)
class Conversion:
    """What a statement converts on the host, together with the statements whose result it converts.

    `dtype`: that of the result, empty without a cast. `source`: the dtype of what is cast, if the function states it.
    `layout`: such as `NHWC->NCHW`; empty if the axes are not known. `scales`: a number multiplies or divides it.
    `sent`: the function sends the result. `others`: what else these statements call; samples of a line do not separate
    their time. `first`: the line of the first of the statements.
    """

    dtype: str = ""
    source: str = ""
    permutes: bool = False
    layout: str = ""
    scales: bool = False
    sent: bool = False
    others: tuple[str, ...] = ()
    first: int = 0


@dataclass(frozen=True)
class _Array:
    """What is known of an expression.

    `away`: it is on a device or comes from one. `view`: the layout of a view whose items were not written yet, empty if
    its axes are not known.
    """

    made: Conversion = Conversion()
    away: bool = False
    view: str | None = None

    @property
    def is_converted(self) -> bool:
        return bool(self.made.dtype) or self.made.permutes

    def cast(self, dtype: str) -> _Array:
        """With another dtype; the same one costs nothing."""
        if (self.made.dtype or self.made.source) == dtype:
            return self
        return replace(self, made=replace(self.made, dtype=dtype))

    def written(self) -> _Array:
        """Its items in the order of the view."""
        if self.view is None:
            return self
        layout = "" if self.made.permutes else self.view
        return replace(self, made=replace(self.made, permutes=True, layout=layout), view=None)


@dataclass(frozen=True)
class _Statement:
    """One that contains no others. `on_host`: it is under `tf.device` of the CPU."""

    lineno: int
    end_lineno: int
    value: ast.expr | None
    targets: tuple[str, ...]
    on_host: bool

    def pairs(self) -> list[tuple[str, ast.expr]]:
        """The names with what is assigned to each; none if one value is unpacked."""
        if self.value is None:
            return []
        values = self.value.elts if isinstance(self.value, ast.Tuple) else [self.value]
        return list(zip(self.targets, values, strict=True)) if len(values) == len(self.targets) else []


class Source:
    """A file of the program. Raises a SyntaxError if this Python does not read it."""

    def __init__(self, text: str) -> None:
        self._tree = ast.parse(text)
        self._imported = {"np": "numpy", "tf": "tensorflow"}
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []  # outer ones before inner ones
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._functions.append(node)
            elif isinstance(node, ast.Import):
                self._imported |= {each.asname: each.name for each in node.names if each.asname}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}

    def conversion_at(self, line: int) -> Conversion | None:
        statements = self._statements_around(line)
        known: dict[str, _Array] = {}
        for place, statement in enumerate(statements):
            if statement.lineno <= line <= statement.end_lineno:
                found = self._converted(statement, known)
                if found is None:
                    return None
                sent = found.away or self._is_sent(statement.targets, statements[place + 1 :])
                return replace(found.made, sent=sent)
            self._assign(statement, known)
        return None

    def _statements_around(self, line: int) -> list[_Statement]:
        """Those of the innermost function around a line, in their order."""
        around = [each for each in self._functions if each.lineno <= line <= (each.end_lineno or 0)]
        return list(_statements(around[-1] if around else self._tree))

    def _assign(self, statement: _Statement, known: dict[str, _Array]) -> None:
        values = {name: self._known(value, statement, known) for name, value in statement.pairs()}
        for name in statement.targets:
            known[name] = values.get(name, _Array())

    def _converted(self, statement: _Statement, known: Mapping[str, _Array]) -> _Array | None:
        """What the statement converts itself. Of several arrays the first; all of its time is that of conversions."""
        for node in _walk(statement.value):
            before = known.get(_end(list(self._chain(node))), _Array())
            after = self._known(node, statement, known)
            if after.is_converted and not before.away and _work(after) != _work(before):
                return after
        return None

    def _known(self, node: ast.AST, statement: _Statement, known: Mapping[str, _Array]) -> _Array:
        """What is known of an expression, by the chain of calls that it ends."""
        steps = list(self._chain(node))
        before = array = known.get(_end(steps), _Array())
        for step in reversed(steps):
            array = self._after(step, array, statement.on_host)
        if array.is_converted and _work(array) != _work(before):
            others, scales = self._besides(statement.value)
            made = replace(array.made, others=(*array.made.others, *others), scales=array.made.scales or scales)
            array = replace(array, made=replace(made, first=made.first or statement.lineno))
        return array

    def _after(self, node: ast.AST, array: _Array, on_host: bool) -> _Array:
        """What is known of the result of one call."""
        if array.away or not isinstance(node, (ast.Call, ast.Attribute)):
            return array
        if isinstance(node, ast.Attribute):
            return replace(array, view="") if node.attr in ("T", "mT") else array
        module, name = self._called(node)
        if (name in _FETCHES and not node.args) or name in _FETCHING:  # `get` of a dict has an argument
            return _Array(away=True)
        if dtype := self._cast(node, on_host):
            array = array.cast(dtype)
        elif not array.made.dtype and (stated := self._dtype_among(node, 0)):
            array = replace(array, made=replace(array.made, source=stated))
        if name in _PERMUTES:
            arguments = node.args[1:] if module else node.args
            is_known = name in ("permute", "transpose") and array.view is None
            array = replace(array, view=_layout(arguments) if is_known else "")
        if self._writes(node):
            array = array.written()
        return replace(array, away=self._sends(node))

    def _is_sent(self, targets: Sequence[str], later: Sequence[_Statement]) -> bool:
        """Whether one of these statements sends what was assigned to these names."""
        names = set(targets)
        for statement in later:
            for node in _walk(statement.value):
                if self._sends(node) and _end(list(self._chain(node))) in names:
                    return True
            names |= {name for name, value in statement.pairs() if _end(list(self._chain(value))) in names}
        return False

    # --- calls ---

    def _chain(self, node: ast.AST) -> Iterator[ast.AST]:
        """A call, the array that it is of, the call that made that, and so on."""
        for _ in range(_DEEPEST):
            yield node
            inner = self._array_of(node)
            if inner is None:
                return
            node = inner

    def _array_of(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Call):
            is_method = isinstance(node.func, ast.Attribute) and not self._is_of_module(node.func)
            if isinstance(node.func, ast.Attribute) and is_method and node.func.attr not in ("upload", "set"):
                return node.func.value
            return node.args[0] if node.args else None
        if isinstance(node, ast.BinOp):
            arrays = [side for side in (node.left, node.right) if not _is_number(side)]
            return arrays[0] if len(arrays) == 1 else None
        if isinstance(node, (ast.Subscript, ast.Attribute)) and not self._is_of_module(node):
            return node.value
        return None

    def _dotted(self, node: ast.AST | None) -> str:
        """`numpy.float32` for `np.float32`; empty if it is not a name with dots."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, node.id)
        owner = self._dotted(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{owner}.{node.attr}" if owner and isinstance(node, ast.Attribute) else ""

    def _is_of_module(self, node: ast.AST) -> bool:
        return self._dotted(node).partition(".")[0] in _MODULES

    def _called(self, node: ast.Call) -> tuple[str, str]:
        """The module of a called function, empty for a method, and its name."""
        if isinstance(node.func, ast.Attribute) and not self._is_of_module(node.func):
            return "", node.func.attr
        module, _, name = self._dotted(node.func).rpartition(".")
        return module, name

    def _dtype(self, node: ast.AST | None) -> str:
        """The name of the dtype that an expression is. Those of JAX and CuPy are used for arrays on a device."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            owner, word = "numpy", node.value.lstrip("<=|")
        else:
            owner, _, word = self._dotted(node).rpartition(".")
            if (owner, word) == ("", "float"):
                return "float64"
        name = _OTHER_NAMES.get(word, word)
        return name if owner in _HAVE_DTYPES and name in ITEM_BYTES else ""

    def _dtype_among(self, node: ast.Call, first: int) -> str:
        """The dtype that a call names: by keyword, or in its arguments from this one on."""
        named = [each.value for each in node.keywords if each.arg == "dtype"]
        return next((found for each in (*named, *node.args[first:]) if (found := self._dtype(each))), "")

    def _cast(self, node: ast.Call, on_host: bool) -> str:
        """The floating-point type that a call casts to on the host; empty if it does not."""
        module, name = self._called(node)
        dtype = ""
        if not module and name in _CASTS and not node.args:
            dtype = _CASTS[name]
        elif not module and name in ("astype", "type", "to"):
            # A copy of PyTorch that waits casts on the host, before it sends.
            casts_there = name == "to" and self._sends(node) and _is_on(node, "non_blocking")
            dtype = "" if casts_there else self._dtype_among(node, 0)
        elif module in ("numpy", "torch") and name in (*_ARRAYS, "astype"):
            is_literal = bool(node.args) and isinstance(node.args[0], _LITERALS)
            dtype = "" if is_literal else self._dtype_among(node, 1)
        elif module == "tensorflow" and name == "cast":
            dtype = self._dtype_among(node, 1) if on_host else ""
        elif module == "numpy" and node.args and not _is_number(node.args[0]):
            dtype = self._dtype(node.func)
        return dtype if dtype in _FLOATING else ""

    def _writes(self, node: ast.Call) -> bool:
        """Whether a call writes items in the order of a view. `astype`, `np.array` and `clone` keep that of memory."""
        module, name = self._called(node)
        if module:
            return (module, name) == ("numpy", "ascontiguousarray")
        return name in ("contiguous", "copy") and not node.args and not node.keywords

    def _sends(self, node: ast.AST) -> bool:
        """Whether a call sends its array to a device."""
        if not isinstance(node, ast.Call):
            return False
        module, name = self._called(node)
        devices = [each.value for each in node.keywords if each.arg == "device"]
        if not module and name == "to":
            devices += [each for each in node.args[:1] if not self._dtype(each)]
        if name in ("to", *_ARRAYS) and module in ("", "torch"):
            return any(not _is_cpu(each) for each in devices)
        return name in _SENDS or (module in ("jax.numpy", "cupy") and name in _ARRAYS)

    def _besides(self, value: ast.expr | None) -> tuple[tuple[str, ...], bool]:
        """What else an expression does that takes time, and whether a number multiplies or divides an array."""
        names, scales = [], False
        for node in _walk(value):
            if isinstance(node, ast.BinOp) and not _is_number(node):
                if _is_number(node.left) or _is_number(node.right):
                    scales = True
                else:
                    names.append("arithmetic")
            if isinstance(node, ast.Call) and self._dotted(node.func) != "torch.device":
                _, name = self._called(node)
                is_known = self._cast(node, on_host=True) or self._writes(node) or self._sends(node)
                if name in _SCALES and node.args and _is_number(node.args[0]):
                    scales = True
                elif not is_known and name not in (*_FREE, *_PERMUTES):
                    names.append(f"{name or 'another call'}()")
        return tuple(dict.fromkeys(names)), scales


def _work(array: _Array) -> tuple[str, bool, str]:
    return array.made.dtype, array.made.permutes, array.made.layout


def _statements(scope: ast.AST, on_host: bool = False) -> Iterator[_Statement]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)):
            target = node.targets[-1] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            names = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)] if target else []
            is_names = isinstance(target, (ast.Name, ast.Tuple))
            targets = tuple(names) if is_names else ()
            yield _Statement(node.lineno, node.end_lineno or node.lineno, node.value, targets, on_host)
        else:
            yield from _statements(node, on_host or _is_under_cpu(node))


def _is_under_cpu(node: ast.AST) -> bool:
    """Whether this is `with tf.device("/CPU:0"):`."""
    calls = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "device"
        and any(map(_is_cpu, call.args))
        for call in calls
    )


def _walk(value: ast.expr | None) -> Iterator[ast.AST]:
    """An expression and those in it, outer ones first, without the bodies of functions."""
    waiting: deque[ast.AST] = deque([] if value is None else [value])
    while waiting:
        node = waiting.popleft()
        if not isinstance(node, ast.Lambda):
            yield node
            waiting += ast.iter_child_nodes(node)


def _end(steps: Sequence[ast.AST]) -> str:
    """The name that a chain begins with; empty if it begins otherwise."""
    return steps[-1].id if isinstance(steps[-1], ast.Name) else ""


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _is_cpu(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and "cpu" in node.value.lower()


def _is_on(call: ast.Call, keyword: str) -> bool:
    values = [each.value for each in call.keywords if each.arg == keyword]
    return any(isinstance(value, ast.Constant) and bool(value.value) for value in values)


def _layout(arguments: Sequence[ast.expr]) -> str:
    """The layout by the axes of a permutation. Two axes may be those that PyTorch's `transpose` swaps."""
    axes = arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)) else arguments
    order = []
    for each in axes:
        sign, number = (-1, each.operand) if isinstance(each, ast.UnaryOp) else (1, each)
        if not isinstance(number, ast.Constant) or not isinstance(number.value, int):
            return ""
        order.append(sign * number.value % len(axes))
    letters = _LETTERS[: len(order)]
    if len(order) <= 2 or sorted(order) != list(range(len(letters))):  # noqa: PLR2004 - see above
        return ""
    return _KNOWN_LAYOUTS.get(tuple(order), f"{letters}->{''.join(letters[axis] for axis in order)}")
