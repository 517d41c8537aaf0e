"""Sync into an established checkout: what differs, all or nothing, owners and modes kept."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_kit import Agents, Jobs, receive, until

from orchestrator.errors import LinkLostError, MxfleetError, TreeError
from orchestrator.push.send import Sent, push_in_place
from orchestrator.push.tree import build, entry_rows
from orchestrator.suites import whitelist
from orchestrator.transport.agent import sync
from orchestrator.transport.session import AgentSession, Request

FOLDERS = ("config", "runners")
DOOR = "mcoplib_mxbenchmark_ops.py"
RUNNER = "runners/mcoplib_mxbenchmark_a_op_runners.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "benchmark"
    for name in ("config", "runners", "statistics"):
        (folder / name).mkdir(parents=True)
    (folder / DOOR).write_text(
        '#!/usr/bin/env python\nSUPPORTED_OPERATORS = [\n    "a_op",\n]\n# end\n'
    )
    (folder / "config" / "a_op.json").write_text('{"old": 1}')
    (folder / RUNNER).write_text("# a_op\n")
    (folder / "config" / "theirs.json").write_text("{}")
    (folder / "statistics" / "results.csv").write_text("kept there\n")
    return folder


def state(folder: Path) -> dict[str, object]:
    """Contents, modes and owners of everything but the lock."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        if path.name == sync.LOCK_NAME:
            continue
        status = path.lstat()
        data: object = None
        if path.is_symlink():
            data = os.readlink(path)  # noqa: PTH115
        elif path.is_file():
            data = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        found[name] = (status.st_mode, status.st_uid, status.st_gid, data)
    return found


def push(session: AgentSession, checkout: Path, work: Path, **more: object) -> Sent:
    return push_in_place(session, str(checkout), build(work), FOLDERS, **more)  # type: ignore[arg-type]


def test_what_differs_is_brought_and_nothing_else(
    session: AgentSession, checkout: Path, work: Path
) -> None:
    before = state(checkout)
    sent = push(session, checkout, work)
    assert sent.changes == (
        "update config/a_op.json",
        "add config/b_op.json",
        "add runners/mcoplib_mxbenchmark_b_op_runners.py",
        f"list b_op in {DOOR}",
    )
    after = state(checkout)
    for path in ("config/a_op.json", "config/b_op.json", RUNNER, RUNNER.replace("a_op", "b_op")):
        assert (checkout / path).read_bytes() == (work / "benchmark" / path).read_bytes()
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    assert changed == {
        "config/a_op.json",
        "config/b_op.json",
        RUNNER.replace("a_op", "b_op"),
        DOOR,
    }
    door = (checkout / DOOR).read_text()
    assert (
        door
        == '#!/usr/bin/env python\nSUPPORTED_OPERATORS = [\n    "a_op",\n    "b_op",\n]\n# end\n'
    )
    again = push(session, checkout, work)
    assert (again.files, again.bytes, again.changes) == (0, 0, ())


def test_a_dry_run(session: AgentSession, checkout: Path, work: Path) -> None:
    before = state(checkout)
    sent = push(session, checkout, work, dry_run=True, delete=True)
    assert "delete config/theirs.json" in sent.changes
    assert sent.files == 4
    assert state(checkout) == before
    assert not (checkout / sync.LOCK_NAME).exists()


def test_delete(session: AgentSession, checkout: Path, work: Path) -> None:
    """Operators go; neither caches nor editors' files nor what makes the folder a package."""
    (checkout / "runners" / "__init__.py").touch()
    (checkout / "runners" / "mcoplib_mxbenchmark_theirs_runners.py").touch()
    (checkout / "runners" / "__pycache__").mkdir()
    (checkout / "runners" / "__pycache__" / "theirs.cpython-311.pyc").touch()
    (checkout / "runners" / ".a.py.swp").touch()
    (checkout / "runners" / ".git").mkdir()
    (checkout / "runners" / ".git" / "HEAD").touch()
    (checkout / "config" / "away.json").symlink_to("/etc/passwd")
    sent = push(session, checkout, work, delete=True)
    assert [c for c in sent.changes if c.startswith("delete")] == [
        "delete config/away.json",
        "delete config/theirs.json",
        "delete runners/mcoplib_mxbenchmark_theirs_runners.py",
    ]
    assert sent.deleted == 3
    names = {path.name for path in checkout.rglob("*")}
    assert {"theirs.cpython-311.pyc", ".a.py.swp", "HEAD", "results.csv", "__init__.py"} <= names
    assert not {"away.json", "theirs.json"} & names
    assert Path("/etc/passwd").exists()


