"""What a job says arrives as it was said, however much it is and whatever bytes: nothing is
dropped, nobody's memory grows, nothing acts on the reader's terminal, and scripts get JSON.
"""

from __future__ import annotations

import codecs
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .conftest import LoopbackFleet
from .sshd import Sshd
from .workbench import HERE, MXFLEET, Bench, napping, workbench

LOUD = HERE / "loud"
OP = "probe_loud"
MEGABYTES = 100  # on each stream
GROWTH = 200 << 20  # bytes that flooded processes may take beyond what they have when idle
NAP = 86_511  # seconds; also the mark of what a job leaves running
UNREAD_SECONDS = 6.0
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


words = _load(LOUD / "benchmark" / "runners" / "loud_words.py")


def add_loud(folder: Path) -> None:
    """Give a working folder with the quick suite the loud operator."""
    shutil.copytree(LOUD, folder, dirs_exist_ok=True)
    script = folder / "benchmark" / "mcoplib_mxbenchmark_ops.py"
    listed = "SUPPORTED_OPERATORS = [\n"
    script.write_text(script.read_text().replace(listed, f'{listed}    "{OP}",\n'))


@pytest.fixture
def loud(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Bench]:
    """A working folder with the loud operator; what it leaves running is ended."""
    with workbench(fleet, tmp_path) as bench:
        add_loud(tmp_path)
        yield bench
    for host in fleet.hosts:
        fleet.in_container(host, "pkill", "-KILL", "-f", f"^sleep {NAP}$", check=False)


def log_of(bench: Bench, target: str = "loop1") -> Path:
    return bench.runs()[-1] / "logs" / target / f"{OP}.log"


def peak(pids: Iterable[int]) -> int:
    """The most memory, in bytes, that living processes ever had at a time, each for itself."""
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        total += int(found[1]) * 1024 if found else 0
    return total


def agents_of(bench: Bench) -> list[int]:
    """The agents that look after jobs in the bench's store, with their guardians."""
    mark = f"MXFLEET_JOB={bench.store}/jobs/".encode()
    agents = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                parent = _parent(int(folder.name))
                agents += [parent, _parent(parent)]
        except OSError:
            continue  # gone meanwhile
    return agents


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass
class Heard:
    """What a JSON reader heard: by stream the text without line ends, as a hash, and its lines."""

    digests: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        event = json.loads(line)
        if event["event"] != "output":
            self.events.append(event)
            return
        stream, text = event["stream"], event["text"]
        self.digests.setdefault(stream, hashlib.sha256()).update(text.encode())
        self.lines[stream] = self.lines.get(stream, 0) + 1


def expected_text(parts: Iterable[bytes]) -> str:
    """The hash that `Heard` gives for bytes."""
    decoder, digest = codecs.getincrementaldecoder("utf-8")("replace"), hashlib.sha256()
    for part in (*parts, b""):
        text = decoder.decode(part, final=not part)
        digest.update(text.replace("\n", "").replace("\r", "").encode())
    return digest.hexdigest()


