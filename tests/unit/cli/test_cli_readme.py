"""The README's table of commands against the commands: no flag that is not there, none left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from orchestrator.cli.app import app

README = Path(__file__).parents[3] / "README.md"
ROW = re.compile(r"^\| `mxfleet ([a-z]+(?: [a-z]+)?)(.*)` ?.*\|.*\|$", re.M)
# Told beneath the table, for all commands that have them.
BENEATH = {"--help", "--inventory", "--output"}
LIMITS = {"--connect-timeout", "--silence", "--job-timeout", "--run-timeout", "--retries"}


def commands() -> dict[str, set[str]]:
    """The long options of every command, by its name: ``nightly run``."""
    found = {}
    todo = [("", typer.main.get_command(app))]
    while todo:
        name, command = todo.pop()
        inner = getattr(command, "commands", None)
        if inner:
            todo += [(f"{name} {key}".strip(), value) for key, value in inner.items()]
        else:
            options = {text for param in command.params for text in param.opts}
            found[name] = {text for text in options if text.startswith("--")}
    return found


def told() -> dict[str, set[str]]:
    """The options that the table names for a command."""
    rows = ROW.findall(README.read_text(encoding="utf-8"))
    return {name: set(re.findall(r"--[a-z-]+", rest)) for name, rest in rows}


def test_every_command_has_a_row() -> None:
    one_row = {"nightly status", "nightly remove"}  # named beside nightly install
    assert set(told()) == set(commands()) - one_row


@pytest.mark.parametrize("name", sorted(told()))
def test_a_row_names_what_the_command_takes(name: str) -> None:
    there = commands()[name]
    assert told()[name] <= there
    if name == "testall":  # "all flags of run, too"
        assert commands()["run"] - {"--op"} <= there
        there = there - commands()["run"]
    optional = {
        "init": {"--ssh-config", "--force"},
        "hosts": {"--hosts"},
        "doctor": {"--hosts"},
        "run": LIMITS | {"--retry-hung"},
    }
    assert there - BENEATH - optional.get(name, set()) <= told()[name]


def test_who_takes_what_is_said_of_all() -> None:
    every = commands()
    assert [name for name, options in every.items() if "--inventory" not in options] == ["init"]
    assert [name for name, options in every.items() if "--output" not in options] == ["shell"]
