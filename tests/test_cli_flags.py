"""Options made from a dataclass: each field once, of its own type, and only what the user set arrives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from shiftprism.cli._flags import with_flags


@dataclass
class Settings:
    rate: float = field(default=0.1, metadata={"help": "How fast.", "min": 0, "max": 1})
    epochs: int | None = field(default=None, metadata={"help": "How long."})
    flip: bool = field(default=True, metadata={"help": "Mirror images."})
    head: str = field(default="a", metadata={"help": "Which head.", "choices": ("a", "b")})
    scores: tuple[str, ...] = field(default=(), metadata={"help": "Which scores.", "choices": ("u", "msp")})
    runs: tuple[str, ...] = field(default=(), metadata={"help": "A run; may be repeated.", "repeat": True})
    held_out: float = field(default=0.0, metadata={"help": "A share."})
    root: str = field(default="here", metadata={"help": "Never shown: the command has its own."})
    layers: Mapping[str, int] = field(default_factory=dict, metadata={"flag": False})


def invoke(*words: str) -> Any:
    """What a command of these settings received, or the result of one that failed."""
    received: dict[str, Any] = {}

    def command(root: Annotated[str, typer.Option(help="Where.")] = "there", **flags: Any) -> None:
        """Do it."""
        received.update(flags, root=root)

    app = typer.Typer()
    app.command()(with_flags(command, Settings))
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    return received if done.exit_code == 0 and "--help" not in words else done


def test_only_what_was_set_arrives_under_the_fields_names() -> None:
    assert invoke() == {"root": "there"}
    words = ["--rate", "1", "--epochs", "3", "--no-flip", "--head", "b", "--scores", "u, msp,", "--held-out", "0.5"]
    expected = {"epochs": 3, "flip": False, "head": "b", "scores": ("u", "msp"), "held_out": 0.5, "root": "x"}
    received = invoke(*words, "--root", "x")
    assert received == expected | {"rate": 1.0}
    assert isinstance(received["rate"], float)


def test_an_option_that_is_repeated_takes_each_word_whole() -> None:
    assert invoke("--runs", "a, b", "--runs", "x=c")["runs"] == ("a, b", "x=c")
    assert invoke("--runs", "a")["runs"] == ("a",)
    assert "runs" not in invoke()


def test_help_has_every_field_once_with_its_default() -> None:
    text = invoke("--help").output
    assert "Do it." in text
    assert "How fast. (0.1)" in text
    assert "--flip" in text
    assert "--no-flip" in text
    assert "Which scores. " in text
    assert "()" not in text
    assert text.count("--root") == 1
    assert "Where." in text
    assert "layers" not in text


@pytest.mark.parametrize("words", [("--rate", "2"), ("--rate", "fast"), ("--layers", "1")])
def test_what_typer_can_refuse_is_a_usage_error(words: tuple[str, str]) -> None:
    assert invoke(*words).exit_code == 2


@pytest.mark.parametrize("words", [("--head", "c"), ("--scores", "u,c")])
def test_an_unknown_choice_is_named(words: tuple[str, str]) -> None:
    error = invoke(*words).exception
    assert isinstance(error, ValueError)
    assert "to be one of" in str(error)
    assert "but got 'c'" in str(error)


def test_a_type_that_no_option_has_is_refused_at_once() -> None:
    @dataclass
    class Odd:
        layers: Mapping[str, int] = field(default_factory=dict)

    with pytest.raises(TypeError, match=r"layers: .* cannot be an option"):
        with_flags(lambda **flags: None, Odd)
