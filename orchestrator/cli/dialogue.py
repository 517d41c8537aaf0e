"""Who ``mxfleet gen halops`` talks with: a person at a terminal, or whatever reads its output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from orchestrator.show.text import safe

if TYPE_CHECKING:
    from orchestrator.author.halops.intent.question import Question
    from orchestrator.workflows.gen_halops import Dialogue


class Terminal:
    """Prompts on standard error, so that what is shown can still be piped."""

    def ask(self, questions: Sequence[Question]) -> Mapping[str, str] | None:
        """One prompt a question, all of them in a row; Enter alone leaves it open."""
        answers = {}
        for one in questions:
            typer.echo(safe(one.text), err=True)
            if one.choices:
                typer.echo(safe(f"  one or more of: {', '.join(one.choices)}"), err=True)
            shown = "" if one.example is None else json.dumps(one.example, ensure_ascii=False)
            prompt = f"  {one.field}" + (f" (such as {shown})" if shown else "")
            typed = typer.prompt(safe(prompt), default="", show_default=False, err=True)
            if typed.strip():
                answers[one.field] = typed
        return answers

    def confirm(self, text: str) -> bool | None:
        """Yes or no; no on Enter."""
        return typer.confirm(safe(text), default=False, err=True)

    def show(self, path: str, text: str) -> None:
        """The path as a comment, then the config."""
        typer.echo(safe(f"# {path}"))
        for line in text.splitlines():
            typer.echo(safe(line))


class Script:
    """Nobody to ask: questions go out as JSON, in text a list, else one line as all events are."""

    def __init__(self, json_lines: bool) -> None:
        self._json = json_lines

    def ask(self, questions: Sequence[Question]) -> Mapping[str, str] | None:
        """Print them; there is no answer."""
        listed = [one.as_dict() for one in questions]
        if self._json:
            typer.echo(json.dumps({"event": "questions", "questions": listed}))
        else:
            typer.echo(json.dumps(listed, ensure_ascii=False, indent=2))
        return None

    def confirm(self, text: str) -> bool | None:
        """There is no answer."""
        return None

    def show(self, path: str, text: str) -> None:
        """As at a terminal, or as one event."""
        if self._json:
            typer.echo(json.dumps({"event": "config", "path": path, "text": text}))
        else:
            Terminal().show(path, text)


def make_dialogue(*, json_lines: bool) -> Dialogue:
    """A person where standard input and output are terminals and no script reads along."""
    person = sys.stdin.isatty() and sys.stdout.isatty() and not json_lines
    return Terminal() if person else Script(json_lines)
