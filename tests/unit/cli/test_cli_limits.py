"""Limits on the command line: over the inventory's, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.limits import limited
from orchestrator.cli.main import main
from orchestrator.errors import UsageError
from orchestrator.inventory.model import Host, Inventory, Target, Timeouts
from orchestrator.workflows.context import Context

NONE: dict[str, Any] = dict.fromkeys(("connect", "silence", "job", "run", "retries"))


def context() -> Context:
    here = Target("here", Host("here"), timeouts=Timeouts(silence=5.0, job=60.0), retries=1)
    there = Target("there", Host("there"), implied=True)
    inventory = Inventory(Path("inventory.yaml"), {}, (here, there), {})
    return Context(inventory, (here,), lambda _: None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"silence": 5.0, "job": 60.0, "run": None, "retries": 1, "connect": 15.0}),
        ({"silence": "0.5"}, {"silence": 0.5, "job": 60.0}),
        ({"silence": "none", "job": "none"}, {"silence": None, "job": None}),
        ({"job": "1e3", "run": "7200"}, {"job": 1000.0, "run": 7200.0}),
        ({"retries": 0}, {"retries": 0}),
        ({"connect": "2.5"}, {"connect": 2.5}),
        ({"connect": "2m", "silence": "90s", "job": "1.5h", "run": "1d"}, {"connect": 120.0}),
        ({"silence": "90s", "job": "1.5h", "run": "1d"}, {"silence": 90.0, "job": 5400.0}),
        ({"silence": "2m", "run": "1d"}, {"silence": 120.0, "run": 86400.0}),
    ],
)
def test_limits_go_over_the_inventory(given: dict[str, Any], expected: dict[str, Any]) -> None:
    changed = limited(context(), **{**NONE, **given})
    # Whoever goes on with a run looks its targets up in the inventory.
    for target in (changed.targets[0], changed.inventory.targets[0]):
        found = {
            "silence": target.timeouts.silence,
            "job": target.timeouts.job,
            "run": target.timeouts.run,
            "retries": target.retries,
            "connect": target.host.connect_timeout,
        }
        assert {key: found[key] for key in expected} == expected
    assert [target.name for target in changed.inventory.targets] == ["here", "there"]


@pytest.mark.parametrize(
    "value", ["0", "-1", "inf", "nan", "", "soon", "1w", "1 s", "m", "1e999", "2m30", "None"]
)
@pytest.mark.parametrize("name", ["silence", "job", "run"])
def test_what_is_no_time(name: str, value: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        limited(context(), **{**NONE, name: value})


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "none"])
def test_what_is_no_time_to_connect(value: str) -> None:
    with pytest.raises(UsageError, match=f"--connect-timeout '{value}' is no time"):
        limited(context(), **{**NONE, "connect": value})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --op x --detach --case rows", "--case 'rows' is no KEY=VALUE"),
        ("run --op x --detach --profile '", "--profile"),
        ("run --op , --detach", "--op names no operator"),
        ("run --op x --detach --silence soon", "--silence 'soon' is no time"),
        ("run --op x --detach --retries -1", "--retries"),
        ("testall --detach --case =1", "is no KEY=VALUE"),
        ("testall --detach --job-timeout 0", "--job-timeout '0' is no time"),
        ("testall --detach --connect-timeout 0", "--connect-timeout '0' is no time"),
        ("run --op x --connect-timeout none", "write seconds above 0, 2m, 1h"),
        ("run --op x* --detach", "benchmark"),
        ("testall --generate --update", "exclude each other"),
        ("testall --resume x --samples 3 --generate", "--generate and --samples cannot be"),
        ("doctor here --hosts here", "targets are named twice"),
        ("testall --detach --profile '", "--profile"),
        ("testall --detach --resume none", "no run yet"),
        ("testall --resume x --hosts here --serial", "--hosts cannot be"),
        ("testall --resume x --ops a --dry-run", "--ops and --dry-run cannot be"),
        ("testall --resume x --spread shard", "--spread cannot be"),
        ("testall --failed none", "no run yet"),
        ("attach none", "no run yet"),
        ("kill", "no run yet"),
    ],
)
def test_mistakes_are_told_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    (tmp_path / "inventory.yaml").write_text("hosts:\n  here: {transport: local}\n")
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "runs").exists()  # no background process was started
