"""Immutable trees on a target: whole or absent, reused, repaired, collected, never in use."""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_kit import Agents, Jobs, receive, until

from orchestrator.errors import LinkLostError, MxfleetError, TreeError
from orchestrator.inventory.model import Host, Target
from orchestrator.push import send
from orchestrator.push.send import Sent, push_tree
from orchestrator.push.tree import Tree, build, entry_rows
from orchestrator.transport.agent import wire
from orchestrator.transport.agent.trees import MANIFEST
from orchestrator.transport.scripted import Faults, ScriptedConnection
from orchestrator.transport.session import AgentSession


@pytest.fixture
def target(jobs: Jobs) -> Target:
    return Target("t", Host("t"), store=str(jobs.store))


def snapshot(folder: Path) -> dict[str, object]:
    """Everything below a folder: contents, modes, links."""
    found: dict[str, object] = {}
    for root, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(root, name)  # noqa: PTH118 - names of any bytes
            key = os.path.relpath(path, os.fsencode(folder)).decode("utf-8", "surrogateescape")
            if os.path.islink(path):  # noqa: PTH114
                found[key] = os.readlink(path)  # noqa: PTH115
            elif os.path.isfile(path):  # noqa: PTH113
                with open(path, "rb") as stream:  # noqa: PTH123
                    found[key] = (os.stat(path).st_mode & 0o777, stream.read())  # noqa: PTH116
    return found


def expected(work: Path, tree: Tree) -> dict[str, object]:
    return {
        entry.path: entry.link if entry.link is not None else (entry.mode, source.read_bytes())
        for entry, source in zip(tree.entries, tree.sources, strict=True)
    }


def there(sent: Sent) -> dict[str, object]:
    found = snapshot(Path(sent.path))
    del found[MANIFEST]
    return {key: os.fsdecode(v) if isinstance(v, bytes) else v for key, v in found.items()}


def trees_folder(jobs: Jobs) -> list[str]:
    return sorted(p.name for p in (jobs.store / "trees").iterdir() if not p.name.endswith(".lock"))


