"""Command-line options made from the fields of a dataclass, so that the two can never differ."""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from shiftprism._devices import DEVICES
from shiftprism._errors import choice, wrong

Device = Annotated[str, typer.Option("--device", help=f"Where the model computes: {DEVICES}.")]
"""The option of every command that trains or forwards."""
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the network by torch.compile first, which takes a minute or two.")
]
"""The option of commands that may forward very many images."""
_SCALARS = (str, int, float, bool)


def check_new(flag: str, path: Path, force: bool) -> None:
    """Refuse to overwrite a file, or what is in a folder, unless the user said `--force`."""
    if not force and (any(path.iterdir()) if path.is_dir() else path.exists()):
        raise wrong(flag, "new", f"{path}, which exists", "choose another, or add --force to replace it")


def describe_field(field: "Field[Any]") -> str:
    """The help text of an option: the field's own, then its default in parentheses unless that is empty."""
    text = str(field.metadata.get("help", ""))
    scalar_default = isinstance(field.default, _SCALARS) and field.default != ""
    return f"{text} ({field.default})" if scalar_default else text


def with_flags(
    command: Callable[..., None], settings: type, describe: Callable[["Field[Any]"], str] = describe_field
) -> Callable[..., None]:
    """`command` as a Typer command with one more option for each field of the dataclass `settings`.

    The command is written as a function of its own options and of `**flags`. It receives in `flags` only the fields
    that the user set, under the fields' names: it decides what a missing one means, so no option is required.

    Field types: `str`, `int`, `float`, `bool` (`--flip/--no-flip`), and `tuple[str, ...]`, an option of words separated
    by commas (`--scores u,msp`); each may also be None. Any other type is a TypeError when the module is imported.

    Field metadata: "help", the text in `--help`; "min" and "max", the bounds of a number; "choices", the names that
    a string, or each word of a tuple, may be; "repeat", True for a tuple whose option is repeated, one word each, in
    place of commas; "flag", False where the field gets no option. `describe` turns a field into its help text. A field
    that the command has as an option of its own gets no second one.
    """
    own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    taken = {parameter.name for parameter in own}
    shown = [field for field in fields(settings) if field.metadata.get("flag", True) and field.name not in taken]
    hints = get_type_hints(settings)
    kinds = {field.name: _plain_type(field.name, hints[field.name]) for field in shown}

    def run(**values: Any) -> None:
        for field in shown:
            value = values.pop(field.name)
            if value is not None:
                values[field.name] = _read(field, value, words=kinds[field.name] is tuple)
        command(**values)

    options = [_option(field, kinds[field.name], describe(field)) for field in shown]
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]  # Typer reads it
    return run


def _option(field: "Field[Any]", kind: type, text: str) -> inspect.Parameter:
    """The parameter that Typer turns into an option; its default None stands for "not set"."""
    flag = field.name.replace("_", "-")
    names = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
    bounds = {name: field.metadata[name] for name in ("min", "max") if name in field.metadata}
    option = typer.Option(names, help=text, show_default=False, **bounds)
    annotation: Any = Annotated[_option_type(field, kind) | None, option]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _option_type(field: "Field[Any]", kind: type) -> Any:
    """The type that Typer parses an option to."""
    if kind is tuple:
        return list[str] if field.metadata.get("repeat") else str
    return kind


def _read(field: "Field[Any]", value: Any, words: bool) -> Any:
    """What the user set, as the field has it: words are split, and names that are not among the choices refused."""
    if words:
        parts = value if field.metadata.get("repeat") else value.split(",")
        value = tuple(word.strip() for word in parts if word.strip())
    if value in ((), ""):
        raise wrong(field.name, "given after its flag", "nothing", "leave the flag out for its default")
    if "choices" in field.metadata:
        for word in value if words else (value,):
            choice(field.name, word, field.metadata["choices"])
    return value


def _plain_type(name: str, annotation: Any) -> type:
    """The annotation without None: one of the scalars, or `tuple` for a tuple of strings."""
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        annotation = parts[0] if len(parts) == 1 else annotation
    if annotation in _SCALARS:
        return annotation  # type: ignore[no-any-return]
    if annotation == tuple[str, ...]:
        return tuple
    raise TypeError(f'{name}: {annotation} cannot be an option; give the field metadata {{"flag": False}}')
