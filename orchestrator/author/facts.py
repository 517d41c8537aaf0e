"""What is known of an operator and of its unit test: what the readers find and the writers use.

Everything says where it was read. What could not be read is a ``Todo``, what was concluded instead
of read is marked as inferred. Nothing here reads or writes files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Framework = Literal["vllm", "sgl", "mcoplib", "torch"]


@dataclass(frozen=True, order=True)
class Place:
    """Where something was read: a file as the user named it, and a line from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Todo:
    """What could not be determined: one sentence on what is missing and how to find out."""

    what: str
    place: Place | None = None


@dataclass(frozen=True)
class Argument:
    """One argument of an operator, in the order of the call.

    ``type``: as torch's schemas spell it: ``Tensor``, ``Tensor[]``, ``int``, ``SymInt``, ``float``,
    ``bool``, ``str``, ``ScalarType``, ``Device``, ``int[]``, ``Any`` (a Python function without
    annotation); optional ones with ``?``.
    ``mutated``: the operator writes to it (``Tensor(a!)``, ``Tensor!``; for a C++ function without
    a schema, a pointer that is written, or what its kernels take as non-const).
    ``default``: the literal of its default as Python code, None when it must be given.
    """

    name: str
    type: str
    mutated: bool = False
    default: str | None = None
    keyword_only: bool = False
    inferred: tuple[str, ...] = ()  # names of fields above that were concluded, not read

    @property
    def is_tensor(self) -> bool:
        """Whether it takes one tensor, or none where it is optional."""
        return self.type.removesuffix("?") == "Tensor"

    @property
    def optional(self) -> bool:
        """Whether None may be passed."""
        return self.type.endswith("?")


@dataclass(frozen=True)
class Constraint:
    """A condition the operator itself checks, in its own words: ``TORCH_CHECK(cond, message)``."""

    condition: str
    message: str
    place: Place


@dataclass(frozen=True)
class Operator:
    """An operator as its source has it.

    ``name``: without namespace and overload. ``namespace``: ``_C``, ``_moe_C``, ``_C_cache_ops``,
    ``sgl_kernel``, ``op`` (pybind, ``mcoplib.op``), a torch.library namespace, or a Python module.
    ``call``: the callable as Python code: ``torch.ops._C.silu_and_mul``, ``op.fused_bias_dropout``.
    ``imports``: import statements that make ``call`` exist: ``import mcoplib._C``.
    ``returns``: types of what is returned; empty when nothing is.
    ``dtypes``: torch dtype names (``bfloat16``) that its dispatch and checks let through; empty
    when nothing was found.
    ``sources``: where it is registered, declared and implemented, the registration first.
    """

    name: str
    namespace: str
    framework: Framework
    kind: Literal["schema", "pybind", "declaration", "triton", "library", "python"]
    call: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    sources: tuple[Place, ...] = ()
    # Allocates or synchronises at each call (cudaMalloc, cudaDeviceSynchronize, .item()): where.
    allocates: tuple[Place, ...] = ()
    todos: tuple[Todo, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """A parameter of the unit test: a config key to be.

    ``values``: literals of all values the test uses, as Python code, in its order (``4096``,
    ``'silu'``, ``torch.bfloat16`` for a dtype). ``kind`` ``dtype``: they are torch dtypes.
    ``together``: names of the other parameters that the test varies along with it: their ``values``
    are as many, and those at one index belong together.
    """

    name: str
    values: tuple[str, ...]
    kind: Literal["int", "float", "bool", "str", "dtype", "other"]
    place: Place
    together: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """One comparison of the unit test: ``actual`` is the operator's, ``expected`` the reference's.

    Both are expressions over names of the slices. ``how``: ``exact`` (``torch.equal``, tolerances
    of 0), ``close`` (``assert_close``, ``allclose``), ``unordered`` (sorted or made sets before),
    ``cosine``. ``atol``, ``rtol``: as Python code, None when the test leaves them to torch; of a
    cosine, ``atol`` is what the similarity may fall short of 1 by.
    ``when``: the condition under which the test compares them, as Python code; None: always.
    """

    actual: str
    expected: str
    how: Literal["exact", "close", "unordered", "cosine"]
    place: Place
    atol: str | None = None
    rtol: str | None = None
    when: str | None = None


@dataclass(frozen=True)
class Trial:
    """How a unit test exercises an operator, cut into the parts that a runner needs.

    All code is the test's own, dedented, one statement an entry, in order, with its names.
    ``prepare``: makes the arguments, and what the reference needs besides (a backward slice of the
    call, without seeding of torch, without asserts). ``arguments``: one expression for each
    argument that is passed, by the operator's argument names, in the order of the call.
    ``result``: the name or names (``a, b``) that hold what the call returns; None when it is not
    used.
    ``reference``: statements between, that compute the expected values from the inputs (a slice of
    ``outputs``); ``copied``: names of tensors that the reference must read as they were before the
    call, because the operator mutates them.
    ``after``: statements that follow call and reference, and read what the operator left: they
    bring results and expected values into the form in which ``outputs`` compares them.
    ``skips``: conditions on the parameters, as Python code, under which the test skips or does not
    call the operator in this way: a choice of values must fulfil none.
    ``helpers``: sources of the module-level functions, classes and constants that these use, also
    from local modules the test imports, in an order in which they can be defined.
    ``imports``: import statements that those need (never of the operator's own library).
    """

    place: Place
    function: str
    parameters: tuple[Parameter, ...]
    prepare: tuple[str, ...]
    arguments: dict[str, str]
    outputs: tuple[Output, ...]
    reference: tuple[str, ...]
    result: str | None = None
    copied: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    # Names of the test's arguments that stand for the device ("cuda:0"), and for the seed.
    device_names: tuple[str, ...] = ()
    seed_names: tuple[str, ...] = ()
    todos: tuple[Todo, ...] = ()


@dataclass(frozen=True)
class Draft:
    """What ``gen op`` would write: file contents by path relative to the tree, and what is open."""

    operator: Operator
    name: str  # of config, runner and whitelist entry; sgl_<op> and vllm_<op> where both exist
    files: dict[str, str]
    todos: tuple[Todo, ...] = ()
    inferred: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