def digest_of(parts: Iterable[bytes]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for part in parts:
        digest.update(part)
        size += len(part)
    return size, digest.hexdigest()


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while part := stream.read(1 << 20):
            yield part


class Flooded:
    """A run whose job floods both streams once it is told to, and what everybody's memory did."""

    def __init__(self, bench: Bench, *options: str, read: Callable[[bytes], None]) -> None:
        go = f"{bench.store}/go"
        bench.config(OP, act="flood", megabytes=MEGABYTES, go=go)
        self._process = subprocess.Popen(
            [MXFLEET, "run", "--op", OP, "--hosts", "loop1", *options],
            cwd=bench.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output = self._process.stdout
        assert output is not None
        for line in output:
            read(line)
            if b"ready" in line:
                break
        agents = agents_of(bench)
        assert len(agents) == 2
        self.idle = {"controller": peak([self._process.pid]), "agent": peak(agents)}
        self.peak = dict(self.idle)
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.2):
                for name, pids in (("controller", [self._process.pid]), ("agent", agents)):
                    self.peak[name] = max(self.peak[name], peak(pids))

        watcher = threading.Thread(target=watch)
        watcher.start()
        bench.fleet.in_container("loop1", "touch", go)
        time.sleep(UNREAD_SECONDS)  # a reader that is slower than the job
        for line in output:
            read(line)
        assert self._process.stderr is not None
        self.errors = self._process.stderr.read().decode()
        self.code = self._process.wait(60)
        ended.set()
        watcher.join()

    def check(self, bench: Bench) -> None:
        """The log has every byte of both streams in its order; memory did not grow with them."""
        assert self.code == 0, self.errors
        print(f"idle {self.idle}, flooded {self.peak} (bytes)")
        log = log_of(bench)
        for stream, others in ((1, words.ODD), (2, words.EVEN)):
            ours = (part.translate(None, others) for part in _without(b"ready\n", pieces(log)))
            assert digest_of(ours) == digest_of(words.flood(stream, MEGABYTES))
        for name, idle in self.idle.items():
            assert self.peak[name] - idle < GROWTH, (name, self.idle, self.peak)


def _without(beginning: bytes, parts: Iterator[bytes]) -> Iterator[bytes]:
    first = next(parts)
    assert first.startswith(beginning)
    yield first[len(beginning) :]
    yield from parts


def test_flood_as_json(loud: Bench) -> None:
    heard = Heard()
    Flooded(loud, "--output", "json", read=heard.take).check(loud)
    assert heard.events[-1]["event"] == "summary"
    assert heard.events[-1]["counts"] == {"PASSED": 1}
    for number, stream, first in ((1, "stdout", [b"ready\n"]), (2, "stderr", [])):
        parts = (*first, *words.flood(number, MEGABYTES))
        assert heard.digests[stream].hexdigest() == expected_text(parts)
        assert heard.lines[stream] > MEGABYTES * words.SHORT_LINES


def test_flood_for_people(loud: Bench) -> None:
    short = [line.decode().strip() for line in (words.LINE, words.BAR)]
    counts = {line.replace("\x1b", r"\x1b"): 0 for line in short}
    harmful: list[str] = []

    def read(line: bytes) -> None:
        text = line.decode().removesuffix("\n")
        harmful.extend(HARMFUL.findall(text))
        said = text.partition(" | ")[2]
        if said in counts:
            counts[said] += 1

    Flooded(loud, read=read).check(loud)
    assert harmful == []
    assert set(counts.values()) == {MEGABYTES * words.SHORT_LINES}, counts


def test_characters_cut_anywhere_stay_whole(loud: Bench) -> None:
    """Text without a line end, at once on both streams, written in pieces of any size."""
    loud.config(OP, act="text", megabytes=4)
    events = loud.mxfleet("run", "--op", OP, "--hosts", "loop1", "--output", "json").events()
    for number, stream in ((1, "stdout"), (2, "stderr")):
        said = "".join(
            e["text"] for e in events if e["event"] == "output" and e["stream"] == stream
        )
        assert said == words.text(number, 4)
    assert log_of(loud).stat().st_size == sum(len(words.text(n, 4).encode()) for n in (1, 2))


def test_bars_and_escapes(loud: Bench) -> None:
    loud.config(OP, act="bars")
    result = loud.mxfleet("run", "--op", OP, "--hosts", "loop1")
    assert HARMFUL.findall(result.stdout.replace("\n", "")) == []
    said = result.said("loop1")
    for number in (1, 2):
        ours = [line for line in said if line.startswith(f"{number}: ")]
        percents = [f"{number}: {percent:3}%" for percent in range(0, 101, 5)]
        assert ours[: len(percents)] == percents
        assert len(ours) == len(percents) + 2 * len(words.ESCAPES)
    assert f"1: {words.ESCAPES[0]}".replace("\x1b", r"\x1b").replace("\x07", r"\x07") in said
    # What is no text: replaced for people, in the log as it was.
    replaced = ["\ufffd", "\ufffd\ufffd\ufffd(\ufffd"]
    assert sorted({line for line in said if "\ufffd" in line}) == replaced
    log = log_of(loud).read_bytes()
    assert sorted(log) == sorted(words.bars(1) + words.bars(2))


@pytest.mark.parametrize("act", ["stray", "stray_flood"])
def test_words_of_a_stray_after_the_end(loud: Bench, act: str) -> None:
    """What the command left behind is ended with it; its last words are heard."""
    loud.config(OP, act=act, nap=NAP)
    result = loud.mxfleet("run", "--op", OP)
    for host in ("loop1", "loop2"):
        # The flood may be cut anywhere by the command's own last words, but these are whole.
        assert b"[SUMMARY] probe_loud done\n" in log_of(loud, host).read_bytes()
        if act == "stray":
            assert result.said(host)[-2] == "stray's last words"
            assert log_of(loud, host).read_bytes().endswith(b"stray's last words\n")
        else:
            # How much came depends on how fast it was until it was ended.
            assert 4096 < log_of(loud, host).read_bytes().count(b"s") < 1 << 30
    assert "2 PASSED" in result.stdout
    assert napping(loud.fleet, NAP) == []


def test_closed_streams_end_nothing(loud: Bench) -> None:
    loud.config(OP, act="closed")
    result = loud.mxfleet("run", "--op", OP, "--hosts", "loop1")
    assert "1 PASSED" in result.stdout
    log = log_of(loud).read_bytes()
    assert sorted(log.splitlines()) == [b"last words on error", b"last words on output"]


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_noisy_login_shell(fleet: LoopbackFleet, tmp_path: Path, transport: str) -> None:
    """A banner, and a .bashrc that prints binary, half a start mark and a megabyte besides."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "noise").write_bytes(b"\0mxfleet-agent:" + os.urandom(1 << 20) + b"\0mxfleet-agent:")
    (home / ".bashrc").write_text(f"cat {home}/noise; cat {home}/noise >&2; echo Welcome\n")
    (home / "banner").write_text("Authorised use only\n" * 50)
    settings = {"SetEnv": f"HOME={home}", "Banner": str(home / "banner")}
    sshd = Sshd(tmp_path / "sshd", settings)
    try:
        folder = tmp_path / "work"
        with workbench(fleet, folder) as bench:
            add_loud(folder)
            config = tmp_path / "ssh_config"
            config.write_text(sshd.host_block("noisy"))
            engine = f"unix://{fleet.state}/hosts/loop1/docker.sock"
            bench.inventory(
                hosts={"noisy": {"transport": transport}},
                ssh_config=str(config),
                docker_command=["docker", "-H", engine],
            )
            bench.config(OP, act="bars")
            there = subprocess.run(
                ["ssh", "-F", config, "-o", "StrictHostKeyChecking=accept-new", "noisy", "true"],
                capture_output=True,
                check=True,
            )
            assert b"Welcome" in there.stdout  # it is noisy indeed
            result = bench.mxfleet("run", "--op", OP)
            assert "1 PASSED" in result.stdout
            assert "Welcome" not in result.stdout + result.stderr
            log = log_of(bench, "noisy").read_bytes()
            assert sorted(log) == sorted(words.bars(1) + words.bars(2))
    finally:
        sshd.stop()
