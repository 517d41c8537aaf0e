"""A host's Docker engine and its container.

The engine is a containerd and a dockerd of its own: dockerd would otherwise share the machine's
containerd, where one is running. No bridge and no firewall rule: the containers have no network,
and nothing of the machine's own Docker is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import processes
from host import CONTAINER, FleetError, Host, UnfitError, absolute, write_file

GROUP = "docker"
LABEL = "mxfleet.loopback"
# Also reaps orphans, as an init has to: bash collects every child that ends.
PLAIN_INIT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


@dataclass(frozen=True)
class PythonEnvironment:
    """The Python that the containers are to see, and the folders it is made of."""

    python: Path
    folders: tuple[Path, ...]

    @classmethod
    def inspect(cls, python: Path, binds: list[Path]) -> PythonEnvironment:
        """FleetError when it is missing, has no torch, or an extra folder does not exist."""
        python = absolute(python)
        hint = "make one with `make setup`, or name another with --python"
        if not os.access(python, os.X_OK):
            raise UnfitError(f"{python}: no such Python; {hint}")
        code = (
            "import importlib.util, sys; print(sys.prefix); print(sys.base_prefix); "
            "print(importlib.util.find_spec('torch') is not None)"
        )
        prefix, base, torch = processes.run([str(python), "-c", code], str(python)).split("\n")[:3]
        if torch != "True":
            raise UnfitError(f"{python}: torch is not installed there; {hint}")
        folders = [Path(prefix), Path(base), Path(base).resolve()]
        # The chain of links from the environment to the real interpreter has to hold as well.
        link = python
        while link.is_symlink():
            link = Path(os.path.normpath(link.parent / link.readlink()))
            folders.append(link.parent.parent)
        for bind in binds:
            if not bind.is_dir():
                raise FleetError(f"--bind {bind}: no such folder")
            folders.append(absolute(bind))
        return cls(python, _outermost(folders))

    def mounts(self) -> list[str]:
        return [f"{folder}:{folder}:ro" for folder in self.folders]

    def identity(self) -> list[str]:
        """Changes when a folder was made anew: a mount would go on showing the deleted one."""
        return [
            f"{folder}@{folder.stat().st_dev}.{folder.stat().st_ino}" for folder in self.folders
        ]


def _outermost(folders: list[Path]) -> tuple[Path, ...]:
    """Without duplicates, without what lies in another, without what the root file system has."""
    wanted = {folder for folder in folders if folder not in (Path("/"), Path("/usr"))}
    return tuple(sorted(one for one in wanted if not wanted & set(one.parents)))


def docker(host: Host, *arguments: str, timeout: float = 120) -> str:
    """Run the docker command against the host's engine, give its output."""
    return processes.run(
        [processes.tool("docker"), "-H", host.docker_url, *arguments],
        f"{host.name}: docker {arguments[0]}",
        timeout,
    )


def answers(host: Host) -> bool:
    try:
        docker(host, "version", timeout=10)
    except FleetError:
        return False
    return True


def engine_runs(host: Host) -> bool:
    both = all(processes.remembered(host, name) for name in ("containerd", "dockerd"))
    return both and answers(host)


def container_state(host: Host) -> str:
    """running, exited, … as Docker says it; `missing`; `unknown` when the engine is not up."""
    if not answers(host):
        return "unknown"
    try:
        return docker(host, "inspect", "--format", "{{.State.Status}}", CONTAINER).strip()
    except FleetError:
        return "missing"


