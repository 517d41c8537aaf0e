"""A host's sshd, the logins, and the files an ssh client needs."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import engine
import processes
from host import USER, FleetError, Host, State, write_file

MARK = "MXFLEET_LOOPBACK_HOST"  # in the environment of every process of an ssh session


def ensure_keys(state: State) -> None:
    """The client's key pair; when `up` runs through sudo, the person who called may use it."""
    if not state.client_key.exists():
        _keygen(state.client_key, "mxfleet loopback client")
        owner = int(os.environ.get("SUDO_UID", "0"))
        for path in (state.client_key, state.client_key.with_suffix(".pub")):
            os.chown(path, owner, -1)


def ensure_user(state: State) -> None:
    """The ordinary user, in the group of the Docker sockets.

    Its password is `*`: no password fits. A leading `!` would lock the account for keys as well.
    """
    processes.run([processes.tool("groupadd"), "--force", "--system", engine.GROUP], "group")
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        state.user_home.parent.mkdir(exist_ok=True)
        processes.run(
            [
                processes.tool("useradd"),
                "--home-dir",
                str(state.user_home),
                "--create-home",
                "--shell",
                "/bin/bash",
                "--password",
                "*",
                USER,
            ],
            f"user {USER}",
        )
        entry = pwd.getpwnam(USER)
    if not Path(entry.pw_dir).is_dir():  # its state folder was deleted by hand
        state.user_home.mkdir(parents=True, exist_ok=True)
        os.chown(state.user_home, entry.pw_uid, entry.pw_gid)
        processes.run(
            [processes.tool("usermod"), "--home", str(state.user_home), USER], f"user {USER}"
        )
    processes.run(
        [
            processes.tool("usermod"),
            "--append",
            "--groups",
            engine.GROUP,
            "--password",
            "*",
            "--shell",
            "/bin/bash",
            USER,
        ],
        f"user {USER}",
    )


def remove_user(state: State) -> None:
    """Remove the ordinary user, when it is this state folder's and not another fleet's."""
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        return
    if Path(entry.pw_dir) == state.user_home:
        processes.end(processes.matching(lambda folder: folder.stat().st_uid == entry.pw_uid), 2)
        processes.run([processes.tool("userdel"), USER], f"user {USER}")


def ensure_sshd(host: Host) -> None:
    """Start the host's sshd unless it runs, on the remembered port or, when taken, another one."""
    if sshd_runs(host):
        return
    stop_sshd(host)
    key = host.root / "ssh_host_ed25519_key"
    if not key.exists():
        _keygen(key, host.name)
    public = host.state.client_key.with_suffix(".pub").read_text()
    write_file(host.root / "authorized_keys", public)
    for user in ("root", USER):
        entry, home = pwd.getpwnam(user), host.home(user)
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        os.chown(home, entry.pw_uid, entry.pw_gid)
    config = host.root / "sshd_config"
    write_file(config, _sshd_config(host, key, host.choose_port()))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it; gone after a reboot
    processes.start(host, "sshd", [processes.tool("sshd"), "-D", "-e", "-f", str(config)])
    if not processes.wait_until(lambda: sshd_runs(host) or not _remembered(host), 15):
        raise FleetError(f"{host.name}: sshd does not answer; {processes.last_words(host, 'sshd')}")
    if not _remembered(host):
        raise FleetError(f"{host.name}: sshd ended; {processes.last_words(host, 'sshd')}")


def sshd_runs(host: Host) -> bool:
    """It is the process that `up` started, and it greets."""
    if not _remembered(host):
        return False
    try:
        with socket.create_connection(("127.0.0.1", host.port), timeout=10) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def stop_sshd(host: Host) -> None:
    """End the sshd, its sessions and what these left running."""
    process = processes.remembered(host, "sshd")
    mark = f"{MARK}={host.root}".encode()
    marked = processes.matching(
        lambda folder: mark in (folder / "environ").read_bytes().split(b"\0")
    )
    tree = processes.with_descendants(process) if process else []
    processes.end({*tree, *marked}, grace=3)


def write_client_files(state: State) -> None:
    """ssh_config with loop1 (root) and loop1-user (the ordinary user) …, and known_hosts."""
    blocks, known = [], []
    for host in state.hosts():
        public = (host.root / "ssh_host_ed25519_key.pub").read_text().split()
        known.append(f"[127.0.0.1]:{host.port} {public[0]} {public[1]}")
        for alias, user in ((host.name, "root"), (f"{host.name}-user", USER)):
            blocks.append(f"""Host {alias}
  HostName 127.0.0.1
  Port {host.port}
  User {user}
  IdentityFile {state.client_key}
  IdentitiesOnly yes
  UserKnownHostsFile {state.known_hosts}
""")
    write_file(state.known_hosts, "\n".join(known) + "\n")
    write_file(state.ssh_config, "\n".join(blocks))


def _sshd_config(host: Host, key: Path, port: int) -> str:
    """One sshd's settings.

    StrictModes off, because the keys may lie below a folder like /tmp. HOME is the host's own, so
    that two hosts do not find each other's files in a home folder they would share.
    """
    docker = f"DOCKER_HOST={host.docker_url} {MARK}={host.root}"
    return f"""ListenAddress 127.0.0.1
Port {port}
HostKey {key}
PidFile none
AuthorizedKeysFile {host.root}/authorized_keys
AllowUsers root {USER}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM yes
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
Match User root
  SetEnv {docker} HOME={host.home("root")}
Match User {USER}
  SetEnv {docker} HOME={host.home(USER)}
"""


def _remembered(host: Host) -> bool:
    return processes.remembered(host, "sshd") is not None


def _keygen(path: Path, comment: str) -> None:
    processes.run(
        [
            processes.tool("ssh-keygen"),
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            comment,
            "-f",
            str(path),
        ],
        f"key {path}",
    )