def test_only(session: AgentSession, checkout: Path, work: Path) -> None:
    sent = push(session, checkout, work, only=["b_op"], delete=True)
    assert sent.changes == (
        "add config/b_op.json",
        "add runners/mcoplib_mxbenchmark_b_op_runners.py",
        f"list b_op in {DOOR}",
    )
    assert (checkout / "config" / "theirs.json").exists()


def test_modes_are_kept(session: AgentSession, checkout: Path, work: Path) -> None:
    (checkout / "config" / "a_op.json").chmod(0o640)
    (checkout / DOOR).chmod(0o775)
    push(session, checkout, work)
    assert stat.S_IMODE((checkout / "config" / "a_op.json").stat().st_mode) == 0o640
    assert stat.S_IMODE((checkout / DOOR).stat().st_mode) == 0o775
    assert stat.S_IMODE((checkout / "config" / "b_op.json").stat().st_mode) == 0o644


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of other users")


@needs_root
@pytest.mark.parametrize("folder_mode", [0o755, 0o775, 0o2775])
def test_files_of_another_user_stay_theirs(
    session: AgentSession, checkout: Path, work: Path, folder_mode: int
) -> None:
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, 1234, 2345)
    (checkout / "config" / "a_op.json").chmod(0o664)
    os.chown(checkout / "config" / "a_op.json", 1235, 2346)
    (checkout / "config").chmod(folder_mode)
    (work / "benchmark" / "config" / "new" / "deep").mkdir(parents=True)
    (work / "benchmark" / "config" / "new" / "deep" / "x.json").write_text("{}")
    push(session, checkout, work)
    shared = folder_mode & 0o020
    expected = {
        "config/a_op.json": (1235, 2346, 0o664),
        "config/b_op.json": (1234, 2345, 0o644 | shared),
        "config/new": (1234, 2345, folder_mode),
        "config/new/deep": (1234, 2345, folder_mode),
        "config/new/deep/x.json": (1234, 2345, 0o644 | shared),
        DOOR: (1234, 2345, 0o644),
        sync.LOCK_NAME: (1234, 2345, 0o666),
    }
    for name, (uid, gid, mode) in expected.items():
        found = (checkout / name).stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (uid, gid, mode), name


