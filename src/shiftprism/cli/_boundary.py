"""The one place where errors meet the person at the terminal: a line or two on standard error, and an exit code."""

import logging
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer

# Typer brings its own copy of Click, or imports it, depending on the version. Its public BadParameter leads to the base
# class of all errors about the words of a command.
_UsageError: Any = typer.BadParameter.__mro__[2]
_EXPECTED_ERRORS = (ValueError, OSError, ImportError, FloatingPointError)


def run(app: typer.Typer, words: Sequence[str]) -> int:
    """Run the command that `words` name, and return its exit code.

    0 is success, 1 an error, 2 a command that was not understood, 130 an interruption.
    """
    command = typer.main.get_command(app)
    logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it logs of a damaged image is in our error
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = command.main(list(words), prog_name="shiftprism", standalone_mode=False)
            return code if isinstance(code, int) else 0
        except (KeyboardInterrupt, typer.Abort):
            return 130
        except _UsageError as error:
            return _explain_usage(error)
        except _EXPECTED_ERRORS as error:
            _print_error(_name_flags(_name_file(error, words), _find_command(command, words), words))
        except Exception as error:
            _print_error(_store_traceback(error))
    return 1


def describe(error: BaseException) -> str:
    """The error in one line, without error numbers of the operating system.

    >>> describe(FileNotFoundError(2, "No such file or directory", "rows.jsonl"))
    'rows.jsonl: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return ": ".join([*names, error.strerror])
    return " ".join(str(error).split()) or type(error).__name__


def _name_file(error: BaseException, words: Sequence[str]) -> str:
    """The error in one line, which begins with the flag that named the file that could not be read."""
    file = str(getattr(error, "filename", None) or "")
    flags = [before for before, word in pairwise(words) if file and word == file and before.startswith("--")]
    return " ".join([*flags[:1], describe(error)])


def _explain_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
        return int(error.exit_code)
    _print_error(" ".join(error.format_message().split()))
    typer.echo(f"try: {context.command_path if context else 'shiftprism'} --help", err=True)
    return int(error.exit_code)


def _store_traceback(error: Exception) -> str:
    """A line about an error that nobody expected; its traceback goes to a file that the line names."""
    line = f"unexpected {type(error).__name__}: {describe(error)[:300]}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="shiftprism-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"shiftprism {' '.join(sys.argv[1:])}\n{''.join(traceback.format_exception(error))}")
    except OSError:  # a full disk may be the very cause
        return f"{line}. Please report it with the command."
    return f"{line}. Please report it with the command and with {file.name}, which holds the traceback."


def _name_flags(message: str, command: Any, words: Sequence[str]) -> str:
    """The message of `wrong` about the flag or argument that the person typed, in place of a Python argument."""
    match = re.match(r"Expected `((?:--)?[A-Za-z][\w.-]*)` ", message)
    if match is None:
        return message
    as_typed = match[1].startswith("--") or match[1].isupper()
    name = match[1] if as_typed else _option_names(command).get(match[1]) or _find_typed(message, command, words)
    return message.replace(f"`{match[1]}`", name) if name else message


def _option_names(command: Any) -> dict[str, str]:
    """Python names -> the flags and arguments of a command as its help shows them."""
    names = {}
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            names[parameter.name] = parameter.metavar or parameter.name.upper()
        else:
            flag = max(parameter.opts, key=len)
            names[parameter.name] = names[flag.strip("-").replace("-", "_")] = flag
    return names


def _find_typed(message: str, command: Any, words: Sequence[str]) -> str:
    """The flag whose value, as typed, the message quotes; an argument where no flag stands before it; else ""."""
    arguments = [name for name in _option_names(command).values() if not name.startswith("-")]
    pairs = [tuple(word.split("=", 1)) for word in words if word.startswith("--") and "=" in word]
    pairs += [(before, word) for before, word in zip(("", *words), words, strict=False) if not word.startswith("-")]
    got = message.partition(" but got ")[2].rpartition("; ")[0].lstrip("'\"")
    # what was got, or else the longest value first: "1" may stand in a message by chance
    for flag, value in sorted(pairs, key=lambda pair: (not got.startswith(pair[1]), -len(pair[1]))):
        if value and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", got):
            if flag.startswith("--"):
                return flag
            if arguments and value not in command.name.split():
                return arguments[0]
    return ""


def _find_command(command: Any, words: Sequence[str]) -> Any:
    """The command that words name: `data` and then `show`, say."""
    for word in words:
        if word in (subcommands := getattr(command, "commands", {})):
            command = subcommands[word]
        elif subcommands and not word.startswith("-"):
            break
    return command


def _show_warning(message: "Warning | str", *about: Any, **more: Any) -> None:
    """A warning in one line, without the line of source that caused it."""
    typer.secho(f"shiftprism: warning: {' '.join(str(message).split())}", fg="yellow", err=True)


def _print_error(line: str) -> None:
    typer.secho(f"shiftprism: {line}", fg="red", err=True)
