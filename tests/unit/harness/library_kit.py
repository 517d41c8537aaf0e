"""Real operator libraries for the CPU, small: compiled once, laid out as installed packages.

One C++ file registers operators through what ``TORCH_LIBRARY`` and ``TORCH_LIBRARY_FRAGMENT``
expand to; its namespace, operators and factor come from a C file that compiles in no time, so that
a dozen libraries cost one compilation. The factor is an exported function of the same name in all
of them: a library that got another one's would compute wrongly.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

REGISTERS = """
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

extern "C" {
extern const char* const library_namespace;
extern const char* const library_second;
extern const char* const library_operators[];
extern const int library_kind;
double library_factor(void);
}

static void scale(const at::Tensor& x, at::Tensor out) {
  at::mul_out(out, x, at::scalar_tensor(library_factor(), x.options()));
}

static void fill(torch::Library& library) {
  for (int i = 0; library_operators[i]; ++i) {
    const std::string name = library_operators[i];
    if (library_kind != torch::Library::IMPL)
      library.def((name + "(Tensor x, Tensor(a!) out) -> ()").c_str());
    library.impl(name.c_str(), c10::DispatchKey::CPU, TORCH_FN(scale));
  }
}

static const auto kind = static_cast<torch::Library::Kind>(library_kind);
static const auto key = kind == torch::Library::IMPL
    ? std::optional<c10::DispatchKey>(c10::DispatchKey::CPU) : std::nullopt;
static const torch::detail::TorchLibraryInit first(
    kind, &fill, library_namespace, key, __FILE__, __LINE__);
static const torch::detail::TorchLibraryInit second(
    torch::Library::FRAGMENT, library_second[0] ? &fill : [](torch::Library&) {},
    library_second[0] ? library_second : "unused", std::nullopt, __FILE__, __LINE__);
