"""A script or a module run as `python` itself would run it: its own `__main__`, its path, its arguments."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any

from pyxfer.errors import UsageError

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RUNNERS = ("<string>", "<frozen runpy>", runpy.__file__)

Run = Callable[[], None]


def prepare(name: str, arguments: Sequence[str], *, is_module: bool) -> Run:
    """Make this process look as it would; what is returned runs the program.

    Raises:
        UsageError: there is none, or it is not Python.

    """
    _become_main(ModuleType("__main__"))
    sys.argv[:] = [name, *arguments]
    sys.excepthook = _without_us(sys.excepthook)
    if is_module:
        _put_first(_here())
        _check_module(name)
        sys.argv[0] = "-m"
        return lambda: _run_as_main(name, alter_argv=True)
    if pkgutil.get_importer(name) is not None:  # a folder or an archive, with a __main__ inside
        _put_first(os.path.abspath(name))
        return lambda: _run_as_main("__main__", alter_argv=False)
    code = read_code(name)
    _put_first(os.path.dirname(os.path.realpath(name)))
    return lambda: _run_code(code, name)


def read_code(path: str) -> CodeType:
    """What a script says, compiled.

    Raises:
        UsageError: it cannot be read, or it is not Python.

    """
    place = _absolute(path)
    try:
        with io.open_code(place) as file:
            text = file.read()  # once, for it may be a pipe
        code: CodeType | None = pkgutil.read_code(io.BytesIO(text))  # one that was compiled before
        return code if code is not None else compile(text, place, "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"The script {path!r} cannot be read ({error.strerror}): check its name.") from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(_not_python(path, error)) from error


def _check_module(name: str) -> None:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"There is no module {name!r} to run ({error}): check its name.") from error
    if spec is None:
        raise UsageError(f"There is no module {name!r} that can be run: check its name.")
    get_code: Any = getattr(spec.loader, "get_code", None)
    try:
        if get_code is not None:
            get_code(spec.name)
    except SyntaxError as error:
        raise UsageError(_not_python(spec.origin or name, error)) from error


def _not_python(path: str, error: Exception) -> str:
    where = str(error)
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    return f"{path!r} is not Python ({where}): correct it, or name another script."


def _become_main(module: ModuleType) -> None:
    module.__builtins__ = builtins  # type: ignore[attr-defined]  # as Python gives it to a script
    if "__annotations__" in vars(sys.modules["__main__"]):  # not from 3.14 on
        module.__annotations__ = {}
    sys.modules["__main__"] = module


def _put_first(folder: str) -> None:
    """Where the program's own modules are looked for; with -P or -I nowhere."""
    if sys.path and sys.path[0] == "":
        sys.path[0] = folder


def _run_as_main(name: str, *, alter_argv: bool) -> None:
    run: Any = vars(runpy)["_run_module_as_main"]  # what `python -m` itself calls
    run(name, alter_argv=alter_argv)


def _run_code(code: CodeType, path: str) -> None:
    main = sys.modules["__main__"]
    main.__file__ = _absolute(path)
    main.__cached__ = None  # type: ignore[attr-defined]  # as Python leaves it for a script
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
    exec(code, main.__dict__)  # noqa: S102 - this is what it was asked for


def _absolute(path: str) -> str:
    """As Python makes it of a script's name, which is not as tidy as `abspath`."""
    return os.path.join(_here(), path)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone; what is named from the root runs all the same
        return ""


def _without_us(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Tracebacks begin where the program begins."""

    def show(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        while at is not None and _is_ours(at.tb_frame.f_code.co_filename):
            at = at.tb_next
        hook(kind, error.with_traceback(at), at)

    return show


def _is_ours(path: str) -> bool:
    return path in _RUNNERS or path.startswith(_OURS + os.sep)
