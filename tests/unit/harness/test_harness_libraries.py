"""Operator libraries: which one serves a namespace, never two, and what the record says of it.

Every case runs in a fork, as under the front door, with real shared objects in packages that may
not be imported whole.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import exclusive, gate, libraries, loader, needs, providers, worker
from harness.engines import Settings
from harness.errors import TreeError
from harness_tree import Tree, make_tree, records_of
from library_kit import UNDEFINED, Builder, Library, Site

MCOPLIB = "try:\n    import mcoplib._C\nexcept ImportError:\n    pass\n"
VLLM = MCOPLIB.replace("mcoplib", "vllm")
OP = "try:\n    from mcoplib import op\nexcept ImportError:\n    pass\n"

RUNNER = """
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase
{imports}

class Scale_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.factor = config.get("factor", 2)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)

    def _data(self):
        print("[DATA]", flush=True)
        x = torch.linspace(1, 2, 64)
        return x, torch.empty_like(x)

    def prepare_and_get_launcher(self, dev_id, tc_s):
        x, out = self._data()
        return self.make_launcher(dev_id, {call}, x, out)

    def run_verification(self, dev_id):
        x, out = self._data()
        self.poison(out)
        {call}(x, out)
        return self.check_diff(out, x * self.factor)
"""


@dataclass(frozen=True)
class Got:
    """What became of a case: its outcome, or the error that stops the run, and what it printed."""

    outcome: dict[str, Any]
    fatal: dict[str, Any]
    parameters: dict[str, Any] | None
    ended: str | None
    out: str

    @property
    def status(self) -> str | None:
        return self.outcome.get("status")

    @property
    def message(self) -> str:
        return str((self.outcome.get("error") or {}).get("message") or self.fatal.get("message"))


@dataclass(frozen=True)
class Case:
    """Decides cases in a fork whose packages are those of ``site``."""

    site: Site
    tree: Tree
    log: Path

    def decide(
        self,
        imports: str = "",
        *,
        call: str = "torch.ops._C.scale",
        factor: float = 2,
        declared: Sequence[str] = (),
        runner: str = RUNNER,
        capability: tuple[int, int] | None = None,
    ) -> Got:
        self.tree.add("scale", "{}", runner.format(imports=imports, call=call))
        task = gate.Task(
            self.tree.root,
            "scale",
            loader.check_runner(self.tree.root, "scale"),
            {"dtype": "float32", "factor": factor},
            {"kind": "cpu", "name": "CPU", "index": 0, "uuid": None},
            "torch",
            Settings(samples=2, min_time=0.001),
            log=str(self.log),
            declared=providers.declared(declared),
        )

        def work(send: worker.Send) -> None:
            sys.path[:0] = [str(self.tree.root), str(self.site.folder)]
            # pytest's own streams do not write to the descriptors.
            sys.stdout = sys.stderr = self.log.open("a", buffering=1)
            if capability is not None:
                gate._capability = lambda task: capability
            gate.run(task, send)

        self.log.write_text("")
        ended = worker.call(work, limit=120)
        said: dict[str, Any] = {}
        for message in ended.messages:
            said.update(message)
        return Got(
            said.get("outcome", {}),
            said.get("fatal", {}),
            said.get("parameters"),
            ended.how(),
            self.log.read_text(errors="replace"),
        )


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def site(tmp_path: Path, builder: Builder) -> Site:
    return Site(tmp_path / "site", builder)


@pytest.fixture
def case(tmp_path: Path, site: Site) -> Case:
    return Case(site, make_tree(tmp_path / "benchmark"), tmp_path / "log")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_one_of_both_without_a_declaration_is_an_error_that_names_both(case: Case) -> None:
    case.site.mcoplib()
    case.site.vllm()
    got = case.decide()
    assert got.fatal["code"] == 3 and not got.outcome
    for word in ("torch.ops._C", "mcoplib (", "vllm (", "--library mcoplib", "--library vllm"):
        assert word in got.message
    assert "[DATA]" not in got.out


@pytest.mark.parametrize(
    ("imports", "declared", "served", "factor"),
    [
        pytest.param("", ["mcoplib"], "mcoplib", 2, id="declared"),
        pytest.param("", ["vllm"], "vllm", 3, id="the other declared"),
        pytest.param("", ["_C=vllm"], "vllm", 3, id="declared for the namespace"),
        pytest.param("", ["_C_cache_ops=vllm"], "vllm", 3, id="declared for its twin"),
        pytest.param("", ["mcoplib", "_C=vllm"], "vllm", 3, id="the namespace goes first"),
        pytest.param(MCOPLIB, [], "mcoplib", 2, id="the runner imports it"),
        pytest.param(VLLM, [], "vllm", 3, id="the runner imports the other"),
        pytest.param(MCOPLIB, ["vllm"], "vllm", 3, id="declared against a guarded import"),
        pytest.param(VLLM + MCOPLIB, [], "vllm", 3, id="the first import"),
        pytest.param("import mcoplib._C", [], "mcoplib", 2, id="an import without a guard"),
        pytest.param("from vllm import _C", ["vllm"], "vllm", 3, id="from the package"),
        pytest.param(MCOPLIB, ["sgl_kernel"], "mcoplib", 2, id="a declaration for another"),
    ],
)
def test_the_provider_of_a_namespace(
    case: Case, imports: str, declared: list[str], served: str, factor: int
) -> None:
    files = {"mcoplib": case.site.mcoplib(), "vllm": case.site.vllm()}
    got = case.decide(imports, declared=declared, factor=factor)
    assert (got.status, got.ended) == ("PASSED", None), got
    library = got.outcome["library"]
    assert (library["name"], library["path"]) == (served, str(files[served]))
    assert library["version"] == {"mcoplib": "1.2.3", "vllm": "0.22.0"}[served]
    assert library["sha256"] == sha256(files[served])
    # The first binary of vllm holds all that is called: the other one is not loaded.
    assert "binaries" not in library


def test_a_library_of_two_binaries_is_loaded_whole_where_a_name_is_not_to_be_read(
    case: Case,
) -> None:
    stable = case.site.vllm()
    got = case.decide("SPACE = torch.ops._C", declared=["vllm"], factor=3)
    assert (got.status, got.ended) == ("PASSED", None), got
    library = got.outcome["library"]
    first, rest = library["binaries"]
    assert first == {key: library[key] for key in first} and first["path"] == str(stable)
    assert Path(rest["path"]).name == "_C.abi3.so"
    assert rest["sha256"] == sha256(Path(rest["path"])) != first["sha256"]


def test_the_binary_that_holds_the_operator_is_the_records(case: Case) -> None:
    stable = case.site.vllm()
    rest = stable.with_name("_C.abi3.so")
    got = case.decide(call="torch.ops._C.other", factor=3)
    assert got.status == "PASSED", got
    library = got.outcome["library"]
    assert (library["path"], library["sha256"]) == (str(rest), sha256(rest))
    assert [b["path"] for b in library["binaries"]] == [str(stable), str(rest)]


def test_a_binary_that_serves_two_namespaces_is_one(case: Case) -> None:
    path = case.site.mcoplib(Library())
    cache = "getattr(torch.ops._C_cache_ops, 'other', None)"
    got = case.decide(call=f"(lambda x, out: (torch.ops._C.scale(x, out), {cache}))")
    assert (got.status, got.outcome["library"]["path"]) == ("PASSED", str(path)), got
    assert "binaries" not in got.outcome["library"]


def test_a_second_binary_that_the_runner_imports(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not loaded for it, as it calls nothing in it; the import is its own and is let through."""
    monkeypatch.setattr(exclusive, "try_to_load", None)  # there is nothing to try
    case.site.vllm()
    imports = "import vllm._C\nassert vllm._C.__file__.endswith('_C.abi3.so')"
    got = case.decide(imports, factor=3)
    assert got.status == "PASSED", got


