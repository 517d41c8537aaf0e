"""The command line itself: arguments to workflows, errors to one line and an exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.cli.common import split_names
from orchestrator.cli.main import main
from orchestrator.errors import ExitCode
from orchestrator.suites.measuring import Measuring

COMMANDS = ("init", "hosts", "push", "run", "pull")
# What no --help may wait for.
HEAVY = ("rich", "pydantic", "paramiko", "docker", "ruamel", "ClusterShell", "torch", "jinja2")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with an inventory of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    (tmp_path / "inventory.yaml").write_text("hosts:\n  here: {transport: local}\n")
    return tmp_path


@pytest.mark.parametrize("name", ["-h", "--help"])
@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help(capsys: pytest.CaptureFixture[str], command: tuple[str, ...], name: str) -> None:
    assert run(*command, name) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Usage: {' '.join(('mxfleet', *command))}")
    assert said.err == ""
    if not command:
        assert all(re.search(rf"^  {name} ", said.out, re.MULTILINE) for name in COMMANDS)


def test_without_arguments_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Usage: mxfleet")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert re.fullmatch(r"mxfleet \d+\.\d+\.\S+\n", capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom orchestrator.cli.main import main\n"
        f"try:\n    main({arguments!r})\nfinally:\n    sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "orchestrator" in loaded
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum"], "No such command 'rum'"),
        (["run"], "Missing option '--op'"),
        (["run", "--op"], "'--op' requires an argument"),
        (["run", "--op", "x", "--sampels", "3"], "--samples"),
        (["run", "--op", "x", "--samples", "0"], "'--samples'"),
        (["run", "--op", "x", "--samples", "many"], "'--samples'"),
        (["run", "--op", "x", "--repeats", "0"], "'--repeats'"),
        (["run", "--op", "x", "--sampling", "often"], "'--sampling'"),
        (["run", "--op", "x", "--case", "rows"], "--case 'rows' is no KEY=VALUE"),
        (["run", "--op", "x", "--case", " =8"], "--case ' =8' is no KEY=VALUE"),
        (["run", "--op", "x", "--output", "xml"], "'--output'"),
        (["run", "--op", " , "], "--op names no operator"),
        (["run", "--op", "x", "--generate", "--update"], "exclude each other"),
        (["push", "superfluous"], "superfluous"),
        (["hosts", "a", "--hosts", "b"], "targets are named twice"),
    ],
)
def test_mistakes_are_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(*arguments) == ExitCode.USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("mxfleet: ")
    assert said in output.err
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            errors.ConfigError("is wrong", where="inventory.yaml:3", hint="write it so"),
            2,
            "mxfleet: inventory.yaml:3: is wrong; write it so\n",
        ),
        (errors.UnreachableError("is far away", where="host"), 3, "mxfleet: host: is far away\n"),
        (errors.UnusableError("two\nlines,\ttabs"), 3, "mxfleet: two lines, tabs\n"),
        (errors.InterruptedRun("nobody reads"), 130, "mxfleet: nobody reads\n"),
        (errors.UsageError("no such file: \udcff"), 2, "mxfleet: no such file: ?\n"),
    ],
)
def test_errors_become_a_line_and_their_code(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: errors.MxfleetError,
    code: int,
    said: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("orchestrator.workflows.hosts.hosts", fail)
    assert run("hosts") == code
    assert capsys.readouterr().err == said


def test_ctrl_c_outside_a_run_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.workflows.hosts.hosts", fail)
    assert run("hosts") == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "mxfleet: interrupted\n"
    assert run("hosts", "--output", "json") == ExitCode.INTERRUPTED
    summary = json.loads(capsys.readouterr().out)
    assert (summary["exit_code"], summary["message"]) == (ExitCode.INTERRUPTED, "interrupted")


def test_ctrl_c_while_it_loads_is_one_line() -> None:
    code = """
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from orchestrator.cli.main import main
main(["runs"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, "mxfleet: interrupted\n")


@pytest.mark.parametrize("output", ["text", "json"])
def test_the_exit_code_is_the_same_where_nothing_can_be_said(tmp_path: Path, output: str) -> None:
    program = "from orchestrator.cli.main import main; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, "runs", "--output", output],
            cwd=tmp_path,
            stdout=full,
            stderr=full,
            check=False,
        )
    assert done.returncode == ExitCode.USAGE  # there is no inventory