def test_full_push_of_strange_files(
    session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    benchmark = work / "benchmark"
    (benchmark / "empty").touch()
    (benchmark / "with space and 'quotes\"").write_text("1")
    (benchmark / "new\nline").write_text("2")
    (benchmark / "\u4e2d\u6587-\u00e4").write_text("3")
    Path(os.fsdecode(os.fsencode(benchmark) + b"/\xff\xfe raw")).write_text("4")
    (benchmark / "deep" / "er" / "and deeper").mkdir(parents=True)
    (benchmark / "deep" / "er" / "and deeper" / "file").write_text("5")
    (benchmark / "run.sh").write_text("#!/bin/sh\n")
    (benchmark / "run.sh").chmod(0o750)
    (benchmark / "a link").symlink_to("deep/er")
    (benchmark / "copy of 5").write_text("5")
    (benchmark / "large.bin").write_bytes(random.Random(5).randbytes(50 << 20))
    (benchmark / "zeros.bin").write_bytes(bytes(50 << 20))
    tree = build(work)
    sent = push_tree(session, target, tree)
    assert there(sent) == expected(work, tree)
    assert sent.files == len({e.sha256 for e in tree.entries if e.link is None})
    assert sent.bytes > 100 << 20


def test_an_unchanged_push_is_one_request(
    session: AgentSession, target: Target, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = build(work)
    push_tree(session, target, tree)
    asked: list[str] = []
    request = session.request

    def counted(op: str, **args: object) -> object:
        asked.append(op)
        return request(op, **args)

    monkeypatch.setattr(session, "request", counted)
    again = push_tree(session, target, tree)
    assert (again.files, again.bytes, asked) == (0, 0, ["has_tree"])


def test_only_what_no_tree_has_is_sent(session: AgentSession, target: Target, work: Path) -> None:
    push_tree(session, target, build(work))
    (work / "benchmark" / "config" / "a_op.json").write_text('{"new": 1}')
    (work / "benchmark" / "runners" / "moved.py").write_text("# a_op\n")
    tree = build(work)
    sent = push_tree(session, target, tree)
    assert sent.changes == ("send benchmark/config/a_op.json",)
    assert there(sent) == expected(work, tree)


def test_a_dry_run_changes_nothing(
    session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    sent = push_tree(session, target, build(work), dry_run=True)
    assert sent.files == 6 - 1  # both configs have the same content
    assert not (jobs.store / "trees").exists() or trees_folder(jobs) == []


def edit(folder: Path) -> None:
    (folder / "benchmark" / "config" / "a_op.json").write_text("[]")


def remove(folder: Path) -> None:
    (folder / "benchmark" / "config" / "a_op.json").unlink()


def add(folder: Path) -> None:
    (folder / "benchmark" / "config" / "extra.json").touch()


def add_bytecode(folder: Path) -> None:
    (folder / "benchmark" / "__pycache__").mkdir()
    (folder / "benchmark" / "__pycache__" / "x.pyc").touch()


def add_link(folder: Path) -> None:
    (folder / "benchmark" / "elsewhere").symlink_to("/etc")


def make_executable(folder: Path) -> None:
    (folder / "env" / "env.sh").chmod(0o755)


def replace_by_link(folder: Path) -> None:
    path = folder / "benchmark" / "config" / "a_op.json"
    path.rename(folder.parent.parent / "moved")
    path.symlink_to(folder.parent.parent / "moved")


def cut_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("[")


def forge_manifest(folder: Path) -> None:
    edit(folder)
    (folder / MANIFEST).write_text("[]")


DAMAGES = [
    edit,
    remove,
    add,
    add_bytecode,
    add_link,
    make_executable,
    replace_by_link,
    cut_manifest,
    forge_manifest,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen_by_a_job_and_repaired_by_a_push(
    session: AgentSession, target: Target, jobs: Jobs, work: Path, damage: Callable[[Path], None]
) -> None:
    tree = build(work)
    folder = Path(push_tree(session, target, tree).path)
    spec = jobs.spec("", tree=tree.name, subfolder="benchmark", argv=["-c", "print('ran')"])
    damage(folder)
    ran = receive(session, spec)
    assert ran.error is not None
    assert ran.stdout == b""
    assert "push again" in str(ran.error)
    sent = push_tree(session, target, tree)
    assert there(sent) == expected(work, tree)
    assert receive(session, {**spec, "job": "again"}).text == "ran\n"
    assert trees_folder(jobs) == [tree.name]


def test_a_tree_in_use_is_not_repaired_under_its_job(
    session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    tree = build(work)
    folder = Path(push_tree(session, target, tree).path)
    running = start_in(session, jobs, tree)
    edit(folder)
    with pytest.raises(MxfleetError, match="a job runs in the damaged tree"):
        push_tree(session, target, tree)
    assert folder.is_dir()
    session.call("stop", job="running")
    running.result()
    push_tree(session, target, tree)
    assert there(Sent(str(folder))) == expected(work, tree)


def start_in(session: AgentSession, jobs: Jobs, tree: Tree) -> send.Request:
    words = ["-uc", "import time; print('up'); time.sleep(600)"]
    spec = jobs.spec("", name="running", tree=tree.name, subfolder="benchmark", argv=words)
    request = session.request("run", **spec)
    while not isinstance(request.next(20), bytes):
        pass
    return request


def test_what_a_job_leaves_in_its_tree_goes_with_the_job(
    session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    """Else the next operator of the same run would meet a damaged tree."""
    tree = build(work)
    push_tree(session, target, tree)
    code = (
        "import os; os.makedirs('dump/x'); os.symlink('/', 'l')\n"
        "open('dump/x/graph.txt', 'w').write('g')"
    )
    for number in range(2):
        spec = jobs.spec(
            "", name=f"j{number}", tree=tree.name, subfolder="benchmark", argv=["-c", code]
        )
        if number:
            spec["argv"] = ["-c", "import os; print(os.path.exists('dump/x/graph.txt'))"]
        ran = receive(session, spec)
        assert ran.error is None
    assert ran.text == "False\n"
    assert (
        jobs.store / "jobs" / "j0" / "left" / "benchmark" / "dump" / "x" / "graph.txt"
    ).read_text() == "g"


def test_cut_at_any_byte(agents: Agents, target: Target, jobs: Jobs, work: Path) -> None:
    """Wherever the link breaks: the tree is absent, then the next push brings it whole."""
    (work / "benchmark" / "noise.bin").write_bytes(random.Random(1).randbytes(200_000))
    tree = build(work)
    probe = ScriptedConnection()
    whole = agents.start(connection=probe)
    start = probe._pipes[0]._written
    push_tree(whole, Target("t", Host("t"), store=str(jobs.folder / "probe")), tree)
    total = probe._pipes[0]._written
    end_frame = total - wire.HEADER.size
    cuts = sorted(random.Random(2).sample(range(start, end_frame - 20), 12))
    for cut in cuts:
        cutting = ScriptedConnection(faults=Faults(cut_write_after=cut))
        with pytest.raises(LinkLostError):
            push_tree(agents.start(connection=cutting), target, tree)
        # The agent takes its half away by itself.
        until(lambda: not (jobs.store / "trees").exists() or not trees_folder(jobs), "tidied up")
    sent = push_tree(whole, target, tree)
    assert there(sent) == expected(work, tree)


def test_cut_when_all_had_come(agents: Agents, target: Target, work: Path) -> None:
    """Then the tree is whole, although this side never heard of it."""
    tree = build(work)
    probe = ScriptedConnection(faults=Faults(cut_write_after=None))
    session = agents.start(connection=probe)
    request = session.request(
        "put_tree",
        store=target.store,
        tree=tree.name,
        entries=entry_rows(tree.entries),
        sent=[i for i, e in enumerate(tree.entries) if e.link is None],
        keep=10,
        keep_days=14.0,
    )
    request.send(zlib.compress(b"".join(source.read_bytes() for source in tree.sources)))
    probe.cut()
    assert target.store is not None
    folder = Path(target.store) / "trees" / tree.name
    until(folder.is_dir, "the tree is there")
    assert there(Sent(str(folder))) == expected(work, tree)


def test_killed_while_it_receives(
    agents: Agents, session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    """An agent that is killed outright leaves a stage, which a later push removes."""
    tree = build(work)
    victim = agents.start()
    request = victim.request(
        "put_tree",
        store=target.store,
        tree=tree.name,
        entries=entry_rows(tree.entries),
        sent=list(range(len(tree.entries))),
        keep=10,
        keep_days=14.0,
    )
    packer = zlib.compressobj()
    request.send(packer.compress(b"{") + packer.flush(zlib.Z_SYNC_FLUSH))
    stages = lambda: [n for n in trees_folder(jobs) if n.startswith(".stage-")]  # noqa: E731
    until(lambda: (jobs.store / "trees").exists() and stages(), "the stage is there")
    ask = victim.request("run", **jobs.spec("import os; os.kill(os.getppid(), 9)"))
    with pytest.raises(LinkLostError):
        ask.result()
    assert stages()
    for name in stages():
        os.utime(jobs.store / "trees" / name, (1, 1))
    sent = push_tree(session, target, tree)
    assert trees_folder(jobs) == [tree.name]
    assert there(sent) == expected(work, tree)


def test_a_stage_at_work_is_left_alone(
    agents: Agents, session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    tree = build(work)
    slow = agents.start().request(
        "put_tree",
        store=target.store,
        tree=tree.name,
        entries=entry_rows(tree.entries),
        sent=[i for i, e in enumerate(tree.entries) if e.link is None],
        keep=10,
        keep_days=14.0,
    )
    until(lambda: (jobs.store / "trees").exists() and trees_folder(jobs), "the stage is there")
    stage = trees_folder(jobs)[0]
    os.utime(jobs.store / "trees" / stage, (1, 1))
    (work / "benchmark" / "other").write_text("x")
    push_tree(session, target, build(work))
    assert stage in trees_folder(jobs)
    data = b"".join(source.read_bytes() for source in tree.sources)
    slow.send(zlib.compress(data))
    slow.end()
    assert there(Sent(str(slow.result()["path"]))) == expected(work, tree)


def test_a_file_that_changes_meanwhile(
    session: AgentSession, target: Target, jobs: Jobs, work: Path
) -> None:
    tree = build(work)
    (work / "env" / "env.sh").write_text("changed\n")
    with pytest.raises(TreeError, match="changed while it was pushed"):
        push_tree(session, target, tree)
    assert trees_folder(jobs) == []
    assert push_tree(session, target, build(work)).files


def test_the_same_push_from_many_sides(
    agents: Agents, target: Target, jobs: Jobs, work: Path
) -> None:
    tree = build(work)
    sessions = [agents.start() for _ in range(4)]
    errors: list[BaseException] = []
    gate = threading.Barrier(4)

    def push(session: AgentSession) -> None:
        try:
            gate.wait()
            push_tree(session, target, tree)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=push, args=(s,)) for s in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert trees_folder(jobs) == [tree.name]
    assert there(Sent(str(jobs.store / "trees" / tree.name))) == expected(work, tree)


def test_collection(
    session: AgentSession,
    target: Target,
    jobs: Jobs,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the last few, and only when old, and never one that a job runs in."""
    trees = []
    for number in range(6):
        (work / "benchmark" / "version").write_text(str(number))
        trees.append(build(work))
        push_tree(session, target, trees[-1])
        age = time.time() - (100 - number) * 86400 if number != 1 else time.time() - 3600
        os.utime(jobs.store / "trees" / f"{trees[-1].name}.lock", (age, age))
    running = start_in(session, jobs, trees[0])
    old = time.time() - 90 * 86400
    os.utime(jobs.store / "trees" / f"{trees[0].name}.lock", (old, old))
    monkeypatch.setattr(send, "KEEP_TREES", 2)
    (work / "benchmark" / "version").write_text("new")
    newest = build(work)
    push_tree(session, target, newest)
    # 0 is in use; 1 and the new one were used last; the others are old.
    assert trees_folder(jobs) == sorted([trees[0].name, trees[1].name, newest.name])
    locks = {p.stem for p in (jobs.store / "trees").glob("*.lock")}
    assert locks == {trees[0].name, trees[1].name, newest.name}
    session.call("stop", job="running")
    running.result()


@pytest.mark.parametrize(
    "rows",
    [
        [["../evil", 0o644, 0, "e3b0", None]],
        [["/etc/evil", 0o644, 0, "e3b0", None]],
        [["a//b", 0o644, 0, "e3b0", None]],
        [["a/./b", 0o644, 0, "e3b0", None]],
        [["a\0b", 0o644, 0, "e3b0", None]],
        [["", 0o644, 0, "e3b0", None]],
        [["a", 0o755, 0, "x", "/etc"], ["a/passwd", 0o644, 0, "e3b0", None]],
        [["a", 0o644, 0, "x", None], ["a", 0o644, 0, "y", None]],
    ],
)
def test_unsafe_paths(
    session: AgentSession, target: Target, jobs: Jobs, rows: list[list[object]]
) -> None:
    request = session.request(
        "put_tree", store=target.store, tree="0" * 32, entries=rows, sent=[], keep=1, keep_days=1.0
    )
    with pytest.raises(MxfleetError, match=r"unsafe path|names a path twice"):
        request.result()
    assert not (jobs.store / "trees").exists() or trees_folder(jobs) == []


@pytest.mark.parametrize(
    "data", [b"garbage that is no zlib", zlib.compress(b"other bytes, but enough")]
)
def test_content_that_arrives_damaged(
    session: AgentSession, target: Target, jobs: Jobs, work: Path, data: bytes
) -> None:
    tree = build(work)
    request = session.request(
        "put_tree",
        store=target.store,
        tree=tree.name,
        entries=entry_rows(tree.entries),
        sent=[0],
        keep=1,
        keep_days=1.0,
    )
    request.send(data)
    request.end()
    with pytest.raises(MxfleetError, match="arrived damaged"):
        request.result()
    assert trees_folder(jobs) == []