@pytest.mark.parametrize("imports", ["", MCOPLIB, VLLM, MCOPLIB + VLLM])
def test_the_only_one_serves_whatever_the_runner_imports(case: Case, imports: str) -> None:
    case.site.vllm()
    got = case.decide(imports, factor=3)
    assert (got.status, got.outcome["library"]["name"]) == ("PASSED", "vllm"), got


@pytest.mark.parametrize("namespace", ["", "_C=", "_C_cache_ops="])
def test_a_path_serves_what_it_registers(case: Case, tmp_path: Path, namespace: str) -> None:
    case.site.mcoplib()
    case.site.vllm()
    own = tmp_path / "own build" / "kernels.so"
    case.site.builder.build(Library(factor=5, second="_C_cache_ops"), own)
    space = namespace.rstrip("=") or "_C"
    call = f"torch.ops.{space}.scale"
    got = case.decide(MCOPLIB, call=call, declared=[f"{namespace}{own}"], factor=5)
    assert got.status == "PASSED", got
    expected = {"name": "kernels", "version": None, "path": str(own), "sha256": sha256(own)}
    assert got.outcome["library"] == expected


def test_a_path_for_one_namespace_and_a_package_for_another(case: Case, tmp_path: Path) -> None:
    """Each calls its own function, although both export one of the same name."""
    own = case.site.builder.build(Library(factor=5), tmp_path / "own.so")
    case.site.mcoplib(Library("sgl_kernel"), stem="sgl_kernel")
    both = "(lambda x, out: (torch.ops.sgl_kernel.scale(x, out), torch.ops._C.scale(x * 1, out)))"
    got = case.decide(call=both, declared=[str(own), "mcoplib"], factor=5)
    assert got.status == "PASSED", got
    first = got.outcome["library"]
    assert [b["name"] for b in first["binaries"]] == ["own", "mcoplib"]
    back = "(lambda x, out: (torch.ops._C.scale(x, out), torch.ops.sgl_kernel.scale(x * 1, out)))"
    assert case.decide(call=back, declared=[str(own), "mcoplib"], factor=2).status == "PASSED"


