"""What ssh -G says becomes settings; what Paramiko cannot honour is refused by name."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UnreachableError
from orchestrator.transport import ssh_resolve
from orchestrator.transport.endpoint import Endpoint
from orchestrator.transport.ssh_resolve import resolve

needs_ssh = pytest.mark.skipif(not shutil.which("ssh"), reason="the ssh command is not installed")


def configured(tmp_path: Path, text: str, **fields: Any) -> Endpoint:
    path = tmp_path / "config"
    path.write_text(text)
    return Endpoint("c500-01", ssh_config=path, **fields)


@needs_ssh
@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("", {}, {"hostname": "c500-01", "port": 22, "known_as": "c500-01", "proxy_jump": ()}),
        (
            "Host c500-*\n HostName %h.lab\n Port 2201\n User kernel\n",
            {},
            {
                "hostname": "c500-01.lab",
                "port": 2201,
                "user": "kernel",
                "known_as": "[c500-01.lab]:2201",
            },
        ),
        # The inventory's word comes before the configuration's.
        (
            "Host *\n HostName a\n Port 1\n User u\n",
            {"address": "10.0.0.7", "port": 22, "user": "me"},
            {"hostname": "10.0.0.7", "port": 22, "user": "me", "known_as": "10.0.0.7"},
        ),
        ("", {"address": "fe80::1%eth0"}, {"hostname": "fe80::1%eth0"}),
        ("Host *\n HostKeyAlias lab\n Port 99\n", {}, {"known_as": "lab"}),
        ("Host *\n ProxyJump a,b@c:2222\n", {}, {"proxy_jump": ("a", "b@c:2222")}),
        ("Host *\n ProxyJump none\n", {}, {"proxy_jump": (), "proxy_command": None}),
        (
            "Host *\n User u\n ProxyCommand nc -X 5 %h %p %r %n 100%%\n",
            {},
            {"proxy_command": "nc -X 5 c500-01 22 u c500-01 100%"},
        ),
        ("Host *\n StrictHostKeyChecking yes\n", {}, {"strict_host_keys": True}),
        ("Host *\n StrictHostKeyChecking no\n", {}, {"strict_host_keys": False}),
        ("", {"host_keys": "strict"}, {"strict_host_keys": True}),
        ("Host *\n IdentityAgent none\n", {}, {"agent_socket": None}),
        ("Host *\n IdentityAgent /run/agent\n", {}, {"agent_socket": "/run/agent"}),
        ("Host *\n IdentityAgent $MY_AGENT\n", {}, {"agent_socket": "/from/env"}),
        ("", {}, {"agent_socket": "/default/agent"}),
        (
            "Host *\n AddressFamily inet6\n Compression yes\n IdentitiesOnly yes\n",
            {},
            {"family": socket.AF_INET6, "compression": True, "identities_only": True},
        ),
        ("", {"options": {"SetEnv": "A=b=c"}}, {"set_env": (("A", "b=c"),)}),
        ("", {"options": {"Ciphers": "aes256-ctr"}}, {"ciphers": ("aes256-ctr",)}),
        (
            "Host *\n UserKnownHostsFile /a/one /b/two\n GlobalKnownHostsFile none\n",
            {},
            {"user_known_hosts": (Path("/a/one"), Path("/b/two")), "global_known_hosts": ()},
        ),
        # Not ours to refuse: they do not change how a command is run.
        (
            "Host *\n ControlMaster auto\n ControlPath /x\n ForwardAgent yes\n"
            " LocalForward 1 a:2\n GSSAPIAuthentication yes\n PermitLocalCommand yes\n"
            " PKCS11Provider none\n",
            {},
            {"port": 22},
        ),
    ],
)
def test_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    fields: Mapping[str, Any],
    expected: Mapping[str, Any],
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/default/agent")
    monkeypatch.setenv("MY_AGENT", "/from/env")
    settings = resolve(configured(tmp_path, text, **fields))
    assert {key: getattr(settings, key) for key in expected} == expected


@needs_ssh
def test_identity_files(tmp_path: Path) -> None:
    text = "Host *\n IdentityFile ~/.ssh/%h\n CertificateFile /c-cert.pub\n"
    mine = tmp_path / "mine"
    mine.write_text("")
    settings = resolve(configured(tmp_path, text, identity_file=mine))
    assert settings.identity_files == (mine, Path.home() / ".ssh" / "c500-01")
    assert settings.certificate_files == (Path("/c-cert.pub"),)


@needs_ssh
def test_known_hosts_path_with_a_blank(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    settings = resolve(configured(tmp_path, f'Host *\n UserKnownHostsFile "{folder}/kh"\n'))
    assert settings.user_known_hosts == (folder / "kh",)


@needs_ssh
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PKCS11Provider /usr/lib/p11.so", r"PKCS11Provider \(/usr/lib/p11.so\).*openssh"),
        ("KnownHostsCommand /bin/kh %H", r"KnownHostsCommand .*transport: openssh"),
        ("RevokedHostKeys /etc/revoked", r"RevokedHostKeys .*transport: openssh"),
        ("ProxyUseFdpass yes", r"ProxyUseFdpass .*transport: openssh"),
        ("BindInterface eth7", r"BindInterface .*transport: openssh"),
        ("PermitLocalCommand yes\nLocalCommand date", r"LocalCommand \(date\).*openssh"),
        ("RemoteCommand tmux", r"RemoteCommand \(tmux\).*RemoteCommand: none"),
    ],
)
def test_refused_by_name(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UnreachableError, match=f"^c500-01: the SSH configuration sets {message}"):
        resolve(configured(tmp_path, f"Host *\n{line}\n"))


@needs_ssh
def test_error_in_the_configuration_names_the_line(tmp_path: Path) -> None:
    endpoint = configured(tmp_path, "Host *\n\n  Prot 22\n")
    with pytest.raises(UnreachableError, match="Bad configuration option: prot") as caught:
        resolve(endpoint)
    assert caught.value.where == f"{tmp_path}/config:3"


@needs_ssh
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ssh_config": Path("/no/such/config")}, "Can't open user config file /no/such/config"),
        ({"identity_file": Path("/no/key")}, "identity_file /no/key does not exist"),
        ({"options": {"NoSuchOption": "1"}}, "[Bb]ad configuration option: nosuchoption"),
    ],
)
def test_unusable_configuration(fields: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UnreachableError, match=message):
        resolve(Endpoint("c500-01", **fields))


class TestWithoutSsh:
    """There may be no ssh command; then its defaults hold as long as nothing needs it."""

    @pytest.fixture(autouse=True)
    def nothing_installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ssh_resolve.shutil, "which", lambda name: None)
        monkeypatch.setenv("HOME", str(tmp_path))

    def test_defaults(self, tmp_path: Path) -> None:
        settings = resolve(Endpoint("c500-01", user="me", port=2201))
        assert (settings.hostname, settings.user) == ("c500-01", "me")
        assert settings.known_as == "[c500-01]:2201"
        assert tmp_path / ".ssh" / "id_ed25519" in settings.identity_files
        assert settings.user_known_hosts[0] == tmp_path / ".ssh" / "known_hosts"

    @pytest.mark.parametrize("need", ["ssh_config", "options", "~/.ssh/config"])
    def test_what_needs_it_says_so(self, tmp_path: Path, need: str) -> None:
        endpoint = Endpoint("c500-01")
        if need == "ssh_config":
            endpoint = Endpoint("c500-01", ssh_config=Path("x"))
        elif need == "options":
            endpoint = Endpoint("c500-01", options={"Port": "1"})
        else:
            (tmp_path / ".ssh").mkdir()
            (tmp_path / ".ssh" / "config").write_text("")
        with pytest.raises(UnreachableError, match=r"no ssh command to read .*openssh-client"):
            resolve(endpoint)
