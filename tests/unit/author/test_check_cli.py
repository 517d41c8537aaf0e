"""``mxfleet check`` from the command line: exit codes, the three outputs, where the tree is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from check_kit import CONFIG, Tree

from orchestrator.errors import ConfigError
from orchestrator.events import Linted
from orchestrator.show.findings import workflow_command
from orchestrator.workflows.check import find_libraries, find_tree

FAULTY = {**CONFIG, "device_id": 1, "samples": 20_000, "top_k": 8}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "benchmark")


def mxfleet(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a person does."""
    environment = {k: v for k, v in os.environ.items() if k != "MXFLEET_INVENTORY"}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**environment, "PYTHONUTF8": "1"},
        check=False,
    )


def test_a_clean_tree(tree: Tree) -> None:
    done = mxfleet("check", cwd=tree.folder.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("check: nothing found in ")


def test_errors_come_before_warnings_and_end_with_1(tree: Tree) -> None:
    tree.config(FAULTY)
    done = mxfleet("check", cwd=tree.folder.parent)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    path = "benchmark/config/my_op.json"
    assert lines[0] == f'{path}:2:5: error[device-id]: device_id is 1; write "device_id": 0'
    assert lines[1].startswith("    why: mxfleet and testall choose the GPU")
    assert lines[2].startswith(f"{path}:8:5: error[unread-key]: ")
    assert lines[4] == ""
    assert lines[5].startswith(f"{path}:7:5: warning[many-samples]: ")
    assert lines[-1].startswith("check: 2 errors, 1 warning in ")
    assert lines[-1].endswith("; --fix mends 1 of them, exit code 1")


def test_warnings_alone_end_with_0(tree: Tree) -> None:
    tree.change(samples=20_000)
    done = mxfleet("check", "my_op", cwd=tree.folder)
    assert done.returncode == 0
    assert "1 warning in" in done.stdout


def test_a_wrong_command_line_ends_with_2(tree: Tree) -> None:
    for words in (["other"], ["--root", "/nowhere"], ["--source", "/nowhere"], ["--output", "x"]):
        done = mxfleet("check", *words, cwd=tree.folder)
        assert done.returncode == 2, words
        assert done.stderr.startswith("mxfleet: ")
        assert len(done.stderr.splitlines()) == 1


def test_json_is_a_line_for_each_finding_and_the_summary(tree: Tree) -> None:
    tree.config(FAULTY)
    done = mxfleet("check", "--output", "json", cwd=tree.folder)
    *findings, summary = map(json.loads, done.stdout.splitlines())
    assert [one["rule"] for one in findings] == ["device-id", "unread-key", "many-samples"]
    first = findings[0]
    assert (first["event"], first["path"], first["line"]) == ("finding", "config/my_op.json", 2)
    assert first["why"] and first["fix"] and first["fixable"] is True
    assert first["operator"] == "my_op"
    assert summary["event"] == "summary"
    assert summary["counts"] == {"errors": 2, "warnings": 1, "fixed": 0}
    assert summary["exit_code"] == done.returncode == 1


def test_fix_tells_what_it_mended_and_what_is_left(tree: Tree) -> None:
    tree.config(FAULTY)
    done = mxfleet("check", "--fix", cwd=tree.folder)
    assert done.returncode == 1
    assert "config/my_op.json:2:5: fixed[device-id]: device_id is 1\n" in done.stdout
    assert "file: config/my_op.json\n" in done.stdout
    assert "check: 1 error, 1 warning, 1 fixed in " in done.stdout
    assert '"device_id": 0' in tree.config_path().read_text()


def test_github_gets_workflow_commands(tree: Tree) -> None:
    tree.config(FAULTY)
    done = mxfleet("check", "--output", "github", cwd=tree.folder.parent)
    lines = done.stdout.splitlines()
    where = "file=benchmark/config/my_op.json,line=2,col=5,title=device-id"
    assert lines[0].startswith(f"::error {where}::device_id is 1; write ")
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error", "::warning", "check:"]


def test_workflow_commands_are_escaped() -> None:
    event = Linted("a,b:c%\n.py", 1, 2, "error", "r", "50% of\r\nit\x1b[0m", "w.", "f")
    assert workflow_command(event) == (
        "::error file=a%2Cb%3Ac%25%0A.py,line=1,col=2,title=r::50%25 of%0D%0Ait\\x1b[0m; f. w."
    )


def test_an_operator_s_name_cannot_act_on_a_terminal(tree: Tree) -> None:
    tree.list("my_op", "x\\x1b[31m")
    done = mxfleet("check", cwd=tree.folder)
    assert "\x1b" not in done.stdout
    assert "listed-without-files" in done.stdout


def test_who_stops_reading_is_no_fault(tree: Tree) -> None:
    tree.config({**CONFIG, **{f"key_{number}": 1 for number in range(3000)}})
    command = f"{sys.executable} -m orchestrator check; echo code $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | head -1"],
        capture_output=True,
        text=True,
        cwd=tree.folder,
        check=False,
    )
    assert done.stderr == "code 0\n"


def test_neither_torch_nor_a_parser_of_c_is_imported(tree: Tree) -> None:
    code = (
        "import sys\nfrom orchestrator.cli.app import app\n"
        "app(['check'], standalone_mode=False)\n"
        "print([n for n in ('torch', 'numpy', 'tree_sitter', 'rich') if n in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tree.folder, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# Where the tree and the libraries are.


def test_the_tree_is_the_folder_named_or_its_benchmark(tree: Tree, tmp_path: Path) -> None:
    assert find_tree(tree.folder, None) == tree.folder
    assert find_tree(tmp_path, None) == tree.folder
    assert find_tree(tmp_path / "none", None) == tmp_path / "none"


def test_the_tree_beside_the_inventory(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("hosts: {}\n")
    assert find_tree(None, inventory) == tree.folder
    below = tmp_path / "notes"
    below.mkdir()
    monkeypatch.chdir(below)
    assert find_tree(None, None) == tree.folder
    monkeypatch.chdir(tree.folder)
    assert find_tree(None, None).samefile(tree.folder)


def test_libraries_of_the_inventory_that_lie_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "common_ops.so"
    here.write_bytes(b"")
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        f"hosts:\n  a:\n    library: [vllm, sgl_kernel={here}]\n  b:\n    library: /no/where.so\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MXFLEET_INVENTORY", raising=False)
    assert find_libraries((), None) == [here]
    assert find_libraries((), inventory) == [here]
    assert find_libraries((Path("x.so"),), inventory) == [Path("x.so")]
    inventory.write_text("library: [\n")
    assert find_libraries((), None) == []
    with pytest.raises(ConfigError):
        find_libraries((), inventory)
    inventory.unlink()
    assert find_libraries((), None) == []
