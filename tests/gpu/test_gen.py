"""Generated benchmarks on a real GPU: each verifies and measures as ``gen op`` wrote it.

Three libraries, each with its own reason to skip: the CUDA sources of the trees themselves, built
here (nvcc and ninja); vLLM where it is installed, for operators whose schema there is the trees';
and the Triton function of the trees (triton). All are run by ``mxfleet run`` on this machine, with
the sizes that were generated.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "author"))

from authored import AUTHORED, TREES, Authored
from authored_work import Work
from harness_tree import Tree

pytestmark = pytest.mark.gpu

OPS = TREES / "mcoplib" / "op"
# The package's module, its sources, further folders of headers.
BUILDS: dict[str, tuple[list[Path], list[Path]]] = {
    "_C": (
        [
            *sorted((OPS / "vllm").glob("*.c[up]*")),
            *sorted((OPS / "vllm" / "attention").glob("*.cu")),
            *sorted((OPS / "vllm" / "quantization").rglob("*.cu")),
        ],
        [],
    ),
    "_moe_C": (sorted((OPS / "vllm" / "moe").glob("*.c[up]*")), []),
    "sgl_kernel": (
        [
            *sorted((OPS / "sglang" / "csrc").rglob("*.cu")),
            OPS / "sglang" / "csrc" / "common_extension.cc",
        ],
        [OPS / "sglang" / "include"],
    ),
    "op": (sorted(OPS.glob("*.c[up]*")), []),
}
BUILD = """
import sys
from torch.utils import cpp_extension

name, folder, includes, *sources = sys.argv[1:]
cpp_extension.load(
    name=name,
    sources=sources,
    extra_include_paths=includes.split(":") if includes else [],
    build_directory=folder,
    is_python_module=False,
)
"""
# Prints the schema of an operator of vLLM's, read where it is registered.
SCHEMA = """
import sys, torch
sys.path.insert(0, sys.argv[3])
from harness import providers
namespace, name = sys.argv[1:3]
capability = lambda: torch.cuda.get_device_capability()
for file in providers.locate("vllm", namespace, capability):
    torch.ops.load_library(str(file))
print(getattr(getattr(torch.ops, namespace), name).default._schema)
"""


def _of(tree: str) -> list[Authored]:
    return [authored for authored in AUTHORED if authored.tree == tree]


def _measured(work: Work, authored: Authored) -> dict[str, Any]:
    """Generate, run, and the one record there must be."""
    made = work.generate(authored)
    assert (work.benchmark / authored.files()[1]).is_file(), made.out + made.err
    records = work.measure(authored)
    assert len(records) == 1
    return records[0]


def _hold(record: dict[str, Any]) -> None:
    assert record["status"] == "PASSED", record.get("error") or record["verification"]
    assert record["verification"]["passed"] is True
    assert record["device"]["kind"] != "cpu"
    assert record["timers"]["cold_gpu"]["median"] > 0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a package ``mcoplib`` made of the trees' own CUDA sources."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    for program in ("nvcc", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here, and the trees' kernels are built")
    folder = tmp_path_factory.mktemp("built")
    package = folder / "mcoplib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, (sources, includes) in BUILDS.items():
        place = folder / name
        place.mkdir()
        words = [name, str(place), ":".join(map(str, includes)), *map(str, sources)]
        done = subprocess.run(
            [sys.executable, "-c", BUILD, *words], capture_output=True, text=True, timeout=1800
        )
        made = place / f"{name}.so"
        # An error of the compiler is a fault of the trees; an unloadable module is said by runs.
        assert made.is_file(), done.stdout[-4000:] + done.stderr[-4000:]
        shutil.copy(made, package / made.name)
    return folder


@pytest.fixture
def work_with(gpu_tree: Tree, tmp_path: Path) -> Callable[[Path | None], Work]:
    """A working folder whose jobs see the GPU, and a folder of Python packages."""

    def make(packages: Path | None) -> Work:
        env = {} if packages is None else {"PYTHONPATH": str(packages)}
        return Work(tmp_path / "work").lay_out(env)

    return make


@pytest.mark.parametrize("authored", _of("mcoplib"), ids=str)
def test_kernels_built_from_the_sources_that_were_read(
    work_with: Callable[[Path | None], Work], built: Path, authored: Authored
) -> None:
    _hold(_measured(work_with(built), authored))


@pytest.mark.parametrize("authored", [a for a in AUTHORED if a.framework == "vllm"], ids=str)
def test_kernels_of_vllm(work_with: Callable[[Path | None], Work], authored: Authored) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    work = work_with(None)
    _same_arguments(authored, work.benchmark)
    # The trees' sources say mcoplib; the library at hand serves the same namespaces.
    inventory = work.folder / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("hosts:", "  library: vllm\nhosts:"))
    _hold(_measured(work, authored))


def _same_arguments(authored: Authored, benchmark: Path) -> None:
    """Skip where the installed vLLM has the operator not at all, or with other arguments."""
    import torch

    from orchestrator.author.locate import find_operators

    (ours,) = find_operators(authored.operator, [authored.source], authored.test, "vllm")
    done = subprocess.run(
        [sys.executable, "-c", SCHEMA, ours.namespace, ours.name, str(benchmark)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"vLLM has no torch.ops.{ours.namespace}.{ours.name}: {done.stderr[-200:]}")
    theirs = torch._C.parse_schema(done.stdout.strip())
    if len(theirs.arguments) != len(ours.arguments):
        pytest.skip(f"this vLLM has another schema: {theirs}")


@pytest.mark.parametrize("authored", _of("triton"), ids=str)
def test_a_triton_function(work_with: Callable[[Path | None], Work], authored: Authored) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    _hold(_measured(work_with(authored.source), authored))


@pytest.mark.parametrize("authored", _of("torchlib"), ids=str)
def test_operators_in_plain_torch(
    work_with: Callable[[Path | None], Work], authored: Authored
) -> None:
    _hold(_measured(work_with(authored.source), authored))
