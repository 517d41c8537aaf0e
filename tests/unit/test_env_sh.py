"""env/env.sh under real bash: toolkits are found, nothing is clobbered, no shell option breaks it.

The machine's own toolkits do not show: every case runs in a private mount namespace with its own
/opt and /usr/local (as root), or names its toolkit in a variable.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ENV_SH = Path(__file__).resolve().parents[2] / "env" / "env.sh"
BASE = {"PATH": "/usr/bin:/bin"}
MACA = ["bin", "lib", "mxgpu_llvm/bin", "mxgpu_llvm/lib", "tools/cu-bridge/bin"]
SOURCE = f"source {shlex.quote(str(ENV_SH))}"


def exported(script: str, environment: dict[str, str]) -> dict[str, str]:
    """What a program started after `script` gets; the script itself may print nothing."""
    done = subprocess.run(
        ["bash", "-c", f"{script}\nenv -0"], env=environment, capture_output=True, check=True
    )
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    found = {name: value for name, _, value in pairs}
    assert done.stderr == b""
    return {name: found[name] for name in found if name not in ("_", "PWD", "OLDPWD", "SHLVL")}


def toolkit(folder: Path, parts: list[str]) -> str:
    for part in parts:
        (folder / part).mkdir(parents=True)
    return str(folder)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "options", ["", "set -eu", "set -euo pipefail", "set -f", "shopt -s failglob"]
)
def test_maca_named_by_variable(tmp_path: Path, options: str, times: int) -> None:
    maca = toolkit(tmp_path / "maca", MACA)
    given = {**BASE, "MACA_PATH": maca, "LD_LIBRARY_PATH": "/mine"}
    found = exported("\n".join([options, *[SOURCE] * times]), given)
    bridge = f"{maca}/tools/cu-bridge"
    assert found == {
        "MACA_PATH": maca,
        "MACA_CLANG_PATH": f"{maca}/mxgpu_llvm/bin",
        "CUCC_PATH": bridge,
        "CUDA_HOME": bridge,
        "CUDA_PATH": bridge,
        "PATH": f"/usr/bin:/bin:{maca}/bin:{maca}/mxgpu_llvm/bin:{bridge}/bin",
        "LD_LIBRARY_PATH": f"/mine:{maca}/lib:{maca}/mxgpu_llvm/lib",
    }


def test_what_is_set_wins(tmp_path: Path) -> None:
    maca = toolkit(tmp_path / "maca", MACA)
    mine = {"MACA_CLANG_PATH": "/c", "CUCC_PATH": "/b", "CUDA_HOME": "/h", "CUDA_PATH": "/p"}
    found = exported(SOURCE, {**BASE, "MACA_PATH": maca, **mine})
    assert {name: found[name] for name in mine} == mine


def test_options_and_helpers_of_the_shell_are_left_alone(tmp_path: Path) -> None:
    script = f"set -eu; before=$-; {SOURCE}; test $before = $-; compgen -A function && exit 1 || :"
    exported(script, {**BASE, "CUDA_HOME": toolkit(tmp_path / "cuda", ["bin", "lib64"])})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: folders of its own at /opt, /usr/local")
@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ([], {}),
        (
            ["/usr/local/cuda-9.2/lib64", "/usr/local/cuda-12.4/lib64"],
            {
                "CUDA_HOME": "/usr/local/cuda-12.4",
                "CUDA_PATH": "/usr/local/cuda-12.4",
                "LD_LIBRARY_PATH": "/usr/local/cuda-12.4/lib64",
            },
        ),
        (
            ["/usr/local/cuda/bin", "/usr/local/cuda-99/lib64", "/usr/local/nvidia/lib64"],
            {
                "CUDA_HOME": "/usr/local/cuda",
                "CUDA_PATH": "/usr/local/cuda",
                "PATH": "/usr/bin:/bin:/usr/local/cuda/bin",
                "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
            },
        ),
        (
            ["/opt/maca-3.0.0/lib", "/opt/maca-10.1.0/lib", "/usr/local/cuda/lib64"],
            {"MACA_PATH": "/opt/maca-10.1.0", "LD_LIBRARY_PATH": "/opt/maca-10.1.0/lib"},
        ),
        (
            ["/opt/maca/lib", "/opt/maca-9/lib", "/opt/mxdriver/bin"],
            {
                "MACA_PATH": "/opt/maca",
                "PATH": "/usr/bin:/bin:/opt/mxdriver/bin",
                "LD_LIBRARY_PATH": "/opt/maca/lib",
            },
        ),
    ],
    ids=["cpu", "newest-cuda", "plain-cuda-first", "maca-before-cuda", "maca-driver"],
)
def test_toolkits_are_found(folders: list[str], expected: dict[str, str]) -> None:
    copy = f"source <(printf %s {shlex.quote(ENV_SH.read_text())})"  # readable below any mount
    script = "\n".join(
        [
            "set -euo pipefail",
            "mount -t tmpfs none /opt; mount -t tmpfs none /usr/local",
            *[f"mkdir -p {folder}" for folder in folders],
            copy,
            "env -0",
        ]
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], env=BASE, capture_output=True, check=True
    )
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    found = {name: value for name, _, value in pairs}
    shell_own = {"_": found["_"], "PWD": found["PWD"], "SHLVL": found["SHLVL"]}
    assert found == {**BASE, **expected, **shell_own}
