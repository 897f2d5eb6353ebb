"""Finds the steps of an unchanged script: batches of Keras, optimizer steps, calls of compiled and of named functions.

The module that a framework defines them in is changed when the script has imported it. Nothing is imported here.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import runpy
import sys
import threading
import types
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from time import perf_counter_ns
from types import CodeType, ModuleType
from typing import Any

from pyxfer._document.watches import StepFinder
from pyxfer._watch.step_tracking import AnySteps, error_line
from pyxfer.errors import UsageError

MAIN = "__main__"
OPTIMIZER = "torch.optim.optimizer"
KERAS = "keras.src.callbacks.callback_list"
TENSORFLOW = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
JAX = "jax"
_RANKS: dict[StepFinder, int] = {"compiled": 0, "optimizer": 1, "keras": 2, "named": 3}


class _Thread(threading.local):
    is_inside = False
    """Whether the thread is inside of a call that is a step."""
    batch_begin_ns: int | None = None


class FoundSteps:
    """Passes the steps of the highest kind found so far to `steps()`, and leaves out those of lower kinds."""

    def __init__(self, steps: Callable[[], AnySteps]) -> None:
        self._steps = steps
        self._finder: StepFinder | None = None
        self._thread = _Thread()
        self._lock = threading.Lock()

    def optimizer_stepped(self, optimizer: int) -> None:
        if self._counts("optimizer"):
            self._steps().found_step("optimizer", str(optimizer), None)

    def batch_began(self) -> None:
        """Replaces a batch that never ended: one that raised, or that found the input at its end."""
        self._thread.batch_begin_ns = perf_counter_ns() if self._counts("keras") else None

    def batch_ended(self) -> None:
        begin_ns, self._thread.batch_begin_ns = self._thread.batch_begin_ns, None
        if begin_ns is not None:
            self._steps().found_step("keras", "fit", begin_ns)

    def call(
        self,
        finder: StepFinder,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
        *,
        is_first: bool = False,
    ) -> Any:
        """Call the function. The call is a step unless it is inside of another one, or the first of its function."""
        thread = self._thread
        if thread.is_inside or self._is_outranked(finder):
            return function(*arguments, **named)
        thread.is_inside, begin_ns, error = True, perf_counter_ns(), None
        try:
            return function(*arguments, **named)
        except BaseException as raised:
            error = raised
            raise
        finally:
            thread.is_inside = False
            if is_first:
                self._steps().begin_here()
            elif self._counts(finder):
                self._steps().found_step(finder, name, begin_ns, error)

    def _is_outranked(self, finder: StepFinder) -> bool:
        return self._finder is not None and _RANKS[finder] < _RANKS[self._finder]

    def _counts(self, finder: StepFinder) -> bool:
        """Whether steps of this kind count. The first of a higher kind makes the earlier steps void."""
        if finder == self._finder:
            return True
        with self._lock:
            if self._is_outranked(finder):
                return False
            before, self._finder = self._finder, finder
        if before is not None:
            self._steps().restart()
        return True


def find_steps(found: FoundSteps, named: NamedFunction | None) -> Callable[[], None]:
    """Pass the script's steps to `found`. If a function is named, only its calls are steps.

    The result stops waiting for imports. What was changed stays: undoing it during a step would break that step.
    """
    if named is not None:
        named.found = found
        return _on_import({} if named.module == MAIN else {named.module: named.wrap_in})
    hooks = {OPTIMIZER: _hook_optimizers, KERAS: _hook_keras, TENSORFLOW: _hook_tensorflow, JAX: _hook_jax}
    return _on_import({name: functools.partial(hook, found) for name, hook in hooks.items()})


def _hook_optimizers(found: FoundSteps, module: ModuleType) -> None:
    """Register the hook that PyTorch 2.0 and later call after each step. Earlier ones have no steps."""
    register: Any = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(lambda optimizer, *_: found.optimizer_stepped(id(optimizer)))


def _hook_keras(found: FoundSteps, module: ModuleType) -> None:
    """`fit` of Keras 3 calls the two methods around each batch, with every backend."""
    callbacks: Any = vars(module)["CallbackList"]
    begin, end = callbacks.on_train_batch_begin, callbacks.on_train_batch_end

    @functools.wraps(begin)
    def on_train_batch_begin(*arguments: Any, **named: Any) -> Any:
        found.batch_began()
        return begin(*arguments, **named)

    @functools.wraps(end)
    def on_train_batch_end(*arguments: Any, **named: Any) -> Any:
        result = end(*arguments, **named)
        found.batch_ended()
        return result

    callbacks.on_train_batch_begin, callbacks.on_train_batch_end = on_train_batch_begin, on_train_batch_end


def _hook_tensorflow(found: FoundSteps, module: ModuleType) -> None:
    kind: Any = vars(module)["Function"]
    call, called = kind.__call__, weakref.WeakSet[Any]()

    @functools.wraps(call)
    def counted(function: Any, /, *arguments: Any, **named: Any) -> Any:
        name, is_first = str(getattr(function, "_name", "tf.function")), function not in called
        if is_first:
            called.add(function)
        return found.call("compiled", name, call, (function, *arguments), named, is_first=is_first)

    kind.__call__ = counted


def _hook_jax(found: FoundSteps, module: ModuleType) -> None:
    jit: Any = vars(module)["jit"]

    def counted(made: Any) -> Any:
        """`jax.jit` without a function gives a decorator. Functions of JAX itself are not counted."""
        is_compiled = hasattr(made, "lower")
        is_of_jax = is_compiled and str(getattr(made, "__module__", "")).partition(".")[0] == JAX
        if type(made) is CountedCallable or is_of_jax:
            return made
        if is_compiled:
            return CountedCallable(made, functools.partial(found.call, "compiled"))
        return lambda *arguments, **named: counted(made(*arguments, **named))

    vars(module)["jit"] = functools.wraps(jit)(lambda *arguments, **named: counted(jit(*arguments, **named)))


def _passed_on(function: Callable[..., Any]) -> Any:
    return lambda counted, *words: function(counted._pyxfer_object, *words)


class CountedCallable:
    """A callable object whose calls go through `call`. For everything else it stands for that object."""

    __slots__ = ("__dict__", "__weakref__", "_pyxfer_call", "_pyxfer_is_first", "_pyxfer_object")

    def __init__(self, made: Any, call: Callable[..., Any]) -> None:
        replace = functools.partial(object.__setattr__, self)
        replace("_pyxfer_object", made)
        replace("_pyxfer_call", call)
        replace("_pyxfer_is_first", True)
        with suppress(AttributeError, TypeError):
            replace("__dict__", made.__dict__)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        made, is_first = self._pyxfer_object, self._pyxfer_is_first
        object.__setattr__(self, "_pyxfer_is_first", False)
        return self._pyxfer_call(getattr(made, "__name__", ""), made, arguments, named, is_first=is_first)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind as a method, as far as the object itself does."""
        if instance is None or not hasattr(self._pyxfer_object, "__get__"):
            return self
        return types.MethodType(self, instance)

    @property  # type: ignore[misc]  # nothing sets it
    def __class__(self) -> Any:
        return type(self._pyxfer_object)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pyxfer_object, name)

    __setattr__ = _passed_on(setattr)
    __delattr__ = _passed_on(delattr)
    __dir__ = _passed_on(dir)
    __repr__ = _passed_on(repr)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._pyxfer_object.__reduce_ex__(protocol)