@needs_root
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs a Python that every user can run"
)
def test_a_group_folder_of_an_ordinary_user(checkout: Path, work: Path, tmp_path: Path) -> None:
    """Without root's rights: new files get the group of the set-group-id folder."""
    uid, gid, team = 4001, 4001, 4002
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, uid, gid)
    for folder in ("config", "runners"):
        os.chown(checkout / folder, 0, team)
        (checkout / folder).chmod(0o2775)
    # An agent of that user, whose primary group is another one.
    code = (
        f"import os, sys; os.setgroups([{team}]); os.setgid({gid}); os.setuid({uid}); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    shim = tmp_path / "python-as-user"
    shim.write_text(f"#!/bin/sh\nexec /usr/bin/python3 -c '{code}' \"$@\"\n")
    shim.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    agents = Agents()
    try:
        push(agents.start(python=str(shim)), checkout, work)
    finally:
        agents.close()
    found = (checkout / "config" / "b_op.json").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (uid, team, 0o664)


def test_an_edited_module_really_runs(
    session: AgentSession, jobs: Jobs, checkout: Path, work: Path
) -> None:
    """Same size, same time: only without the stale bytecode the new source is read."""
    runner = checkout / RUNNER
    runner.write_text("VALUE = 1\n")
    ask = [
        sys.executable,
        "-c",
        "import runners.mcoplib_mxbenchmark_a_op_runners as r; print(r.VALUE)",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def value() -> str:
        done = subprocess.run(
            ask, cwd=checkout, capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout.strip()

    assert value() == "1"
    assert list((checkout / "runners" / "__pycache__").glob("*a_op*"))
    before = runner.stat()
    (work / "benchmark" / RUNNER).write_text("VALUE = 2\n")
    push(session, checkout, work)
    os.utime(runner, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert value() == "2"


def folder_in_the_way(checkout: Path) -> None:
    (checkout / "config" / "b_op.json").mkdir()


def file_in_the_way(checkout: Path) -> None:
    (checkout / "config" / "deep").write_text("a file")


def folder_leads_out(checkout: Path) -> None:
    away = checkout.parent / "away"
    away.mkdir()
    (checkout / "config" / "deep").symlink_to(away)


def configs_elsewhere(checkout: Path) -> None:
    (checkout / "config").rename(checkout.parent / "config elsewhere")
    (checkout / "config").symlink_to(checkout.parent / "config elsewhere")


def file_leads_out(checkout: Path) -> None:
    path = checkout / "config" / "a_op.json"
    path.rename(checkout.parent / "mine.json")
    path.symlink_to(checkout.parent / "mine.json")


def door_leads_out(checkout: Path) -> None:
    (checkout / DOOR).rename(checkout.parent / DOOR)
    (checkout / DOOR).symlink_to(f"../{DOOR}")


def no_configs(checkout: Path) -> None:
    (checkout / "config").rename(checkout / "configuration")


def no_list(checkout: Path) -> None:
    (checkout / DOOR).write_text("print('something else')\n")


def built_list(checkout: Path) -> None:
    (checkout / DOOR).write_text("SUPPORTED_OPERATORS = sorted(['a_op'])\n")


def other_encoding(checkout: Path) -> None:
    (checkout / DOOR).write_bytes(b"# caf\xe9\nSUPPORTED_OPERATORS = []\n")


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (folder_in_the_way, "is a folder here, a file in what is pushed"),
        (file_in_the_way, "is a file here, a folder in what is pushed"),
        (folder_leads_out, "leads out of the workdir"),
        (configs_elsewhere, "leads out of the workdir"),
        (file_leads_out, "leads out of the workdir"),
        (door_leads_out, "leads out of the workdir"),
        (no_configs, "has no config/"),
        (no_list, "there is no SUPPORTED_OPERATORS"),
        (built_list, "not a literal list"),
        (other_encoding, "not UTF-8"),
    ],
)
def test_what_is_refused_changes_nothing(
    session: AgentSession,
    checkout: Path,
    work: Path,
    trouble: Callable[[Path], None],
    message: str,
) -> None:
    (work / "benchmark" / "config" / "deep" / "er").mkdir(parents=True)
    (work / "benchmark" / "config" / "deep" / "er" / "x.json").write_text("{}")
    trouble(checkout)
    before = state(checkout.parent)
    with pytest.raises(MxfleetError, match=message):
        push(session, checkout, work)
    assert state(checkout.parent) == before


def test_a_link_within_the_checkout_is_replaced(
    session: AgentSession, checkout: Path, work: Path
) -> None:
    (checkout / "config" / "a_op.json").unlink()
    (checkout / "config" / "a_op.json").symlink_to("theirs.json")
    push(session, checkout, work)
    assert not (checkout / "config" / "a_op.json").is_symlink()
    assert (checkout / "config" / "theirs.json").read_text() == "{}"


def test_a_failure_in_the_middle_is_taken_back(
    session: AgentSession, checkout: Path, work: Path
) -> None:
    """A file system that refuses one of the renames: the files before it come back."""
    (work / "benchmark" / RUNNER).write_text("# edited\n")
    marked = checkout / "runners"
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["chattr", "+a", str(marked)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs chattr +a")
    (work / "benchmark" / "config" / "new folder").mkdir()
    (work / "benchmark" / "config" / "new folder" / "x.json").write_text("{}")
    before = state(checkout)
    try:
        with pytest.raises(MxfleetError, match="Operation not permitted while syncing"):
            push(session, checkout, work, delete=True)
        assert state(checkout) == before
    finally:
        subprocess.run(["chattr", "-a", str(marked)], check=True)


def test_the_front_door_changes_meanwhile(
    session: AgentSession, checkout: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = whitelist.add

    def meanwhile(source: str, names: list[str], where: str) -> str:
        with (checkout / DOOR).open("a") as stream:
            stream.write("# somebody else was here\n")
        return add(source, names, where)

    monkeypatch.setattr(whitelist, "add", meanwhile)
    untouched = (checkout / "config" / "a_op.json").read_bytes()
    with pytest.raises(MxfleetError, match="was changed by somebody else"):
        push(session, checkout, work)
    assert (checkout / "config" / "a_op.json").read_bytes() == untouched
    assert not (checkout / "config" / "b_op.json").exists()
    monkeypatch.setattr(whitelist, "add", add)
    assert push(session, checkout, work).files


def test_a_read_only_checkout(
    checkout: Path, work: Path, session: AgentSession, jobs: Jobs
) -> None:
    """A push says what is wrong, a job runs all the same."""
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "--bind", str(checkout), str(checkout)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("mounting needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(checkout)], check=True)
        with pytest.raises(MxfleetError, match="Read-only file system while locking"):
            push(session, checkout, work)
        (jobs.workdir / "script.py").touch()
        spec = jobs.spec("", workdir=str(checkout), script=DOOR, argv=["-c", "print('ran')"])
        assert receive(session, spec).text == "ran\n"
    finally:
        subprocess.run(["umount", "-l", str(checkout)], check=True)


def start_job(session: AgentSession, jobs: Jobs, checkout: Path) -> Request:
    words = ["-uc", "import time; print('up'); time.sleep(600)"]
    spec = jobs.spec("", name="running", workdir=str(checkout), script=DOOR, argv=words)
    request = session.request("run", **spec)
    while not isinstance(request.next(20), bytes):
        pass
    return request


def begin_push(session: AgentSession, checkout: Path, work: Path) -> Request:
    """A push that has begun and waits for its bytes."""
    tree = build(work)
    rows = [
        [row[0].removeprefix("benchmark/"), *row[1:]]  # type: ignore[attr-defined]
        for row in entry_rows(tree.entries)
        if "/config/" in str(row[0])
    ]
    request = session.request(
        "sync", workdir=str(checkout), entries=rows, delete=["config/theirs.json"], expected={}
    )
    packer = zlib.compressobj()
    request.send(packer.compress(b"{}") + packer.flush(zlib.Z_SYNC_FLUSH))
    until(lambda: stages(checkout), "the push has begun")
    return request


def stages(checkout: Path) -> list[Path]:
    return list(checkout.glob(f"{sync.STAGE_PREFIX}*"))


def test_a_push_waits_for_the_job_and_says_so(
    agents: Agents, session: AgentSession, jobs: Jobs, checkout: Path, work: Path
) -> None:
    before = state(checkout)
    running = start_job(session, jobs, checkout)
    with pytest.raises(MxfleetError, match="a job is using") as caught:
        push(agents.start(), checkout, work)
    assert "wait for it to end" in str(caught.value)
    assert state(checkout) == before
    session.call("stop", job="running")
    running.result()
    assert push(session, checkout, work).files


def test_a_job_waits_for_the_push(
    agents: Agents, session: AgentSession, jobs: Jobs, checkout: Path, work: Path
) -> None:
    pushing = begin_push(agents.start(), checkout, work)
    spec = jobs.spec("", workdir=str(checkout), script=DOOR, argv=["-c", "print('ran')"])
    ran = receive(session, spec)
    assert ran.error is not None
    assert "a push is using" in ran.error.message
    pushing.end()
    with pytest.raises(MxfleetError, match="ended before all files had come"):
        pushing.result()
    assert receive(session, {**spec, "job": "later"}).text == "ran\n"


@pytest.mark.parametrize("how", ["kill -9", "cut"])
def test_a_push_that_dies(
    agents: Agents, session: AgentSession, jobs: Jobs, checkout: Path, work: Path, how: str
) -> None:
    """The checkout is as it was, and the next push clears away what was left."""
    before = state(checkout)
    victim = agents.start()
    begin_push(victim, checkout, work)
    if how == "cut":
        victim.close()
        until(lambda: not stages(checkout), "it tidies up itself")
        assert state(checkout) == before
    else:
        with pytest.raises(LinkLostError):
            victim.call("run", **jobs.spec("import os; os.kill(os.getppid(), 9)"))
        left = stages(checkout)
        assert left
        after = state(checkout)
        assert {k: v for k, v in after.items() if not k.startswith(sync.STAGE_PREFIX)} == before
    push(session, checkout, work)
    assert not stages(checkout)


def test_a_tree_error_on_our_side_leaves_no_stage(
    session: AgentSession, checkout: Path, work: Path
) -> None:
    tree = build(work)
    (work / "benchmark" / "config" / "a_op.json").write_text('{"changed": "meanwhile"}')
    before = state(checkout)
    with pytest.raises(TreeError, match="changed while it was pushed"):
        push_in_place(session, str(checkout), tree, FOLDERS)
    assert state(checkout) == before
