"""Host keys by OpenSSH's rules; where ssh-keygen is there, its own lookup is the reference."""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from orchestrator.transport.known_hosts import KnownHosts, Verdict, append

KEY, OTHER = b"\0\0\0\x0bssh-ed25519one", b"\0\0\0\x07ssh-rsatwo"
A, B = base64.b64encode(KEY).decode(), base64.b64encode(OTHER).decode()


@pytest.mark.parametrize(
    ("text", "name", "verdict", "line"),
    [
        (f"c500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 1),
        (f"c500 ssh-ed25519 {A} a comment", "c500", Verdict.KNOWN, 1),
        (f"C500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 1),
        (f"other,c500,x ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 1),
        (f"*.lab ssh-ed25519 {A}\n", "c500.lab", Verdict.KNOWN, 1),
        (f"c50? ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 1),
        (f"*,!c500 ssh-ed25519 {A}\n", "c500", Verdict.UNKNOWN, None),
        (f"[c500]:2222 ssh-ed25519 {A}\n", "[c500]:2222", Verdict.KNOWN, 1),
        (f"[c500]:* ssh-ed25519 {A}\n", "[c500]:2222", Verdict.KNOWN, 1),
        (f"[c500]:2222 ssh-ed25519 {A}\n", "c500", Verdict.UNKNOWN, None),
        ("", "c500", Verdict.UNKNOWN, None),
        (f"# c500 ssh-ed25519 {A}\n", "c500", Verdict.UNKNOWN, None),
        (f"\n\nc500 ssh-rsa {B}\n", "c500", Verdict.CHANGED, 3),
        (f"c500 ssh-rsa {B}\nc500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 2),
        (f"c500 ssh-ed25519 {A}\n@revoked * ssh-ed25519 {A}\n", "c500", Verdict.REVOKED, 2),
        (f"@revoked * ssh-rsa {B}\nc500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 2),
        (f"@cert-authority *.lab ssh-rsa {B}\n", "c500.lab", Verdict.CERTIFIED, 1),
        (f"@cert-authority *.lab ssh-rsa {B}\n", "c500", Verdict.UNKNOWN, None),
        (f"@future c500 ssh-rsa {B}\nc500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 2),
        (f"c500 ssh-ed25519 ***\nc500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 2),
        (f"c500\nc500 35 1234 5678\nc500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 3),
        (f"|1|broken ssh-rsa {B}\n|1|!|! ssh-rsa {B}\n", "c500", Verdict.UNKNOWN, None),
        (f"\xff\nc500 ssh-ed25519 {A}\n", "c500", Verdict.KNOWN, 2),
    ],
)
def test_verdicts(tmp_path: Path, text: str, name: str, verdict: Verdict, line: int | None) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(text.encode("latin-1"))
    found, entry = KnownHosts([tmp_path / "absent", path]).check(name, KEY)
    assert found is verdict
    assert (entry.place if entry else None) == (f"{path}:{line}" if line else None)


def test_types_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text(f"c500 ssh-ed25519 {A}\n@cert-authority c500 ecdsa-sha2-nistp256 {A}\n")
    second.write_text(f"c500 ssh-rsa {B}\nc500 ssh-ed25519 {B}\n")
    assert KnownHosts([first, second]).key_types("c500") == ["ssh-ed25519", "ssh-rsa"]


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("before", [None, "", "x ssh-rsa AAAA\n", "no newline at the end"])
@pytest.mark.parametrize("name", ["c500", "[127.0.0.1]:2201"])
def test_append(tmp_path: Path, hashed: bool, before: str | None, name: str) -> None:
    path = tmp_path / "new" / "known_hosts"
    if before is not None:
        path.parent.mkdir()
        path.write_text(before)
    append(path, name, "ssh-ed25519", KEY, hashed=hashed)
    append(path, name, "ssh-ed25519", KEY, hashed=hashed)
    text = path.read_text()
    assert text.count("ssh-ed25519") == 1 and text.startswith(before or "")
    assert (name in text) is not hashed
    assert KnownHosts([path]).check(name, KEY)[0] is Verdict.KNOWN
    if before is None:
        assert path.stat().st_mode & 0o777 == 0o600
    if shutil.which("ssh-keygen"):
        found = subprocess.run(
            ["ssh-keygen", "-F", name, "-f", path], capture_output=True, text=True, check=False
        )
        assert A in found.stdout


def test_append_leaves_a_device_alone() -> None:
    append(Path("/dev/null"), "c500", "ssh-ed25519", KEY, hashed=False)


def test_append_from_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    names = [f"host{number % 10}" for number in range(40)]
    threads = [
        threading.Thread(target=append, args=(path, name, "t", KEY), kwargs={"hashed": False})
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.read_text().splitlines()) == sorted(f"{name} t {A}" for name in set(names))
