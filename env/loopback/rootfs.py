"""The containers' root file system: the machine's own release, made once by debootstrap.

The same release as the machine, because the containers run the machine's Python environment and
so need its C library and, for a virtual environment on /usr/bin/python3, the same Python.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import processes
from host import FleetError, State, UnfitError

PACKAGES = ("python3", "procps")
FALLBACK_MIRRORS = {
    "debian": "http://deb.debian.org/debian",
    "ubuntu": "http://archive.ubuntu.com/ubuntu",
}
# Not needed in the containers; they only make every import slower.
LEFT_OUT = (
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./var/log/*",
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./dev/*",
    "./proc/*",
    "./sys/*",
)


def ensure_tar(state: State) -> Path:
    """The tar of the root file system, from the cache or made now (about a minute, by network)."""
    system, release = _release()
    arch = processes.run(["/usr/bin/dpkg", "--print-architecture"], "architecture").strip()
    digest = hashlib.sha256(" ".join((*PACKAGES, *LEFT_OUT)).encode()).hexdigest()[:8]
    path = state.cache / f"rootfs-{system}-{release}-{arch}-{digest}.tar"
    if not path.exists():
        state.cache.mkdir(exist_ok=True)
        for stale in state.cache.glob("build-*"):  # what a killed `up` left
            _remove(stale)
        build = Path(tempfile.mkdtemp(prefix="build-", dir=state.cache))
        try:
            _debootstrap(build / "root", release, _mirror(system, release), build / "log")
            _pack(build / "root", build / "tar")
            (build / "tar").replace(path)
        finally:
            _remove(build)
    return path


def _release() -> tuple[str, str]:
    """Distribution and code name as /etc/os-release has them: debian bookworm."""
    values = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        values[key] = value.strip("\"'")
    system, release = values.get("ID", ""), values.get("VERSION_CODENAME", "")
    if system not in FALLBACK_MIRRORS or not release:
        raise UnfitError(
            f"/etc/os-release: {system or 'unknown system'} {release}: "
            "the loopback fleet is made for Debian and Ubuntu"
        )
    return system, release


def _mirror(system: str, release: str) -> str:
    """The mirror that this machine's apt uses for its release."""
    listed = processes.run(
        [
            "/usr/bin/apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Created-By: Packages",
        ],
        "apt's sources",
    )
    for line in listed.splitlines():
        uri, name, component = [*line.split(" "), "", ""][:3]
        if name == release and component == "main" and uri.startswith(("http:", "https:", "file:")):
            return uri
    return FALLBACK_MIRRORS[system]


def _debootstrap(root: Path, release: str, mirror: str, log: Path) -> None:
    environment = processes.clean_environment()
    proxy = processes.run(
        ["/usr/bin/apt-config", "shell", "P", "Acquire::http::Proxy"], "apt's proxy"
    ).strip()
    if proxy.startswith("P='http"):
        environment.setdefault("http_proxy", proxy[len("P='") : -1])
    argv = [
        processes.tool("debootstrap"),
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        release,
        str(root),
        mirror,
    ]
    print(f"making the containers' root file system: {' '.join(argv[1:])}", file=sys.stderr)
    with log.open("wb") as output:
        work = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        began = shown = time.monotonic()
        while work.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                print(f"  {shown - began:3.0f} s  {_last_line(log)}", file=sys.stderr, flush=True)
    if work.returncode:
        raise FleetError(f"debootstrap of {release} from {mirror} failed: {_last_line(log)}")


def _pack(root: Path, path: Path) -> None:
    excludes = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    processes.run(
        [
            processes.tool("tar"),
            "--numeric-owner",
            "--one-file-system",
            *excludes,
            "-C",
            str(root),
            "-cf",
            str(path),
            ".",
        ],
        "packing the root file system",
    )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:70] if lines else "starting"


def _remove(build: Path) -> None:
    processes.unmount_below(build)  # debootstrap mounts /proc and /sys in there
    if os.path.lexists(build):
        shutil.rmtree(build)