def test_only_what_the_runner_needs_is_loaded(case: Case) -> None:
    case.site.mcoplib(Library(broken=UNDEFINED))
    case.site.mcoplib(Library("_moe_C"), stem="_moe_C")
    got = case.decide(call="torch.ops._moe_C.scale")
    assert got.status == "PASSED", got
    assert "binaries" not in got.outcome["library"]


@pytest.mark.parametrize(
    ("capability", "factor", "sub"), [((9, 0), 9, "sm90"), ((10, 0), 10, "sm100"), (None, 10, "")]
)
def test_sgl_kernel_has_a_build_for_the_device(
    case: Case, capability: tuple[int, int] | None, factor: int, sub: str
) -> None:
    case.site.sgl_kernel()
    call = "torch.ops.sgl_kernel.scale"
    got = case.decide(call=call, factor=factor, capability=capability)
    assert got.status == "PASSED", got
    assert sub in got.outcome["library"]["path"]


@pytest.mark.parametrize(
    ("imports", "call", "declared", "words"),
    [
        ("", "torch.ops._C.scale", [], ["torch.ops._C.scale", "mcoplib (_C.*so", "vllm ("]),
        ("", "torch.ops._C.scale", ["vllm"], ["looked for the declared vllm", "not installed"]),
        (MCOPLIB, "torch.ops._C.scale", [], ["torch.ops._C.scale", "not installed"]),
        ("", "torch.ops.nobodys.scale", [], ["nobodys", "--library nobodys=/path"]),
        (OP, "op.scale", [], ["mcoplib.op", "mcoplib (not installed)"]),
        ("import mcoplib.op as op", "op.scale", [], ["runners.py:4", "mcoplib"]),
        ("import mcoplib._C", "torch.ops._C.scale", [], ["runners.py:4", "mcoplib"]),
    ],
)
def test_absent_is_told_before_data_is_made(
    case: Case, imports: str, call: str, declared: list[str], words: list[str]
) -> None:
    case.site.folder.mkdir()
    got = case.decide(imports, call=call, declared=declared)
    assert (got.status, got.outcome["error"]["type"]) == ("UNAVAILABLE", "UNAVAILABLE"), got
    for word in words:
        assert word in got.message
    assert got.outcome["library"] is None
    assert "[DATA]" not in got.out
    if "runners.py" not in words[0]:
        assert str(case.site.folder) in got.message or "nobodys" in call
        assert got.parameters == {"dtype": "float32", "factor": 2}


