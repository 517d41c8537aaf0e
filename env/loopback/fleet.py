#!/usr/bin/env python3
"""The loopback fleet: several hosts on this one machine, each with a real sshd and Docker engine.

    fleet.py up 2        bring up loop1 and loop2, print the inventory to use
    fleet.py status      what runs
    fleet.py stop loop1 sshd|engine|container    make a host fail; the next `up` repairs it
    fleet.py inventory   print the inventory again
    fleet.py down        end everything; --purge also removes keys, caches and the user

Every host has its own sshd on 127.0.0.1 and its own dockerd with a running container `vllm-dsv4`;
within an ssh session plain `docker` reaches that host's engine and nobody else's. The container's
root file system is made with debootstrap, so no registry is needed. It sees the Python environment
of this machine through read-only mounts, and a folder of the host at /share. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# ruff: noqa: E402  (this folder is shipped as data, so no import may leave a cache in it)
sys.dont_write_bytecode = True

import engine
import login
import processes
import rootfs
from host import CONTAINER, FleetError, Host, State, UnfitError, default_state

NEEDED = (
    # command, package that has it (Debian and Ubuntu)
    ("sshd", "openssh-server"),
    ("ssh-keygen", "openssh-client"),
    ("dockerd", "docker.io"),
    ("docker", "docker.io"),
    ("containerd", "containerd"),
    ("debootstrap", "debootstrap"),
    ("useradd", "passwd"),
    ("umount", "mount"),
)


def default_python() -> Path:
    """The Python of the checkout's virtual environment; without one, that which runs this."""
    own = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "python"
    return own if own.exists() else Path(sys.executable)


def check_machine() -> None:
    """Raise UnfitError unless this machine can carry a fleet."""
    check_root()
    missing = [(name, package) for name, package in NEEDED if processes.which(name) is None]
    if missing:
        names = ", ".join(name for name, _ in missing)
        packages = " ".join(dict.fromkeys(package for _, package in missing))
        raise UnfitError(f"missing: {names}; install with: apt-get install -y {packages}")


def check_root() -> None:
    if os.geteuid() != 0:
        raise UnfitError("the loopback fleet needs root (sshd, Docker engines): run it with sudo")


def up(state: State, count: int, python: Path, binds: list[Path]) -> None:
    """Bring up at least `count` hosts; what runs already is kept."""
    check_machine()
    environment = engine.PythonEnvironment.inspect(python, binds)
    with state.locked():
        image = rootfs.ensure_tar(state)
        size = max(count, state.size())
        state.save(size, python)
        login.ensure_keys(state)
        login.ensure_user(state)
        for host in state.hosts():
            host.create_folders()
            engine.ensure_engine(host)
            engine.ensure_container(host, image, environment)
            login.ensure_sshd(host)
            say(
                f"{host.name}: sshd on 127.0.0.1:{host.port}, engine {host.docker_url}, "
                f"container {CONTAINER} running"
            )
        login.write_client_files(state)
    print(inventory(state), end="")


def down(state: State, purge: bool) -> None:
    """End what `up` started and remove the engines' state; `purge` removes the rest too."""
    check_root()
    if not state.root.exists():
        say(f"nothing to end: {state.root} does not exist")
        return
    with state.locked():
        for host in state.all_hosts():
            login.stop_sshd(host)
            engine.stop_engine(host)
            engine.remove_engine(host)
            say(f"{host.name}: ended")
        state.forget_size()
        if purge:
            login.remove_user(state)
            processes.unmount_below(state.root)
            state.remove()
            say(f"removed {state.root}")


def stop(state: State, name: str, part: str) -> None:
    """End one part of one host, as a failing host would lose it."""
    check_root()
    with state.locked():
        named = [host for host in state.hosts() if host.name == name]
        if not named:
            known = ", ".join(host.name for host in state.hosts()) or "none"
            raise FleetError(f"{name}: no such host in {state.root}; there are: {known}")
        if part == "sshd":
            login.stop_sshd(named[0])
        elif part == "engine":
            engine.stop_engine(named[0])
        else:
            engine.stop_container(named[0])
    say(f"{name}: {part} stopped; `fleet.py up` brings it back")


