"""The defaults of options that a user keeps in files (`pyxfer._config`), as a context's `default_map`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from pyxfer._config import OF_THE_MACHINE, ConfigFile, read_config
from pyxfer.errors import UsageError

# The options that a file may set. Left out is what names a file to write, code or a command to run, or one question.
_KEYS = (
    "at_once batch budget capacity cast cell complete confirm count details device direction dtype duration engine "
    "fail_on fresh group label layout memory method mode no_trace order patience precision processes quiet require_gpu "
    "retries route size skip steps tolerance via wait workload"
)
KEYS = frozenset(_KEYS.split())
# A fleet compares hosts, so all are measured as `fleet run` says, whatever the files of each host have.
WITHOUT_FILES = (("fleet", "host"),)

Words = tuple[str, ...]
Options = dict[str, Any]


class WithDefaults:
    """A command whose options have the defaults of the files."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> Any:
        given, rest, _ = self.make_parser(ctx).parse_args(list(args))
        eager = {each.name for each in self.get_params(ctx) if each.is_eager}  # such as --help
        names_verb = bool(rest) and hasattr(self, "commands")
        # The caller of the application may give the defaults itself.
        if not (ctx.resilient_parsing or eager & given.keys() or names_verb) and ctx.find_root().default_map is None:
            ctx.default_map, ctx.obj = defaults_of(ctx)
        return super().parse_args(ctx, args)  # type: ignore[misc]

    def invoke(self: Any, ctx: Any) -> Any:
        with _naming_the_file(ctx):
            return super().invoke(ctx)  # type: ignore[misc]


class Verb(WithDefaults, TyperCommand):
    pass


class Application(typer.Typer):
    def command(self, *arguments: Any, **settings: Any) -> Callable[[Any], Any]:
        return super().command(*arguments, cls=Verb, **settings)


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the option is on the command line; a value of a file is a default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"  # the enumeration is typer's own in some versions


def defaults_of(context: Any) -> tuple[Options, dict[str, str]]:
    """The values that the files have for a verb, and where each of them is."""
    verb = _path(context)
    values: Options = {}
    places: dict[str, str] = {}
    own = _own_options(context.command)
    if verb in WITHOUT_FILES or not own:
        return values, places
    options = options_by_table(context.find_root().command)
    for file in read_config():
        _check(file, file.table, (), options)
        for length in range(len(verb), -1, -1):
            table = _table(file, verb[:length])
            for name in own.keys() & table.keys() - values.keys():
                values[name], places[name] = table[name], file.where(*verb[:length], name)
    return {name: str(value) if _takes_text(own[name]) else value for name, value in values.items()}, places


def options_by_table(command: Any, *above: str) -> dict[Words, Options]:
    """The options that each table of a file may set: one for each verb, and above them one for all of a group's."""
    found = {above: _own_options(command)}
    for name, verb in getattr(command, "commands", {}).items():
        words = (*above, name)
        if words not in WITHOUT_FILES:
            found |= options_by_table(verb, *words)
            found[above] = {**found[words], **found[above]}
    return found


def _own_options(command: Any) -> Options:
    return {each.name: each for each in command.params if each.param_type_name == "option" and each.name in KEYS}


def _path(context: Any) -> Words:
    return () if context.parent is None else (*_path(context.parent), context.command.name)


def _table(file: ConfigFile, words: Words) -> Options:
    table = file.table
    for word in words:
        table = table.get(word, {})
    return table


def _check(file: ConfigFile, table: Mapping[str, Any], at: Words, options: dict[Words, Options]) -> None:
    for key, value in table.items():
        where = file.where(*at, key)
        if (*at, key) in options:
            if not isinstance(value, dict):
                raise UsageError(f"{where} is a command and not a key: write a table [{where.partition(' ')[0]}].")
            _check(file, value, (*at, key), options)
        elif key in options[at]:
            _check_value(options[at][key], value, where)
        elif at or key not in OF_THE_MACHINE:
            names = [*options[at], *(words[-1] for words in options if words and words[:-1] == at)]
            known = sorted([*names, *(() if at else OF_THE_MACHINE)])
            near = difflib.get_close_matches(key.replace("-", "_"), known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"its table has {', '.join(known) or 'no keys'}."
            raise UsageError(f"{where} is unknown: {remedy}")


def _check_value(option: Any, value: object, where: str) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if option.multiple:
        is_right = isinstance(value, list) and all(isinstance(each, str) for each in value)
        form = 'a list of texts: write one such as ["slot=3"].'
    elif option.is_flag:
        is_right, form = isinstance(value, bool), "a switch: write true or false."
    elif _takes_text(option):
        is_right, form = isinstance(value, str) or is_whole, "text: write what the option takes, in quotation marks."
    else:
        is_right, form = is_whole, "a whole number: write one."
    if not is_right:
        raise UsageError(f"{where} is {value!r:.80} and not {form}")
    try:
        option.type_cast_value(None, value)
    except typer.BadParameter as error:
        raise UsageError(f"{where}: {error.message}") from error


def _takes_text(option: Any) -> bool:
    return not (option.multiple or option.is_flag or option.type.name.startswith("int"))


@contextmanager
def _naming_the_file(context: Any) -> Iterator[None]:
    """Add to an error of an option in which file its value is."""
    try:
        yield
    except UsageError as error:
        for name, where in (context.obj or {}).items():
            # An argument of Python has the name of its option.
            is_named = f"--{name.replace('_', '-')} " in str(error) or str(error).startswith(f"{name} ")
            if is_named and not is_given(context, name):
                raise UsageError(f"{error} The value is that of {where}.") from error
        raise
