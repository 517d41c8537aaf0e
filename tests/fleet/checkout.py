"""An established checkout on both hosts of the fleet, the same as `established/` below this folder.

It knows nothing of mxfleet and lies in a folder of the host that the container has mounted (owned
by the ordinary login there), or only inside the container.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .workbench import HERE, Bench, workbench

if TYPE_CHECKING:
    from .conftest import LoopbackFleet

CHECKOUT = HERE / "established"
SCRIPT = "mcoplib_mxbenchmark_ops.py"
OLD_ROWS = "op_name,Device\nsomething,0\n"
# Where on the host's side a fresh checkout differs from ours: somebody works there.
THEIRS = '    "est_axpy",  # tuned by hand\n'


everywhere = pytest.mark.parametrize("site", ["share", "inside"], indirect=True)


@dataclass
class Site:
    """The checkout on both hosts; paths are those in the container."""

    bench: Bench
    parent: str
    shared: bool

    @property
    def workdir(self) -> str:
        return f"{self.parent}/benchmark"

    def files(self, host: str) -> dict[str, str]:
        """Every file of the checkout with owner, mode and hash; without what locking leaves."""
        listing = self.bench.fleet.in_container(
            host,
            *("find", self.parent, "-type", "f", "-not", "-name", ".mxfleet-lock"),
            *("-printf", "%U:%G %m ", "-exec", "sha256sum", "{}", ";"),
        ).stdout.decode()
        rows = [line.split() for line in listing.splitlines()]
        return {
            path.removeprefix(f"{self.parent}/"): f"{owner} {mode} {digest[:12]}"
            for owner, mode, digest, path in rows
        }

    def read(self, host: str, name: str) -> str:
        path = f"{self.workdir}/{name}"
        return self.bench.fleet.in_container(host, "cat", path).stdout.decode()

    def write(self, host: str, name: str, text: str) -> None:
        path = f"{self.workdir}/{name}"
        self.bench.fleet.in_container(host, "tee", path, input=text.encode())


def lay_out(fleet: LoopbackFleet, host: str, parent: str, shared: bool) -> None:
    """Put a fresh checkout on a host, with results and an edit that are the host's own."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / Path(parent).name
        shutil.copytree(CHECKOUT, folder)
        statistics = folder / "benchmark" / "statistics"
        statistics.mkdir()
        (statistics / "mcoplib_ops_performance_C500.csv").write_text(OLD_ROWS)
        script = folder / "benchmark" / SCRIPT
        script.write_text(script.read_text().replace('    "est_axpy",\n', THEIRS))
        (folder / "benchmark" / "config" / "est_axpy.json").chmod(0o664)
        if not shared:
            fleet.docker(host, "cp", str(folder), f"{fleet.container}:{Path(parent).parent}")
            return
        place = fleet.share(host) / Path(parent).relative_to("/share")
        shutil.copytree(folder, place)
        for path in (place, *place.rglob("*")):
            shutil.chown(path, fleet.user, fleet.user)


@contextmanager
def laid_out(fleet: LoopbackFleet, folder: Path, shared: bool) -> Iterator[Site]:
    """A working folder like the checkout, and fresh checkouts that go away with it."""
    parent = f"{'/share' if shared else '/opt'}/ops-{secrets.token_hex(4)}"
    with workbench(fleet, folder, suite=CHECKOUT) as bench:
        bench.inventory(workdir=f"{parent}/benchmark")
        try:
            for host in fleet.hosts:
                lay_out(fleet, host, parent, shared)
            yield Site(bench, parent, shared)
        finally:
            for host in fleet.hosts:
                fleet.in_container(host, "rm", "-rf", parent, check=False)
