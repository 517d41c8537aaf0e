"""Which names an OpenSSH client configuration gives."""

from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory.ssh_config import read_ssh_hosts


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names", "ranges"),
    [
        ("Host a\n", ["a"], ["a"]),
        ("Host a b # not c\n#Host d\n", ["a", "b"], ["a", "b"]),
        ("  host=a\nHOST = b\nHost\tc\n", ["a", "b", "c"], ["a", "b", "c"]),
        ('Host "a" b\n', ["a", "b"], ["a", "b"]),
        ("Host a *.lab !b c? d\n", ["a", "d"], ["a", "d"]),
        ("Host a b !b\n", ["a"], ["a"]),
        ("Host *\n  User me\nHost a\n  HostName 10.0.0.1\n  Port 22\n", ["a"], ["a"]),
        ("Match host b\n  User x\nHost a\n", ["a"], ["a"]),
        ("Host a\nHost a b\n", ["a", "b"], ["a", "b"]),
        ("Host a\r\n  User me\r\nHost b\r\n", ["a", "b"], ["a", "b"]),
        ('Host "broken\nHost a\n', ["a"], ["a"]),
        (
            "Host c500-03\nHost c500-01 c500-02\nHost h200\nHost c500-05\n",
            ["c500-03", "c500-01", "c500-02", "h200", "c500-05"],
            ["c500-[01-03,05]", "h200"],
        ),
        ("Host 10.0.0.1 10.0.0.2\n", ["10.0.0.1", "10.0.0.2"], ["10.0.0.[1-2]"]),
    ],
)
def test_names(home, text, names, ranges):
    config = home / ".ssh" / "config"
    config.write_text(text)
    found = read_ssh_hosts()
    assert (list(found.names), list(found.ranges)) == (names, ranges)
    assert found.path == config


def test_include(home):
    ssh = home / ".ssh"
    (ssh / "config.d").mkdir()
    (ssh / "config.d" / "1").write_text("Host one\n")
    (ssh / "config.d" / "2").write_text("Host two\nInclude config.d/*\nInclude ~/.ssh/config\n")
    (ssh / "config.d" / "dir").mkdir()
    (ssh / "only").write_text("Host never\n")
    (ssh / "every").write_text("Host every\n")
    (ssh / "config").write_text(
        "Include config.d/* nowhere\n"
        "Host here\n  Include only\n"  # counts for `here` alone
        "Match exec true\n  Include only\n"
        "Host *\n  Include ${HOME}/.ssh/every\n"
    )
    assert read_ssh_hosts().names == ("one", "two", "here", "every")


def test_aliases_that_cannot_be_host_names_are_told(home):
    path = home / "other"
    path.write_bytes("Host a git@x größe -x\n".encode() + b"Host \xff\n")
    found = read_ssh_hosts(path)
    assert found.names == ("a",)
    assert found.left_out[:3] == ("git@x", "größe", "-x") and len(found.left_out) == 4


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.write_text("Host *\n"), "names no host"),
        (lambda path: path.write_text(""), "names no host"),
    ],
)
def test_nothing_to_take(home, make, part):
    path = home / "x"
    make(path)
    with pytest.raises(UsageError, match=part) as caught:
        read_ssh_hosts(path)
    assert str(path) in str(caught.value)