"""

SAYS_WHAT = """
#include <Python.h>
const char* const library_namespace = "{namespace}";
const char* const library_second = "{second}";
const char* const library_operators[] = {{{operators}, 0}};
const int library_kind = {kind};
double library_factor(void) {{ return {factor}; }}
{broken}
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{module}", 0, -1}};
PyMODINIT_FUNC PyInit_{module}(void) {{ return PyModule_Create(&module); }}
"""

# What calls torch through Python, as a pybind module does, and registers nothing.
FUNCTIONS = """
#include <Python.h>
{broken}
static PyObject* scale(PyObject* self, PyObject* args) {{
  PyObject *x, *out;
  if (!PyArg_ParseTuple(args, "OO", &x, &out)) return 0;
  PyObject* product = PyObject_CallMethod(x, "mul", "d", {factor});
  if (!product) return 0;
  PyObject* done = PyObject_CallMethod(out, "copy_", "O", product);
  Py_DECREF(product);
  return done;
}}
static PyMethodDef methods[] = {{{{"scale", scale, METH_VARARGS, 0}}, {{0}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "op", 0, -1, methods}};
PyMODINIT_FUNC PyInit_op(void) {{ return PyModule_Create(&module); }}
"""

KINDS = {"DEF": 0, "IMPL": 1, "FRAGMENT": 2}
UNDEFINED = "extern int symbol_of_another_build(void);\nint broken(void);\n"
UNDEFINED += "int broken(void) { return symbol_of_another_build(); }"
# The package itself must not be imported: nobody asks for it.
INIT = "raise RuntimeError('{package} was imported whole')\n"


@dataclass(frozen=True)
class Library:
    """A shared object that registers ``operators``, which multiply by ``factor``."""

    namespace: str = "_C"
    factor: float = 2
    operators: tuple[str, ...] = ("scale",)
    second: str = ""
    kind: str = "DEF"
    broken: str = ""
    needs: str = ""


class Builder:
    """Compiles libraries into a folder of the test session; each only once."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("no g++ here, and the libraries of this test are compiled")
        self._compiler = compiler
        self._folder = folder
        self._include = f"-I{sysconfig.get_paths()['include']}"
        self._built: dict[tuple[object, str], Path] = {}
        source = folder / "registers.cpp"
        source.write_text(REGISTERS)
        abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
        self._registers = folder / "registers.o"
        includes = [f"-I{path}" for path in cpp_extension.include_paths()]
        self._run(
            *["-std=c++20", "-O0", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *includes],
            *["-c", str(source), "-o", str(self._registers)],
        )

    def build(self, library: Library, target: Path) -> Path:
        """Put ``library`` at ``target``; its module name is the file's up to the first dot."""
        module = target.name.split(".")[0]
        operators = ", ".join(f'"{name}"' for name in library.operators)
        text = SAYS_WHAT.format(
            namespace=library.namespace,
            second=library.second,
            operators=operators,
            kind=KINDS[library.kind],
            factor=library.factor,
            broken=library.broken,
            module=module,
        )
        torch_itself = ["-ltorch", "-ltorch_cpu", "-lc10"]
        places = [f"-L{path}" for path in cpp_extension.library_paths()]
        objects = [str(self._registers), *places, *torch_itself]
        return self._link(text, objects, library.needs, target)

    def functions(self, target: Path, factor: float = 2, broken: str = "") -> Path:
        """Put a module ``op`` with a function at ``target``."""
        return self._link(FUNCTIONS.format(factor=float(factor), broken=broken), [], "", target)

    def _link(self, text: str, objects: list[str], needs: str, target: Path) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        key = (text, needs)
        if key not in self._built:
            built = self._folder / f"{len(self._built)}.so"
            source = built.with_suffix(".c")
            source.write_text(text)
            said = source.with_suffix(".o")
            self._run("-x", "c", "-fPIC", self._include, "-c", str(source), "-o", str(said))
            more = []
            if needs:
                # Linked against a library that nobody has.
                absent = self._folder / needs
                empty = self._folder / "empty.c"
                empty.write_text("int from_absent_library;\n")
                self._run("-x", "c", "-shared", "-fPIC", str(empty), "-o", str(absent))
                more = ["-Wl,--no-as-needed", str(absent)]
            self._run("-shared", str(said), *objects, *more, "-o", str(built))
            if needs:
                absent.unlink()
            self._built[key] = built
        shutil.copy(self._built[key], target)
        return target

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([self._compiler, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Site:
    """A folder of installed packages, empty at first."""

    folder: Path
    builder: Builder

    def package(self, name: str, version: str | None = "1.2.3") -> Path:
        """The folder of a package that may not be imported whole."""
        folder = self.folder / name
        if not folder.is_dir():
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text(INIT.format(package=name))
            if version is not None:
                info = self.folder / f"{name}-{version}.dist-info"
                info.mkdir()
                text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                (info / "METADATA").write_text(text)
        return folder

    def mcoplib(self, library: Library | None = None, stem: str = "_C") -> Path:
        """mcoplib with a binary; its factor is 2."""
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        target = self.package("mcoplib") / f"{stem}{suffix}"
        return self.builder.build(library or Library(second="_C_cache_ops"), target)

    def vllm(self, library: Library | None = None) -> Path:
        """vllm with both of its binaries; their factor is 3. Returns the stable one."""
        folder = self.package("vllm", "0.22.0")
        stable = Library(kind="FRAGMENT", factor=3)
        rest = Library(factor=3, operators=("other",), second="_C_cache_ops")
        self.builder.build(library or rest, folder / "_C.abi3.so")
        return self.builder.build(stable, folder / "_C_stable_libtorch.abi3.so")

    def sgl_kernel(self) -> list[Path]:
        """sgl_kernel with a build for each of two kinds of GPU; their factors are 9 and 10."""
        folder = self.package("sgl_kernel")
        return [
            self.builder.build(Library("sgl_kernel", factor), folder / sub / "common_ops.abi3.so")
            for sub, factor in (("sm90", 9), ("sm100", 10))
        ]