def test_an_installed_package_without_the_binary(case: Case) -> None:
    place = case.site.package("mcoplib")
    got = case.decide()
    assert got.status == "UNAVAILABLE" and "[DATA]" not in got.out, got
    for word in (f"mcoplib (_C.*so: not in {place})", "vllm (", "not installed"):
        assert word in got.message


def test_an_operator_that_the_library_lacks(case: Case) -> None:
    path = case.site.mcoplib()
    got = case.decide(call="torch.ops._C.newer_scale")
    assert got.status == "UNAVAILABLE" and "[DATA]" not in got.out
    for word in ("torch.ops._C.newer_scale", "mcoplib 1.2.3", str(path)):
        assert word in got.message
    assert got.outcome["library"]["name"] == "mcoplib"


@pytest.mark.parametrize(
    "use",
    [
        "if self.factor == 7: torch.ops._C.scale(x, out)",
        "try: torch.ops._C.scale(x, out)\n        except AttributeError: pass",
        "self.factor == 7 and torch.ops._C.scale(x, out)",
    ],
)
def test_what_a_runner_can_do_without_is_not_asked_for(case: Case, use: str) -> None:
    runner = RUNNER.replace(
        "        {call}(x, out)\n", f"        {use}\n        {{call}}(x, out)\n"
    )
    case.site.folder.mkdir()
    got = case.decide(runner=runner, call="(lambda x, out: out.copy_(x * 2))")
    assert got.status == "PASSED", got


def test_a_runner_that_defines_its_operator_itself(case: Case) -> None:
    case.site.folder.mkdir()
    own = 'torch.library.define("_C::scale", "(Tensor x, Tensor(a!) out) -> ()")\n'
    own += '@torch.library.impl("_C::scale", "CPU")\ndef scale(x, out): out.copy_(x * 2)\n'
    got = case.decide(own)
    assert (got.status, got.outcome["library"]) == ("PASSED", None), got


@pytest.mark.parametrize(
    ("imports", "library", "words"),
    [
        ("", Library(broken=UNDEFINED), ["symbol_of_another_build"]),
        ("", Library(needs="libmine.so.4"), ["libmine.so.4"]),
        (MCOPLIB, Library(broken=UNDEFINED), ["symbol_of_another_build", "imported whole"]),
    ],
)
def test_what_is_there_but_broken_does_not_look_absent(
    case: Case, imports: str, library: Library, words: list[str]
) -> None:
    path = case.site.mcoplib(library)
    got = case.decide(imports)
    assert (got.status, got.outcome["error"]["type"]) == ("ERROR", "BrokenLibraryError"), got
    for word in [str(path), "does not load", *words]:
        assert word in got.message
    assert "[DATA]" not in got.out


def test_a_gpus_library_on_a_machine_without_one_is_unavailable(case: Case) -> None:
    path = case.site.mcoplib(Library(needs="libcudart.so.13"))
    got = case.decide()
    assert got.status == "UNAVAILABLE", got
    for word in (str(path), "libcudart.so.13", "CPU"):
        assert word in got.message


