"""The lines that a person pastes run what mxfleet ran, through every shell on the way."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Host, Target
from orchestrator.plan.by_hand import reproduce, sit_in
from orchestrator.plan.jobs import PlannedJob, plan_run
from orchestrator.suites.mcoplib import SCRIPT, McoplibSuite
from orchestrator.suites.measuring import Measuring
from orchestrator.transport.endpoint import Endpoint
from orchestrator.workflows.fleet import endpoint_of

HOSTILE = "a b;$(touch broken)'\"`touch broken`\\ $HOME * !!\u4e2d"
TREE = "0123456789abcdef" * 2
# Says how it was called: words, folder, a variable of the target, one of the env script.
SAYS = (
    "import json, os, sys\n"
    "print('SAID ' + json.dumps([sys.argv[1:], os.getcwd(), os.environ.get('HOSTILE'), "
    "os.environ.get('SOURCED'), os.environ['PATH'].split(':')[-1]]))\n"
)


def job(target: Target, **measuring: Any) -> PlannedJob:
    suite = McoplibSuite(Path("/nowhere"))
    plan = plan_run("r", [target], ["gelu"], suite, TREE, Measuring(**measuring))
    return plan.jobs[0]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store, its name as odd as names may be, with a tree whose front door says its call."""
    store = tmp_path / "st ore'$(touch broken)"
    benchmark = store / "trees" / TREE / "benchmark"
    benchmark.mkdir(parents=True)
    (benchmark / SCRIPT).write_text(SAYS)
    (benchmark.parent / "env").mkdir()
    (benchmark.parent / "env" / "env.sh").write_text("export SOURCED=yes\n")
    return store