class NamedFunction:
    """The function of `--step module:function` or `module:Class.method`, whose calls are the steps."""

    def __init__(self, text: str) -> None:
        self.module, _, path = text.partition(":")
        self._path = path.split(".")
        names = (*self.module.split("."), *self._path)
        if not all(name.isidentifier() for name in names) or self.module.endswith(".py"):
            raise UsageError(
                f"--step: {text!r} does not name a function: give module:function or module:Class.method, and "
                f"{MAIN}:function for a function of the script itself."
            )
        self.text = text
        self.found: FoundSteps | None = None
        self.problem = f"the script did not import {self.module!r}; a function of the script itself is in {MAIN}"
        """Why there are no steps. Empty after the first call."""
        if self.module == MAIN:
            self.problem = f"the script did not define {path!r}"
        self._wrapper: Any = None

    def check(self) -> None:
        """Look for the module, without importing anything."""
        name = self.module.partition(".")[0]
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise UsageError(f"--step: there is no module {name!r}: check its name, or add its folder to PYTHONPATH.")

    def wrap_in(self, module: ModuleType) -> None:
        """Replace the function in its module or class. If that is not possible, `problem` has the reason."""
        owner: Any = module
        try:
            for place, name in enumerate(self._path):
                part = inspect.getattr_static(owner, name, None)
                if part is None:
                    raise UsageError(f"{self._upto(place)} has no {name!r}")
                if part is self._wrapper:
                    return
                if place < len(self._path) - 1:
                    owner = part
            if not isinstance(owner, (ModuleType, type)):
                raise UsageError(f"{self._upto(len(self._path) - 1)} is not a class: name the method of its class")
            self.problem = f"{self.text} was never called in this process"
            self._wrapper = self._wrapped(part)
            setattr(owner, self._path[-1], self._wrapper)
        except Exception as error:  # noqa: BLE001 - must not change how the script runs
            self.problem = str(error) if isinstance(error, UsageError) else error_line(error)

    def _upto(self, place: int) -> str:
        return f"{self.module}:{'.'.join(self._path[:place])}" if place else f"the module {self.module!r}"

    def _wrapped(self, part: Any) -> Any:
        if isinstance(part, (staticmethod, classmethod)):
            return type(part)(self._wrapped(part.__func__))
        if isinstance(part, type):
            raise UsageError(f"{self.text} is a class: name one of its methods, such as {self.text}.__call__")
        if not callable(part):
            raise UsageError(f"{self.text} is not a function, but of type {type(part).__name__}")
        tests = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(test(part) for test in tests):
            raise UsageError(
                f"{self.text} is a coroutine or generator function, and its calls return before its work is done: "
                "name a function that does the work"
            )
        if not inspect.isfunction(part):
            return CountedCallable(part, lambda _, *words, is_first: self._call(*words))
        return functools.wraps(part)(lambda *arguments, **named: self._call(part, arguments, named))

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        self.problem = ""
        if self.found is None:
            return function(*arguments, **named)
        return self.found.call("named", self.text, function, arguments, named)

    def compiled_main(self, source: bytes | str, path: str) -> CodeType:
        """The code of the main module, which calls `wrap_named` where it has bound the function or its class."""
        global _named
        _named, calls = self, _BindingCalls(self._path[0])
        tree = calls.visit(ast.parse(source, path))
        if not calls.is_bound:
            raise UsageError(f"--step: the script defines no {self._path[0]!r}: name the module that does.")
        return compile(tree, path, "exec", dont_inherit=True)