def test_a_file_that_is_no_library(case: Case, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("not ELF")
    got = case.decide(declared=[str(text)])
    assert got.outcome["error"]["type"] == "BrokenLibraryError"
    gone = case.decide(declared=[f"_C={tmp_path}/gone.so"])
    assert gone.fatal["code"] == 3 and "gone.so" in gone.message


def test_a_path_that_serves_another_namespace(case: Case, tmp_path: Path) -> None:
    own = case.site.builder.build(Library("_moe_C"), tmp_path / "own.so")
    got = case.decide(declared=[f"_C={own}"])
    assert got.outcome["error"]["type"] == "BrokenLibraryError"
    assert "registers no operator in it" in got.message


def test_a_package_that_prepares_what_its_binary_needs(case: Case, tmp_path: Path) -> None:
    """Loading the binary alone fails; the runner's own import, through the package, works."""
    path = case.site.mcoplib(Library(broken=UNDEFINED))
    helper = tmp_path / "helper.so"
    case.site.builder._run("-x", "c", "-shared", "-fPIC", "-o", str(helper), _helper(tmp_path))
    init = f"import ctypes\nctypes.CDLL({str(helper)!r}, mode=ctypes.RTLD_GLOBAL)\n"
    (path.parent / "__init__.py").write_text(init)
    got = case.decide(MCOPLIB)
    assert (got.status, got.outcome["library"]["path"]) == ("PASSED", str(path)), got


def _helper(folder: Path) -> str:
    source = folder / "helper.c"
    source.write_text("int symbol_of_another_build(void) { return 1; }\n")
    return str(source)


def test_a_library_written_in_python(case: Case) -> None:
    """A package's module may register operators itself; it is imported, then."""
    folder = case.site.package("mcoplib")
    (folder / "__init__.py").write_text("")
    (folder / "_C.py").write_text(
        'import torch\ntorch.library.define("_C::scale", "(Tensor x, Tensor(a!) out) -> ()")\n'
        '@torch.library.impl("_C::scale", "CPU")\ndef scale(x, out): out.copy_(x * 2)\n'
    )
    got = case.decide(MCOPLIB)
    assert (got.status, got.outcome["library"]["path"]) == ("PASSED", str(folder / "_C.py")), got


def test_the_functions_of_a_module(case: Case) -> None:
    path = case.site.builder.functions(case.site.package("mcoplib") / "op.abi3.so")
    (path.parent / "__init__.py").write_text("")
    got = case.decide(OP, call="op.scale")
    assert got.status == "PASSED", got
    assert got.outcome["library"]["path"] == str(path)
    assert got.outcome["library"]["sha256"] == sha256(path)


@pytest.mark.parametrize("imports", [OP, "from mcoplib import op", "import mcoplib.op as op"])
def test_a_module_that_is_there_but_broken(case: Case, imports: str) -> None:
    path = case.site.package("mcoplib") / "op.abi3.so"
    case.site.builder.functions(path, broken=UNDEFINED)
    (path.parent / "__init__.py").write_text("")
    got = case.decide(imports, call="op.scale")
    assert (got.status, got.outcome["error"]["type"]) == ("ERROR", "BrokenLibraryError"), got
    assert "symbol_of_another_build" in got.message


def test_a_broken_module_that_is_imported_late(case: Case) -> None:
    path = case.site.package("mcoplib") / "op.abi3.so"
    case.site.builder.functions(path, broken=UNDEFINED)
    (path.parent / "__init__.py").write_text("")
    got = case.decide(call="__import__('mcoplib.op').op.scale")
    assert (got.status, got.outcome["error"]["type"]) == ("ERROR", "ImportError"), got
    assert "symbol_of_another_build" in got.message and "[DATA]" in got.out


def test_a_name_that_is_none_where_the_import_failed(case: Case) -> None:
    case.site.folder.mkdir()
    got = case.decide(OP.replace("pass", "op = None"), call="op.scale")
    assert got.status == "UNAVAILABLE" and "mcoplib.op" in got.message


# A second library, brought by the runner itself.


@pytest.mark.parametrize(
    "imports", ["import mcoplib._C", "from mcoplib import _C", "import mcoplib._C as kernels"]
)
def test_an_import_of_the_other_provider_without_a_guard(case: Case, imports: str) -> None:
    case.site.mcoplib()
    case.site.vllm()
    got = case.decide(imports, declared=["vllm"])
    assert (got.status, got.outcome["error"]["type"]) == ("ERROR", "SecondLibraryError"), got
    for word in ("mcoplib._C", "_C is served by vllm"):
        assert word in got.message


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(Library(), id="the namespace twice"),
        pytest.param(Library(kind="FRAGMENT"), id="an operator twice"),
        pytest.param(Library(kind="IMPL"), id="a kernel in place of another"),
    ],
)
@pytest.mark.parametrize("how", ["torch.ops.load_library", "ctypes.CDLL"])
def test_a_second_library_that_the_runner_loads(
    case: Case, tmp_path: Path, second: Library, how: str
) -> None:
    """Without a trial torch would kill the process, or quietly call the other one's kernel."""
    case.site.mcoplib()
    path = case.site.builder.build(second, tmp_path / "second.so")
    got = case.decide(f"import ctypes\n{how}({str(path)!r})\n")
    assert (got.status, got.ended) == ("ERROR", None), got
    assert got.outcome["error"]["type"] == "SecondLibraryError"
    for word in (str(path), "_C by mcoplib", "torch says"):
        assert word in got.message


