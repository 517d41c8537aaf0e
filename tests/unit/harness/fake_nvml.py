"""Builds of ``fake_nvml.c``, and the script of one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
GPU = {"kind": "cuda", "name": "NVIDIA H200", "index": 0, "uuid": "GPU-fake"}

Script = Callable[..., None]


def build(folder: Path, *defines: str) -> Path:
    """Compile the library; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the scripted NVML with")
    library = folder / f"libnvidia-ml{''.join(defines)}.so"
    if not library.exists():
        flags = [f"-D{name}" for name in defines]
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-w", *flags, "-o", str(library), str(SOURCE)],
            check=True,
        )
    return library


def scripted(folder: Path, monkeypatch: pytest.MonkeyPatch, library: Path | str) -> Script:
    """Put ``library`` in the place of NVML; the result tells it what to answer."""
    from harness import nvml

    script = folder / "script"
    monkeypatch.setattr(nvml, "LIBRARY", str(library))
    monkeypatch.setenv("FAKE_NVML", str(script))

    def tell(**answers: int) -> None:
        lines = [f"{key.replace('__', ':')} {value}\n" for key, value in answers.items()]
        script.write_text("".join(lines))

    tell()
    return tell