def ensure_engine(host: Host) -> None:
    """Start the engine unless it runs; what a crash or a reboot left is cleared away first."""
    if engine_runs(host):
        return
    stop_engine(host)
    host.run.mkdir()
    address = host.run / "containerd.sock"
    config = host.root / "containerd.toml"
    write_file(
        config,
        f"""version = 2
root = "{host.engine}/containerd"
state = "{host.run}/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "{address}"
""",
    )
    settings = {
        "data-root": str(host.engine / "docker"),
        "exec-root": str(host.run / "docker"),
        "pidfile": str(host.run / "dockerd.pid"),
        "hosts": [host.docker_url],
        "group": GROUP,
        "containerd": str(address),
        "bridge": "none",
        "iptables": False,
        "ip-forward": False,
        "ip-masq": False,
        "userland-proxy": False,
    }
    daemon = host.root / "daemon.json"
    write_file(daemon, json.dumps(settings, indent=1))
    processes.start(host, "containerd", [processes.tool("containerd"), "--config", str(config)])
    _await(host, "containerd", address.exists)
    # Its own settings file: /etc/docker/daemon.json is the machine's engine's.
    processes.start(host, "dockerd", [processes.tool("dockerd"), "--config-file", str(daemon)])
    _await(host, "dockerd", lambda: answers(host))


def _await(host: Host, name: str, ready: processes.Check) -> None:
    def settled() -> bool:
        return ready() or processes.remembered(host, name) is None

    if not processes.wait_until(settled, 60) or not ready():
        raise FleetError(f"{host.name}: {name} did not come up; {processes.last_words(host, name)}")


def ensure_container(host: Host, tar: Path, environment: PythonEnvironment) -> None:
    """Have the container running, made from `tar`, with the environment's folders in it."""
    image = f"mxfleet-loopback:{hashlib.sha256(tar.name.encode()).hexdigest()[:12]}"
    init = ["--init", image, "sleep", "infinity"]
    if processes.which("docker-init") is None:
        init = [image, "bash", "-c", PLAIN_INIT]
    mounts = [*environment.mounts(), f"{host.share}:/share"]
    wanted = json.dumps([init, mounts, environment.identity()])
    label = hashlib.sha256(wanted.encode()).hexdigest()[:16]
    state = container_state(host)
    if state != "missing":
        form = f'{{{{index .Config.Labels "{LABEL}"}}}}'
        if docker(host, "inspect", "--format", form, CONTAINER).strip() == label:
            if state != "running":
                docker(host, "restart", "-t", "1", CONTAINER)
            return
        docker(host, "rm", "--force", CONTAINER)
    if not docker(host, "images", "--quiet", image).strip():
        docker(
            host,
            "import",
            "--change",
            "ENV LANG=C.UTF-8",
            "--change",
            f"ENV PATH={processes.SEARCH}",
            str(tar),
            image,
            timeout=600,
        )
    volumes = [word for mount in mounts for word in ("--volume", mount)]
    docker(
        host,
        "run",
        "--detach",
        "--name",
        CONTAINER,
        "--hostname",
        host.name,
        "--network",
        "none",
        "--label",
        f"{LABEL}={label}",
        *volumes,
        *init,
    )
    # A Python below /usr/local finds its own shared library only through the loader's cache.
    docker(host, "exec", CONTAINER, "ldconfig")
    docker(host, "exec", CONTAINER, str(environment.python), "-c", "import torch")


def stop_container(host: Host) -> None:
    docker(host, "stop", "-t", "1", CONTAINER)


def stop_engine(host: Host) -> None:
    """End the engine with everything in its containers, also what a killed engine left running."""
    for name in ("dockerd", "containerd"):
        process = processes.remembered(host, name)
        if process:
            processes.end([process])
    address = os.fsencode(host.run / "containerd.sock")
    shims = processes.matching(
        lambda folder: address in (folder / "cmdline").read_bytes().split(b"\0")
    )
    containers = host.engine / "docker" / "containers"
    ids = [entry.name for entry in containers.iterdir()] if containers.exists() else []
    inside = processes.matching(
        lambda folder: any(one in (folder / "cgroup").read_text() for one in ids)
    )
    processes.end([*shims, *inside], grace=0)
    for folder in (host.engine, host.run):
        processes.unmount_below(folder)
    if host.run.exists():
        shutil.rmtree(host.run)
    host.docker_socket.unlink(missing_ok=True)


def remove_engine(host: Host) -> None:
    """Remove images, containers and logs of a stopped engine; the share and the keys stay."""
    shutil.rmtree(host.engine, ignore_errors=True)
    for name in ("dockerd", "containerd"):
        (host.root / f"{name}.log").unlink(missing_ok=True)