def test_a_library_of_another_namespace_may_be_loaded_by_the_runner(
    case: Case, tmp_path: Path
) -> None:
    case.site.mcoplib()
    path = case.site.builder.build(Library("my_own"), tmp_path / "own.so")
    assert case.decide(f"torch.ops.load_library({str(path)!r})").status == "PASSED"


def test_a_library_that_kills_the_process_is_told_from_a_second_one(
    case: Case, tmp_path: Path
) -> None:
    case.site.mcoplib()
    dies = "#include <stdlib.h>\n__attribute__((constructor)) static void dies(void) { abort(); }"
    path = case.site.builder.build(Library("my_own", broken=dies), tmp_path / "dies.so")
    got = case.decide(f"torch.ops.load_library({str(path)!r})")
    assert got.outcome["error"]["type"] == "BrokenLibraryError", got
    assert str(path) in got.message


def test_another_provider_that_came_in_by_a_back_door(case: Case, tmp_path: Path) -> None:
    """Mapped by what the runner loads, under no name that could have been refused."""
    case.site.mcoplib()
    case.site.vllm(Library("vllm_only", operators=("other",)))
    other = case.site.folder / "vllm" / "_C.abi3.so"
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    door = tmp_path / "door.so"
    linked = ["-Wl,--no-as-needed", "-x", "none", str(other)]
    case.site.builder._run("-x", "c", "-shared", "-fPIC", str(source), *linked, "-o", str(door))
    got = case.decide(f"import ctypes\nctypes.CDLL({str(door)!r})", declared=["mcoplib"])
    assert got.outcome["error"]["type"] == "SecondLibraryError", got
    for word in ("two providers", "mcoplib", str(other)):
        assert word in got.message


def test_two_declared_paths_for_one_namespace(case: Case, tmp_path: Path) -> None:
    one = case.site.builder.build(Library(), tmp_path / "one.so")
    two = case.site.builder.build(Library(factor=3), tmp_path / "two.so")
    got = case.decide(declared=[str(one), str(two)])
    assert got.outcome["error"]["type"] == "SecondLibraryError", got
    assert str(two) in got.message and str(one) in got.message


def test_half_of_a_package_cannot_be_had(case: Case, tmp_path: Path) -> None:
    case.site.vllm()
    own = case.site.builder.build(Library(factor=5), tmp_path / "own.so")
    both = "(lambda x, out: (torch.ops._C.scale(x, out), torch.ops._C_cache_ops.other(x, out)))"
    got = case.decide(call=both, declared=[f"_C={own}"])
    assert got.fatal["code"] == 3
    for word in ("vllm would serve _C_cache_ops", "registers _C too", str(own)):
        assert word in got.message


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["vlm"], "did you mean vllm?"),
        (["mcoplib", "vllm"], "both mcoplib and vllm for _C"),
        (["_C=vllm", "_C_cache_ops=mcoplib"], "both vllm and mcoplib for _C_cache_ops"),
        (["_C=sgl_kernel"], "sgl_kernel does not serve _C"),
        (["_C="], "is no operator library"),
        ([""], "is no operator library"),
    ],
)
def test_a_declaration_that_cannot_hold(texts: list[str], words: str) -> None:
    with pytest.raises(TreeError) as raised:
        providers.declared(texts)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("source", "operators", "certain"),
    [
        ("def run_verification(s): torch.ops._C.a.default(x)", ["_C::a"], {"_C"}),
        ("def run_verification(s): getattr(torch.ops._C, 'a')(x)", [], {"_C"}),
        ("from torch import ops as o\ndef __init__(s): o._C.a(x).b", ["_C::a"], {"_C"}),
        ("import torch as t\ndef __init__(s): t.ops._C.a", ["_C::a"], {"_C"}),
        ("c = torch.ops._C\ndef __init__(s): c.a()", ["_C::a"], {"_C"}),
        ("def _go(s): torch.ops._C.a\ndef __init__(s): s.f = s._go", ["_C::a"], {"_C"}),
        ("def _go(s): torch.ops._C.a\ndef __init__(s): pass", ["_C::a"], set()),
        ("def __init__(s):\n if s: return\n torch.ops._C.a", ["_C::a"], set()),
        ("def __init__(s):\n with s:\n  torch.ops._C.a", ["_C::a"], {"_C"}),
        ("torch.ops.load_library('x')", [], set()),
    ],
)
def test_needs_are_read_from_the_source(
    source: str, operators: list[str], certain: set[str]
) -> None:
    found = needs.read(source)
    assert list(found.operators) == operators
    assert found.certain & {"_C"} == certain