def status(state: State) -> bool:
    """Print a line a host. True when there are hosts and everything of each of them runs."""
    hosts = state.hosts()
    if not hosts:
        print(f"no hosts (state: {state.root})")
    whole = bool(hosts)
    for host in hosts:
        parts = {
            "sshd": "up" if login.sshd_runs(host) else "down",
            "engine": "up" if engine.engine_runs(host) else "down",
            CONTAINER: engine.container_state(host),
        }
        whole &= parts == {"sshd": "up", "engine": "up", CONTAINER: "running"}
        shown = "  ".join(f"{name} {value}" for name, value in parts.items())
        print(f"{host.name}  127.0.0.1:{host.port}  {shown}")
    return whole


def inventory(state: State) -> str:
    """The inventory text for mxfleet; odd hosts log in as root, even ones as the ordinary user."""
    hosts = state.hosts()
    if not hosts:
        raise FleetError(f"no hosts in {state.root}: bring some up first (fleet.py up 2)")
    names = hosts[0].name if len(hosts) == 1 else f"loop[1-{len(hosts)}]"
    lines = [
        "defaults:",
        f"  ssh_config: {state.ssh_config}",
        f"  container: {CONTAINER}",
        f"  python: {state.python()}",
        "groups:",
        "  loopback:",
        f"    hosts: {names}",
        "hosts:",
    ]
    # They are one machine: with one folder for the locks their jobs would wait in turn.
    lines += [f"  {host.name}: {{user: {host.user}, lock_folder: {host.locks}}}" for host in hosts]
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """Progress goes to stderr: stdout is the inventory alone."""
    print(text, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= Host.MOST:
        raise argparse.ArgumentTypeError(f"between 1 and {Host.MOST} hosts, not {value}")
    return value


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="fleet.py", description="Several hosts with sshd and Docker on this one machine."
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--state",
        type=Path,
        default=default_state(),
        metavar="DIR",
        help="where everything is kept (default: %(default)s)",
    )
    commands = top.add_subparsers(dest="command", required=True)
    bring = commands.add_parser("up", parents=[common], help="bring hosts up, print the inventory")
    bring.add_argument("count", type=positive, metavar="N")
    bring.add_argument(
        "--python",
        type=Path,
        default=default_python(),
        metavar="PATH",
        help="a Python with torch, made visible in the containers (%(default)s)",
    )
    bring.add_argument(
        "--bind",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="one more folder to show read-only in the containers (name it at every `up`)",
    )
    end = commands.add_parser("down", parents=[common], help="end all hosts")
    end.add_argument("--purge", action="store_true", help="also remove keys, caches and the user")
    fail = commands.add_parser("stop", parents=[common], help="end one part of one host")
    fail.add_argument("host", metavar="HOST")
    fail.add_argument("part", choices=("sshd", "engine", "container"))
    commands.add_parser("status", parents=[common], help="what runs; exit 1 when not everything")
    commands.add_parser("inventory", parents=[common], help="print the inventory to use")
    return top


def main() -> int:
    """Exit code: 0 done, 1 failed or `status` found something down, 3 the machine is not fit."""
    os.umask(0o022)  # the ordinary login has to read what is written
    options = parser().parse_args()
    try:
        state = State(options.state)
        if options.command == "up":
            up(state, options.count, options.python, options.bind)
        elif options.command == "down":
            down(state, options.purge)
        elif options.command == "stop":
            stop(state, options.host, options.part)
        elif options.command == "status":
            return 0 if status(state) else 1
        else:
            print(inventory(state), end="")
    except OSError as error:
        say(f"fleet.py: {error.filename or 'the operating system'}: {error.strerror}")
        return 1
    except FleetError as error:
        say(f"fleet.py: {error}")
        return 3 if isinstance(error, UnfitError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
