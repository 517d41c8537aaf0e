"""The agent runs on whatever Python 3.6 or later a host has, in whatever locale."""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from agent_kit import Agents, Jobs

from orchestrator.transport import agent
from orchestrator.transport.agent.files import Entry
from orchestrator.transport.agent.trees import tree_hash

AGENT = Path(agent.__file__).parent
# Where distributions and pyenv put further interpreters; what is not there is not tried.
PLACES = ("/usr/bin", "/usr/local/bin", str(Path("~/.pyenv/versions").expanduser()) + "/*/bin")


def interpreters() -> dict[str, str]:
    """One interpreter for each minor version that works on this machine."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for place in PLACES:
        for path in sorted(Path("/").glob(place.lstrip("/") + "/python[23]*")):
            if path.name.count(".") == 1 and "-" not in path.name:
                ask = [path, "-c", "import sys, zlib; print('%d.%d' % sys.version_info[:2])"]
                told = subprocess.run(ask, capture_output=True, text=True, check=False)
                if told.returncode == 0:
                    found.setdefault(told.stdout.strip(), str(path))
    return found


PYTHONS = interpreters()


@pytest.mark.parametrize("path", sorted(AGENT.glob("*.py")), ids=lambda path: path.stem)
def test_source_is_python_3_6(path: Path) -> None:
    """The grammar of 3.6, nothing but the standard library, and only what came before."""
    module = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    place = agent.MODULES.index(path.stem) if path.stem != "__init__" else 0
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            assert all(name in agent.MODULES[:place] for name in names)
        elif isinstance(node, ast.ImportFrom):
            # 3.6 has no `from __future__ import annotations`.
            assert node.module in sys.stdlib_module_names - {"__future__", "dataclasses"}


@pytest.mark.parametrize("version", sorted(PYTHONS))
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_push_and_a_job(
    agents: Agents, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, version: str, locale: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    session = agents.start(python=PYTHONS[version])
    facts = session.call("facts", store=str(jobs.store), python=sys.executable, env={})
    if not version.startswith("2."):
        assert facts["agent_python"].startswith(version + ".")
    data = "\u4e2d\u6587".encode()
    digest = hashlib.sha256(data).hexdigest()
    path = "benchmark/\u00e4 \u4e2d\udcff\n.txt"
    entries = [Entry(path, 0o644, len(data), digest, None)]
    link = "\u00e4 \u4e2d\udcff\n.txt"
    linked = hashlib.sha256(link.encode("utf-8", "surrogateescape")).hexdigest()
    entries.append(Entry("benchmark/link", 0o755, 0, linked, link))
    name = tree_hash(entries)
    request = session.request(
        "put_tree",
        store=str(jobs.store),
        tree=name,
        entries=[list(entry) for entry in entries],
        sent=[0],
        keep=10,
        keep_days=14,
    )
    request.send(zlib.compress(data))
    request.end()
    folder = Path(request.result()["path"])
    assert (folder / "benchmark" / "link").read_bytes() == data
    assert session.call("has_tree", store=str(jobs.store), tree=name)["present"]
    ran = jobs.run(
        session,
        "import os\nprint(os.listdir(), ascii(os.environ['V']))",
        tree=name,
        subfolder="benchmark",
        argv=["-c", "import os; print(ascii(sorted(os.listdir())), ascii(os.environ['V']))"],
        env={"V": "\u4e2d\udcfe"},
    )
    assert ran.error is None
    assert ran.text == ascii(sorted(["link", link])) + " " + ascii("\u4e2d\udcfe") + "\n"


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_a_sync_tells_names_as_they_are(
    agents: Agents, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    session = agents.start(python=PYTHONS[version])
    (jobs.workdir / "config").mkdir()
    (jobs.workdir / "config" / "\u00e4\udcff.json").touch()
    (jobs.workdir / "door.py").write_text("# \u4e2d\u6587\n", encoding="utf-8")
    answer = session.call(
        "compare", workdir=str(jobs.workdir), folders=["config"], entries=[], texts=["door.py"]
    )
    assert answer["only_there"] == ["config/\u00e4\udcff.json"]
    assert answer["texts"] == {"door.py": "# \u4e2d\u6587\n"}