def test_guarded_imports_are_told_from_others() -> None:
    source = "import a\ntry:\n import b.c as d\n from e import f\nexcept ImportError:\n pass\n"
    assert needs.read(source).optional == {"d": "b.c", "f": "e.f"}


def test_a_file_is_hashed_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"one")
    assert providers.fingerprint(path) == hashlib.sha256(b"one").hexdigest()
    monkeypatch.setattr(hashlib, "sha256", None)
    assert providers.fingerprint(path)
    monkeypatch.undo()
    path.write_bytes(b"other")
    assert providers.fingerprint(path) == hashlib.sha256(b"other").hexdigest()
    assert providers.fingerprint(tmp_path / "gone") is None


def test_a_parent_hashes_for_its_cases_and_loads_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = case.site.mcoplib()
    monkeypatch.syspath_prepend(str(case.site.folder))
    monkeypatch.setattr(providers, "_fingerprints", {})
    libraries.remember(RUNNER.format(imports="", call="torch.ops._C.scale"), providers.declared([]))
    ((name, *_),) = providers._fingerprints
    assert name == str(path)
    assert "mcoplib" not in sys.modules
    assert str(path) not in Path("/proc/self/maps").read_text()
    monkeypatch.setattr(hashlib, "sha256", None)  # a case that hashed would fail
    assert case.decide().status == "PASSED"


def test_a_server_hashes_for_all_operators(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = site.builder.build(Library(), tmp_path / "own.so")
    files = [site.vllm(), *site.sgl_kernel(), own]
    monkeypatch.syspath_prepend(str(site.folder))
    monkeypatch.setattr(providers, "_fingerprints", {})
    libraries.remember_installed(["--op", "x", "--library", f"_C={own}"])
    hashed = {Path(name) for name, *_ in providers._fingerprints}
    # Without a GPU's capability, the build for all others is the one that is known.
    assert hashed == {files[0], files[0].with_name("_C.abi3.so"), files[2], own}


@pytest.mark.parametrize(
    ("flags", "code", "status"),
    [((), 3, None), (("--library", "vllm"), 0, "PASSED"), (("--library", "vlm"), 2, None)],
)
def test_the_front_door(
    case: Case, tmp_path: Path, flags: Sequence[str], code: int, status: str | None
) -> None:
    case.site.mcoplib()
    case.site.vllm()
    case.tree.add("scale", {"factor": 3}, RUNNER.format(imports="", call="torch.ops._C.scale"))
    case.tree.env["PYTHONPATH"] = str(case.site.folder)
    out = tmp_path / "r.jsonl"
    more = ("--min-time", "0.001", "--repeats", "2")
    ran = case.tree.run("--op", "scale", "--records", str(out), *more, *flags)
    assert ran.code == code, ran
    found = [record["status"] for record in (records_of(out) if out.exists() else [])]
    assert found == ([] if status is None else [status])
    if status is None:
        assert "error:" in ran.err and "Traceback" not in ran.err