def test_own_fault_leaves_a_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen \udcff")

    monkeypatch.setattr("orchestrator.workflows.hosts.hosts", fail)
    assert run("hosts") == ExitCode.INTERNAL
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "a fault of mxfleet itself, RuntimeError: unforeseen" in said
    report = Path(said.rpartition(" ")[2].strip())
    text = report.read_text()
    report.unlink()
    assert "Traceback" in text
    assert "unforeseen" in text
    assert "mxfleet 0." in text


def test_the_workflows_code_is_the_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in ExitCode:
        monkeypatch.setattr("orchestrator.workflows.hosts.hosts", lambda *_, code=code, **__: code)
        assert run("hosts") == code


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["a,b"], ["a", "b"]),
        ([" a , b,,a "], ["a", "b"]),
        (["b", "a,b", "c"], ["b", "a", "c"]),
        ([""], []),
        ([","], []),
        ([], []),
    ],
)
def test_split_names(texts: list[str], names: list[str]) -> None:
    assert split_names(texts) == names


def test_run_hands_its_options_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[list[str], dict[str, object]]] = []

    def listen(context: object, ops: list[str], **options: object) -> ExitCode:
        heard.append((ops, options))
        return ExitCode.OK

    monkeypatch.setattr("orchestrator.workflows.run.run", listen)
    asked = ["--sampling", "adaptive", "--repeats", "3", "--case", "a=1", "--case", "b= x"]
    assert run("run", "--op", "b,a,b") == 0
    assert run("run", "--op", "c", "--op", "a", *asked, "--strict") == 0
    assert run("run", "--op", "a", "--update", "--samples", "7", "--dry-run") == 0
    assert [(ops, o["mode"], o["measuring"], o["dry_run"]) for ops, o in heard] == [
        (["b", "a"], "generate", Measuring(), False),
        (["c", "a"], "generate", Measuring(None, "adaptive", 3, ("a=1", "b= x"), True), False),
        (["a"], "update", Measuring(samples=7), True),
    ]


@pytest.mark.parametrize(
    ("command", "workflow"),
    [
        (("run", "--op"), "run.run"),
        (("verify", "--op"), "verify.verify"),
        (("testall", "--ops"), "testall.testall"),
    ],
)
def test_globs_name_the_operators_that_are_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str], workflow: str
) -> None:
    (folder / "benchmark").mkdir(exist_ok=True)
    script = folder / "benchmark" / "mcoplib_mxbenchmark_ops.py"
    script.write_text('SUPPORTED_OPERATORS = ["rms_norm", "torch_gelu", "torch_silu"]\n')
    heard: list[list[str]] = []

    def listen(context: object, ops: list[str], **options: object) -> ExitCode:
        heard.append(ops)
        return ExitCode.OK

    monkeypatch.setattr(f"orchestrator.workflows.{workflow}", listen)
    assert run(*command, "torch_s*,rms_norm,torch_*") == 0
    assert run(*command, "*_[gs]*") == 0
    assert run(*command, "not_here") == 0  # a checkout may have it
    assert run(*command, "vllm_*") == 2
    assert heard == [
        ["torch_silu", "rms_norm", "torch_gelu"],
        ["torch_gelu", "torch_silu"],
        ["not_here"],
    ]


@pytest.mark.parametrize("way", ["option", "variable", "above"])
def test_where_the_inventory_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    deep = folder / "benchmark" / "config"
    deep.mkdir(parents=True)
    elsewhere = folder / "other.yaml"
    elsewhere.write_text("hosts:\n  there: {transport: local}\n")
    monkeypatch.chdir(deep)
    arguments = ["hosts", "--output", "json"]
    if way == "option":
        arguments += ["--inventory", str(elsewhere)]
    elif way == "variable":
        monkeypatch.setenv("MXFLEET_INVENTORY", str(elsewhere))
    assert run(*arguments) == 0
    target, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert target["target"] == ("here" if way == "above" else "there")
    assert (summary["event"], summary["exit_code"]) == ("summary", 0)
