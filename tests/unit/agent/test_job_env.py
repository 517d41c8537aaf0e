"""What a job's command gets: its words, its variables, its env script, its folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from agent_kit import Agents, Jobs, receive

from orchestrator.errors import UnusableError
from orchestrator.transport.session import AgentSession

HOSTILE = "a b;$(reboot)'\"`id`\\ $HOME *?[x] ~ ! {a,b} && |\t\n\u4e2d\U0001f600"
SHOW = "import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"


def shown(
    session: AgentSession, jobs: Jobs, **more: object
) -> tuple[list[str], dict[str, str], str]:
    spec = jobs.spec(SHOW, **more)
    ran = receive(session, spec)
    assert ran.error is None, ran.error
    words, env, cwd = json.loads(ran.text.splitlines()[-1])
    return words, env, cwd


@pytest.mark.parametrize(
    "value", ["", HOSTILE, "-n", "$1", "a=b", "x" * 100_000, "\udcff\udcfe"], ids=range(7)
)
@pytest.mark.parametrize("script_sets_it", [False, True])
def test_values_arrive_as_themselves(
    session: AgentSession, jobs: Jobs, value: str, script_sets_it: bool
) -> None:
    script = jobs.env_script("export V=other W=mine\n" if script_sets_it else "export W=mine\n")
    _, env, _ = shown(session, jobs, env={"V": value}, env_script=script)
    assert env["V"] == value
    assert env["W"] == "mine"


def test_words_arrive_as_themselves(session: AgentSession, jobs: Jobs) -> None:
    spec = jobs.spec(SHOW)
    given = ["--op", HOSTILE, "", "-c", "$(id)", "--", "*"]
    spec["argv"] = [*spec["argv"], *given]
    assert json.loads(receive(session, spec).text)[0] == given


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true\n",
        "set -eu\n",
        "set -euo pipefail\nIFS=x\n",
        "cd /\n",
        "shift $#; set -- a b c\n",
        "env() { echo no; }; export() { echo no; }; cd() { echo no; }; type() { return 1; }\n",
        '[ $# = 0 ] || exit 9\n[ -z "$*" ] || exit 9\n',
        "exec 2>&1\n",
        "trap 'echo trapped; exit 5' EXIT ERR\n",
        "alias python=false\nunalias -a\n",
        "PATH=/nowhere:$PATH; export PATH\n",
        "echo printed; echo to stderr >&2\n",
        "read -r line || true\n",
        "\u4e2d=1 || true\n# \u4e2d\u6587\r\n",
    ],
)
def test_env_scripts_of_all_kinds(session: AgentSession, jobs: Jobs, text: str) -> None:
    script = jobs.env_script(text + "\nMARKED=yes; builtin export MARKED\n")
    words, env, cwd = shown(session, jobs, env_script=script, env={"V": "v"})
    assert (words, env["MARKED"], env["V"]) == ([], "yes", "v")
    assert cwd == str(jobs.workdir)
    assert "MXFLEET_ENV_SCRIPT" not in env
    assert "__mxfleet_python" not in env


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("false\n", "ended with status 1"),
        ("return 42\n", "ended with status 42"),
        ("exit 0\n", "ended the shell"),
        ("exit 3\n", "ended the shell"),
        ("set -e\nfalse\nexit 0\n", "ended the shell"),
        ("if then\n", "ended"),
        ("kill -9 $$\n", "ended the shell"),
        ("exec true\n", "ended the shell"),
    ],
)
def test_env_scripts_that_fail(session: AgentSession, jobs: Jobs, text: str, message: str) -> None:
    script = jobs.env_script("echo last words\n" + text)
    ran = jobs.run(session, "print('ran')", env_script=script)
    assert isinstance(ran.error, UnusableError)
    assert message in ran.error.message
    assert str(jobs.workdir.parent / "env.sh") in ran.error.message
    assert ran.error.hint
    assert ran.stdout == b"last words\n"  # what explains it was seen


def test_search_paths_are_appended_after_the_script(session: AgentSession, jobs: Jobs) -> None:
    script = jobs.env_script("export PATH=/first:$PATH\nexport LD_LIBRARY_PATH=/lib/a\n")
    _, env, _ = shown(
        session,
        jobs,
        env_script=script,
        path=["/opt/a b", "/opt/c"],
        ld_library_path=["/l1", "/l2"],
    )
    assert env["PATH"].startswith("/first:")
    assert env["PATH"].endswith(":/opt/a b:/opt/c")
    assert env["LD_LIBRARY_PATH"] == "/lib/a:/l1:/l2"


def test_an_unset_library_path_gets_no_empty_entry(
    agents: Agents, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    _, env, _ = shown(agents.start(), jobs, ld_library_path=["/l1"])
    assert env["LD_LIBRARY_PATH"] == "/l1"


def test_python_is_found_where_the_script_puts_it(session: AgentSession, jobs: Jobs) -> None:
    folder = jobs.folder / "its bin"
    folder.mkdir()
    (folder / "target-python").symlink_to(sys.executable)
    ran = jobs.run(session, "print('ran')", python="target-python", path=[str(folder)])
    assert ran.text == "ran\n"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"python": "python-of-nobody"}, "'python-of-nobody' was not found"),
        ({"python": "/nowhere/python"}, "'/nowhere/python' was not found"),
        ({"env_script": "../nowhere.sh"}, "nowhere.sh does not exist"),
        ({"env_script": ".."}, "does not exist"),
        ({"workdir": "/nowhere/benchmark"}, "the workdir /nowhere/benchmark does not exist"),
        ({"script": "other.py"}, "has no other.py"),
        ({"env": {"V": "a\0b"}}, "NUL"),
        ({"tree": "0" * 32, "subfolder": "benchmark"}, "is not here"),
    ],
)
def test_what_is_missing_is_named(
    session: AgentSession, jobs: Jobs, more: dict[str, object], message: str
) -> None:
    ran = receive(session, {**jobs.spec("print('ran')"), **more})
    assert ran.error is not None
    assert message in ran.error.message
    assert ran.stdout == b""


def test_the_env_script_beside_a_linked_workdir(session: AgentSession, jobs: Jobs) -> None:
    """``../env.sh`` is where the kernel finds it, as in ``cd workdir; source ../env.sh``."""
    jobs.env_script("export WHERE=beside\n")
    link = jobs.folder / "link"
    link.symlink_to(jobs.workdir)
    _, env, _ = shown(session, jobs, workdir=str(link), env_script="../env.sh")
    assert env["WHERE"] == "beside"


def test_signals_are_as_in_a_fresh_shell(session: AgentSession, jobs: Jobs) -> None:
    ran = jobs.run(
        session,
        "import signal\n"
        "print([signal.getsignal(n) == signal.SIG_DFL for n in (1, 15, 17)])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    )
    assert ran.text == "[True, True, True]\nset()\n"


def test_no_descriptor_of_the_agent_is_passed_on(session: AgentSession, jobs: Jobs) -> None:
    ran = jobs.run(session, "import os; print(sorted(os.listdir('/proc/self/fd')))")
    assert ran.text == "['0', '1', '2', '3']\n"  # 3 is the listing itself


def test_a_store_of_somebody_else(session: AgentSession, jobs: Jobs, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    cases = [open_to_all]
    if os.geteuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
        link = tmp_path / "link"
        link.symlink_to("/usr")
        os.chown(link, 12345, 12345, follow_symlinks=False)
        cases += [theirs, link]
    for store in cases:
        ran = jobs.run(session, "print('ran')", store=str(store))
        assert ran.error is not None
        assert "another user" in ran.error.message
        assert not (store / "jobs").exists()