@pytest.fixture
def way(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """An environment whose `ssh` hands its command to a login shell, whose `docker` runs it."""

    def through(login: str) -> dict[str, str]:
        found = shutil.which(login)
        if found is None:
            pytest.skip(f"no {login} here")
        bin = tmp_path / "bin"
        bin.mkdir()
        (bin / "ssh").write_text(
            f"#!/bin/bash\nprintf '%s\\n' \"$@\" > {shlex.quote(str(tmp_path / 'ssh'))}\n"
            f'exec {found} -c "${{@: -1}}"\n'
        )
        (bin / "docker").write_text(
            f"#!/bin/bash\nprintf '%s\\n' \"$@\" > {shlex.quote(str(tmp_path / 'docker'))}\n"
            'while [ "$1" != box ]; do shift; done; shift; exec "$@"\n'
        )
        for tool in bin.iterdir():
            tool.chmod(0o755)
        return {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    return through


def said(line: str, env: dict[str, str], folder: Path) -> list[Any]:
    done = subprocess.run(
        ["bash", "-c", line], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    assert not (folder / "broken").exists()
    (found,) = [text for text in done.stdout.splitlines() if text.startswith("SAID ")]
    answer: list[Any] = json.loads(found.removeprefix("SAID "))
    return answer


@pytest.mark.parametrize("login", ["sh", "bash", "zsh", "tcsh", "fish"])
@pytest.mark.parametrize("container", [None, "box"])
def test_a_pasted_line_runs_the_jobs_command(
    way: Callable[[str], dict[str, str]],
    store: Path,
    tmp_path: Path,
    login: str,
    container: str | None,
) -> None:
    target = Target(
        "t",
        Host("h1", user="me", port=2222),
        container=container,
        store=str(store),
        python=sys.executable,
        env_script="../env/env.sh",
        env={"HOSTILE": HOSTILE},
        path=("/opt/x y",),
        docker_user="1000" if container else None,
    )
    line = reproduce(job(target, cases=("a=b c",)), endpoint_of(target.host))
    words, folder, hostile, sourced, last = said(line, way(login), tmp_path)
    assert words[:2] == ["--op", "gelu"] and words[-2:] == ["--case", "a=b c"]
    results = Path(words[words.index("--csv") + 1])
    assert results.name == "result.csv" and results.parent.is_dir()
    assert words[words.index("--records") + 1] == str(results.with_name("records.jsonl"))
    assert folder == str(store / "trees" / TREE / "benchmark")
    assert (hostile, sourced, last) == (HOSTILE, "yes", "/opt/x y")
    ssh = (tmp_path / "ssh").read_text().splitlines()
    assert ssh[:5] == ["-p", "2222", "-l", "me", "h1"]
    if container:
        docker = (tmp_path / "docker").read_text().splitlines()
        assert docker[:5] == ["exec", "-i", "--user", "1000", "box"]


@pytest.mark.parametrize(
    ("store", "container", "place"),
    [
        (None, None, "{home}/.mxfleet"),
        (None, "box", "/tmp/mxfleet-{uid}"),
        ("~/st ore", None, "{home}/st ore"),
        ("~", None, "{home}"),
        ("/data/x", "box", "/data/x"),
    ],
)
def test_the_default_stores_are_the_agents(
    tmp_path: Path, store: str | None, container: str | None, place: str
) -> None:
    target = Target("t", Host("t", transport="local"), container=container, store=store)
    line = reproduce(job(target), endpoint_of(target.host))
    script = shlex.split(line)[-1]
    shown = subprocess.run(
        ["bash", "-c", 'cd() { echo "$1"; exit; }; ' + script],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    expected = place.format(home=tmp_path, uid=os.geteuid())
    assert shown == f"{expected}/trees/{TREE}/benchmark"


def test_a_checkout_is_where_it_is() -> None:
    target = Target("t", Host("t", transport="local"), workdir="/work dir/benchmark")
    script = shlex.split(reproduce(job(target), endpoint_of(target.host)))[-1]
    assert script.startswith("cd '/work dir/benchmark' && ")


def test_what_ran_in_a_private_copy_is_not_promised() -> None:
    target = Target("t", Host("t", transport="local"), workdir="/w/benchmark")
    with pytest.raises(UsageError, match="private copy"):
        reproduce(job(target, samples=5), endpoint_of(target.host))


def typed(target: Target, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the shell on ``target`` does of ``text``."""
    words = sit_in(target, endpoint_of(target.host), TREE)
    env = {**os.environ, **environment}
    return subprocess.run(words, env=env, input=text, capture_output=True, text=True, check=False)


def test_a_terminal_has_the_targets_environment(store: Path, tmp_path: Path) -> None:
    target = Target(
        "t",
        Host("t", transport="local"),
        store=str(store),
        env_script="../env/env.sh",
        env={"HOSTILE": HOSTILE},
    )
    done = typed(target, 'echo "HAS $HOSTILE $SOURCED"; pwd\nexit 7\n', HOME=str(tmp_path))
    assert f"HAS {HOSTILE} yes\n{store}/trees/{TREE}/benchmark\n" in done.stdout
    assert done.returncode == 7 and not (tmp_path / "broken").exists()


@pytest.mark.parametrize(
    ("place", "script", "said"),
    [
        ("none", "../env/env.sh", "mxfleet: t: its folder cannot be entered; mxfleet doctor says"),
        ("", "../env/it's absent.sh", "mxfleet: t: there is no env script ../env/it's absent.sh;"),
    ],
)
def test_half_a_terminal_is_refused(
    store: Path, tmp_path: Path, place: str, script: str, said: str
) -> None:
    target = Target("t", Host("t", transport="local"), store=str(store / place), env_script=script)
    done = typed(target, "echo HERE\n", HOME=str(tmp_path))
    assert done.returncode == 3 and "HERE" not in done.stdout and said in done.stderr


@pytest.mark.parametrize("name", ["python", "python3.9", "odd py'$(x)"])
@pytest.mark.parametrize("known", [True, False])
def test_python_is_the_one_of_the_jobs(store: Path, tmp_path: Path, name: str, known: bool) -> None:
    folder, path = tmp_path / "its bin", tmp_path / "path"
    folder.mkdir()
    path.mkdir()
    (path / "python").write_text('#!/bin/sh\necho "RAN $0 $1"\n')
    (path / "python").chmod(0o755)
    (folder / name).symlink_to(path / "python")  # as in a virtual environment
    python = str(folder / name)
    if not known:  # by its name, found on the PATH that the env script makes
        (store / "trees" / TREE / "env" / "env.sh").write_text(f'export PATH="$PATH:{folder}"\n')
        python = name if name != "python" else python
    target = Target(
        "t",
        Host("t", transport="local"),
        store=str(store),
        python=python,
        env_script="../env/env.sh",
    )
    done = typed(target, "python 'a b'\n", HOME=str(tmp_path), PATH=f"{path}:{os.environ['PATH']}")
    assert f"RAN {folder / name} a b\n" in done.stdout, done
    assert f"mxfleet: python is {python}" in done.stderr


def test_a_terminal_needs_a_terminal_on_all_the_way() -> None:
    target = Target("t", Host("h1"), container="box", docker_command=("sudo", "-n", "docker"))
    words = sit_in(target, endpoint_of(target.host), TREE)
    assert words[:3] == ["ssh", "-t", "h1"]
    assert "sudo -n docker exec -it box bash" in words[-1]


def test_a_transport_without_a_command_line_says_so() -> None:
    target = Target("t", Host("t", transport="scripted"))
    endpoint = replace(Endpoint(name="t"), transport="scripted")
    with pytest.raises(UsageError, match="scripted has no command line"):
        sit_in(target, endpoint, TREE)