_named: NamedFunction | None = None


def wrap_named() -> None:
    """The main module has bound the named function or its class."""
    if _named is not None:
        _named.wrap_in(sys.modules[MAIN])


class _BindingCalls(ast.NodeTransformer):
    """Adds a call of `wrap_named` after each statement outside of functions and classes that binds the name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_bound = False

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.stmt):
            return self.generic_visit(node)
        is_definition = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if not is_definition and (hasattr(node, "body") or hasattr(node, "cases")):
            return self.generic_visit(node)
        if self._name not in _bound(node):
            return node
        self.is_bound = True
        return [node, self._call(node)]

    def _call(self, node: ast.stmt) -> ast.stmt:
        module = ast.parse(f"__import__({__name__!r}, None, None, ('*',)).{wrap_named.__name__}()")
        for each in ast.walk(module):
            ast.copy_location(each, node)
        return module.body[0]


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


Hook = Callable[[ModuleType], None]


def _on_import(hooks: Mapping[str, Hook]) -> Callable[[], None]:
    """Call each hook with its module as soon as that has been imported. The result stops waiting."""
    waiting = {name: hook for name, hook in hooks.items() if name not in sys.modules}

    def loaded(module: ModuleType) -> None:
        hook = waiting.pop(module.__name__, None)
        if not waiting:
            finder.stop_waiting()
        if hook is not None:
            _call_hook(hook, module)

    finder = _Finder(waiting, loaded)
    for name, hook in hooks.items():
        if name in sys.modules:
            _call_hook(hook, sys.modules[name])
    if waiting:
        sys.meta_path.insert(0, finder)
    return finder.stop_waiting


def _call_hook(hook: Hook, module: ModuleType) -> None:
    with suppress(Exception):  # a version that differs inside has no steps
        hook(module)


def compile_main_with(named: NamedFunction) -> None:
    """Have runpy execute the next module, which is the main one, as `named.compiled_main` compiles it."""
    names = vars(runpy)
    run_code = names["_run_code"]  # what `python -m` itself calls with the code of a module, folder or archive

    def run_compiled(code: CodeType, variables: dict[str, Any], init: object, name: str, spec: ModuleSpec) -> Any:
        names["_run_code"] = run_code
        loader: Any = spec.loader
        source = loader.get_source(spec.name) if hasattr(loader, "get_source") else None
        with suppress(UsageError):  # the report says that there is no such function
            code = code if source is None else named.compiled_main(source, code.co_filename)
        return run_code(code, variables, init, name, spec)

    names["_run_code"] = run_compiled


class _Finder(MetaPathFinder):
    """Has `on_loaded` called with some modules when they are loaded, and leaves finding them to the other finders."""

    def __init__(self, names: Container[str], on_loaded: Hook) -> None:
        self._names = names
        self._on_loaded = on_loaded
        self._finding = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names or fullname == self._finding:
            return None
        self._finding = fullname
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding = ""
        if spec is not None and spec.loader is not None:
            spec.loader = _HookingLoader(spec.loader, self._on_loaded)
        return spec

    def stop_waiting(self) -> None:
        with suppress(ValueError):
            sys.meta_path.remove(self)


class _HookingLoader(Loader):
    """Loads with the module's own loader, and calls `on_loaded` with the module when it has been loaded."""

    def __init__(self, loader: Loader, on_loaded: Hook) -> None:
        self._loader = loader
        self._on_loaded = on_loaded

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load the module, which then has its own loader."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._on_loaded(module)
