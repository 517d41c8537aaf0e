"""Faults of names, configs, whitelists and calls, planted like those of runners; and that each rule
of all has several of them.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from check_kit import CONFIG, SCRIPT, SKELETON
from seeded.trees import plant
from test_check_call import XYO, operator

from orchestrator.author.check import check_tree
from orchestrator.author.check.registry import RULES
from orchestrator.author.check.rules import load_rules
from orchestrator.author.facts import Operator

CONFIG_FILE, RUNNER = "config/my_op.json", "runners/mcoplib_mxbenchmark_my_op_runners.py"
_READ = '        self.hidden_size = config.get("hidden_size", 4096)\n'
_LAUNCH = "make_launcher(dev_id, torch.ops._C.my_op, x, y, out)"
_DIRECT = "torch.ops._C.my_op(x, y, out)\n"


@dataclass(frozen=True)
class Fault:
    """What is done to the tree of the skeleton, and where ``rule`` finds it: in lines of ``path``.

    ``alone``: no other rule finds anything. ``known``: schemas at hand.
    """

    rule: str
    does: Callable[[Path], object]
    path: str
    lines: tuple[int, ...]
    alone: bool = True
    known: tuple[Operator, ...] = ()


def config(text: str | None = None, **keys: object) -> Callable[[Path], object]:
    """Write another config: a text, or keys changed (``...``: taken away)."""
    values = {key: value for key, value in {**CONFIG, **keys}.items() if value is not ...}
    content = text if text is not None else json.dumps(values, indent=4)
    return lambda folder: (folder / CONFIG_FILE).write_text(content, encoding="utf-8")


def raw(path: str, content: bytes) -> Callable[[Path], object]:
    """Write any bytes."""
    return lambda folder: (folder / path).write_bytes(content)


def runner(*changes: tuple[str, str]) -> Callable[[Path], object]:
    """Change the runner."""
    text = SKELETON
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return lambda folder: (folder / RUNNER).write_text(text, encoding="utf-8")


def listed(text: str) -> Callable[[Path], object]:
    """Write another front door."""
    return lambda folder: (folder / SCRIPT).write_text(text)


def moved(old: str, new: str) -> Callable[[Path], object]:
    """Rename a file."""
    return lambda folder: (folder / old).rename(folder / new)


def all_of(*steps: Callable[[Path], object]) -> Callable[[Path], object]:
    """Several of these."""
    return lambda folder: [step(folder) for step in steps]


def also(name: str) -> Callable[[Path], object]:
    """A second clean operator."""
    target = RUNNER.replace("my_op", name)
    return all_of(
        raw(CONFIG_FILE.replace("my_op", name), json.dumps(CONFIG).encode()),
        lambda folder: (folder / target).write_text(SKELETON, encoding="utf-8"),
    )


def line(piece: str, *changes: tuple[str, str]) -> tuple[int, ...]:
    """The lines of the changed skeleton that have ``piece``."""
    text = SKELETON
    for old, new in changes:
        text = text.replace(old, new)
    return tuple(i for i, one in enumerate(text.splitlines(), 1) if piece in one)


def read(*changes: tuple[str, str], piece: str) -> tuple[Callable[[Path], object], tuple[int, ...]]:
    """A change of the runner with the lines it is found on."""
    return runner(*changes), line(piece, *changes)


def key(code: str) -> tuple[str, str]:
    """One more key that is read."""
    return _READ, f"{_READ}        {code}\n"


def _runner(rule: str, *changes: tuple[str, str], piece: str, alone: bool = True) -> Fault:
    does, lines = read(*changes, piece=piece)
    return Fault(rule, does, RUNNER, lines, alone)


def _schema(
    rule: str, *schema: str, changes: tuple[tuple[str, str], ...] = (), namespace: str = "_C"
) -> Fault:
    """A schema that the calls do not fit."""
    lines = tuple(
        sorted({*line("make_launcher", *changes), *line(" torch.ops._C.my_op(", *changes)})
    )
    return Fault(
        rule, runner(*changes), RUNNER, lines, True, (operator(*schema, namespace=namespace),)
    )


FAULTS = [
    Fault("unread-key", config(top_k=8), CONFIG_FILE, (8,)),
    Fault("unread-key", config(Hidden_size=8), CONFIG_FILE, (8,)),
    Fault("unread-key", config(num_tokens=..., num_token=8), CONFIG_FILE, (7,)),
    _runner("missing-key", key('self.k = config["k"]'), piece='config["k"]'),
    _runner("missing-key", key('self.k = self.config["k"]'), piece='config["k"]'),
    _runner("missing-key", key('cfg = config\n        self.k = int(cfg["k"])'), piece='cfg["k"]'),
    _runner("other-default", ('"num_tokens", 4096', '"num_tokens", 512'), piece="512"),
    _runner("other-default", ('"num_tokens", 4096', '"num_tokens", default=512'), piece="512"),
    _runner("other-default", ('"num_tokens", 4096', '"num_tokens", "4096"'), piece='"4096"'),
    Fault("empty-sweep", config(num_tokens=[]), CONFIG_FILE, (4,)),
    Fault("empty-sweep", config(hidden_size=[]), CONFIG_FILE, (5,)),
    Fault("empty-sweep", config(dtype=[]), CONFIG_FILE, (6,), alone=False),
    Fault("missing-dtype", config(dtype=...), CONFIG_FILE, (1,)),
    Fault("missing-dtype", config("{}"), CONFIG_FILE, (1,), alone=False),
    Fault("missing-dtype", config(dtype=..., Dtype="float16"), CONFIG_FILE, (1,), alone=False),
    *(
        Fault(
            "dtype-unused",
            runner((" dtype=self.dtype, device=dev", made)),
            CONFIG_FILE,
            (6,),
            alone=False,
        )
        for made in (" device=dev", " dtype=torch.float16, device=dev", " dtype=None, device=dev")
    ),
    Fault("unknown-dtype", config(dtype="bf16"), CONFIG_FILE, (6,)),
    Fault("unknown-dtype", config(dtype="bloat16"), CONFIG_FILE, (6,)),
    Fault("unknown-dtype", config(dtype=["float16", "flaot32"]), CONFIG_FILE, (6,)),
    Fault("samples-value", config(samples=0), CONFIG_FILE, (7,)),
    Fault("samples-value", config(samples="1000"), CONFIG_FILE, (7,)),
    Fault("samples-value", config(samples=10.5), CONFIG_FILE, (7,)),
    Fault("many-samples", config(samples=10001), CONFIG_FILE, (7,)),
    Fault("many-samples", config(samples=100000), CONFIG_FILE, (7,)),
    Fault("many-samples", config(samples=10**9), CONFIG_FILE, (7,)),
    Fault("device-id", config(device_id=1), CONFIG_FILE, (2,)),
    Fault("device-id", config(device_id="0"), CONFIG_FILE, (2,)),
    Fault("device-id", config(device_id=[0, 1]), CONFIG_FILE, (2,)),
    Fault("device-name", config(device_name=...), CONFIG_FILE, (1,)),
    Fault("device-name", config(device_name=""), CONFIG_FILE, (3,)),
    Fault("device-name", config(device_name=500), CONFIG_FILE, (3,)),
    Fault("config-syntax", config("{"), CONFIG_FILE, (1,)),
    Fault("config-syntax", config('{"a": 1,\n "a": 2}'), CONFIG_FILE, (2,)),
    Fault("config-syntax", config('{\n\n"a": NaN}'), CONFIG_FILE, (3,)),
    Fault("config-syntax", raw(CONFIG_FILE, b"\xff\xfe{}"), CONFIG_FILE, (1,)),
    Fault("runner-syntax", raw(RUNNER, b"def f(:\n"), RUNNER, (1,)),
    Fault("runner-syntax", raw(RUNNER, b"x = 1\0\n"), RUNNER, (1,)),
    Fault("runner-syntax", raw(RUNNER, b"x = '\xff'\n"), RUNNER, (1,)),
    Fault("no-runner-class", runner(("(OpBenchmarkBase):", ":")), RUNNER, (1,), alone=False),
    Fault("no-runner-class", raw(RUNNER, b"x = 1\n"), RUNNER, (1,), alone=False),
    Fault("no-runner-class", raw(RUNNER, b""), RUNNER, (1,), alone=False),
    *(
        _runner(
            "several-runner-classes",
            ("class My", f"{other}\n\n\nclass My"),
            piece=piece,
            alone=False,
        )
        for other, piece in (
            ("class A(OpBenchmarkBase):\n    pass", "class My"),
            ("class A:\n    pass\n\n\nclass B(A, OpBenchmarkBase):\n    pass", "class My"),
            ("class Base(OpBenchmarkBase):\n    k = 1", "class My"),
        )
    ),
    Fault("missing-config", lambda f: (f / CONFIG_FILE).unlink(), RUNNER, (1,), alone=False),
    Fault("missing-config", moved(CONFIG_FILE, "config/My_op.json"), RUNNER, (1,), alone=False),
    Fault("missing-config", moved(CONFIG_FILE, "config/my_op_.json"), RUNNER, (1,), alone=False),
    Fault("missing-runner", lambda f: (f / RUNNER).unlink(), CONFIG_FILE, (1,), alone=False),
    Fault(
        "missing-runner", moved(RUNNER, RUNNER.replace("my", "m")), CONFIG_FILE, (1,), alone=False
    ),
    Fault(
        "missing-runner", moved(RUNNER, RUNNER.replace("my_op", "My_op")), CONFIG_FILE, (1,), False
    ),
    *(
        Fault("runner-name", moved(RUNNER, f"runners/{name}"), f"runners/{name}", (1,), alone=False)
        for name in ("my_op_runners.py", "mcoplib_mxbenchmark_my_op.py", "mcoplib_my_op_runners.py")
    ),
    Fault("whitelist-syntax", listed("SUPPORTED_OPERATORS = [\n"), SCRIPT, (1,), alone=False),
    Fault("whitelist-syntax", listed("x = 1\n"), SCRIPT, (1,), alone=False),
    Fault("whitelist-syntax", listed("\nSUPPORTED_OPERATORS = sorted(x)\n"), SCRIPT, (2,), False),
    Fault(
        "whitelist-order",
        all_of(also("a"), listed('SUPPORTED_OPERATORS = ["my_op", "a"]')),
        SCRIPT,
        (1,),
    ),
    *(
        Fault(
            "whitelist-order",
            all_of(also("a"), also("b"), listed(f"SUPPORTED_OPERATORS = [\n{order}]\n")),
            SCRIPT,
            where,
        )
        for order, where in (
            ('"b",\n"a",\n"my_op",\n', (3,)),
            ('"a",\n"my_op",\n"b",\n', (4,)),
        )
    ),
    *(
        Fault("listed-twice", listed(f"SUPPORTED_OPERATORS = [\n{rows}]\n"), SCRIPT, where, False)
        for rows, where in (
            ('"my_op",\n"my_op",\n', (3,)),
            ("\"my_op\",\n'my_op',\n", (3,)),
            ('"my_op", "my_op",\n', (2,)),
        )
    ),
    *(
        Fault(
            "listed-without-files",
            listed(f'SUPPORTED_OPERATORS = [\n"my_op",\n"{name}",\n]\n'),
            SCRIPT,
            (3,),
        )
        for name in ("my_opp", "other", "z z")
    ),
    Fault("unlisted", listed("SUPPORTED_OPERATORS = []\n"), RUNNER, (1,), alone=False),
    Fault("unlisted", listed('SUPPORTED_OPERATORS = ["My_op"]\n'), RUNNER, (1,), alone=False),
    Fault("unlisted", all_of(also("a_op")), RUNNER.replace("my", "a"), (1,)),
    _runner("todo", key("# TODO(mxfleet): the seed"), piece="TODO"),
    _runner("todo", key("x = None  # TODO(mxfleet)"), piece="TODO"),
    Fault("todo", config(device_name="TODO(mxfleet): which?"), CONFIG_FILE, (3,)),
    _schema("missing-argument", *XYO, "int topK"),
    _schema("missing-argument", *XYO, "int a", "int b"),
    _schema("missing-argument", *XYO, "*", "Tensor s"),
    _schema("too-many-arguments", *XYO[:2]),
    _schema("too-many-arguments", "Tensor x"),
    _schema("too-many-arguments", "Tensor x", "Tensor y", "*", "Tensor out"),
    *(
        _schema("unknown-argument", *XYO, "int k=1", changes=((_DIRECT, new), (_LAUNCH, launch)))
        for new, launch in (
            (_DIRECT.replace("out)", "out, n=2)"), _LAUNCH.replace("out)", "out, n=2)")),
            (
                _DIRECT.replace("out)", "out=out, K=2)").replace("(x, y,", "(x, y,"),
                _LAUNCH.replace("out)", "out, K=2)"),
            ),
            (_DIRECT.replace("out)", "out, x=x)"), _LAUNCH.replace("out)", "out, x=x)")),
        )
    ),
    *(
        _schema(
            "argument-kind",
            *XYO,
            f"{kind} k",
            changes=tuple(
                (old, old.replace("out)", f"out, {value})")) for old in (_DIRECT, _LAUNCH)
            ),
        )
        for kind, value in (("int", "0.5"), ("Tensor", "None"), ("str", "3"), ("bool", '"a"'))
    ),
    *(
        _schema(
            "swapped-arguments",
            *XYO,
            changes=(
                (_DIRECT, _DIRECT.replace("x, y, out", order)),
                (_LAUNCH, _LAUNCH.replace("x, y, out", order)),
            ),
        )
        for order in ("y, x, out", "out, y, x", "x, out, y")
    ),
    *(
        _schema("other-namespace", *XYO, namespace=namespace)
        for namespace in ("_moe_C", "_C_cache_ops")
    ),
    Fault(
        "other-namespace",
        runner(("torch.ops._C.", "torch.ops._moe_C.")),
        RUNNER,
        (44, 48),
        known=(operator(*XYO),),
    ),
    *(
        Fault(
            "many-samples-allocating",
            all_of(
                moved(CONFIG_FILE, "config/gptq_shuffle.json"),
                moved(RUNNER, RUNNER.replace("my_op", "gptq_shuffle")),
                listed('SUPPORTED_OPERATORS = ["gptq_shuffle"]\n'),
                lambda folder, n=samples: (folder / "config/gptq_shuffle.json").write_text(
                    json.dumps({**CONFIG, "samples": n}, indent=4)
                ),
            ),
            "config/gptq_shuffle.json",
            (7,),
            alone=False,
        )
        for samples in (101, 1000, 9999)
    ),
    _runner("ignore-form", key("# mxfleet: ignore[debug-left]"), piece="ignore"),
    _runner("ignore-form", key("# mxfleet: ignore[debug-lift] why"), piece="ignore"),
    _runner("ignore-form", key("# mxfleet: ignore why"), piece="ignore"),
    _runner("unused-ignore", key("# mxfleet: ignore[debug-left] it is needed"), piece="ignore"),
    _runner("unused-ignore", key("x = 1  # mxfleet: ignore[todo] it is needed"), piece="ignore"),
    _runner(
        "unused-ignore",
        ("import torch\n", "import torch  # mxfleet: ignore[foreign-import] x\n"),
        piece="ignore",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.rule)
def test_faults_of_files_are_found(tmp_path: Path, fault: Fault) -> None:
    plant(tmp_path, "my_op")
    fault.does(tmp_path)

    def known(name: str) -> Sequence[Operator]:
        return fault.known if name == "my_op" else ()

    findings = check_tree(tmp_path, known=known if fault.known else None)
    told = [f"{one.at} {one.rule}: {one.message}" for one in findings]
    ours = [one for one in findings if one.rule == fault.rule]
    assert tuple(one.at.line for one in ours) == fault.lines, told
    assert all(one.at.path.endswith(fault.path) for one in ours), told
    assert not fault.alone or len(ours) == len(findings), told


def test_each_rule_has_several_planted_faults() -> None:
    load_rules()
    counted = Counter(fault.rule for fault in FAULTS)
    here = Path(__file__).parent
    for module in sorted(here.glob("test_rules_*.py")):
        imported = __import__(module.stem)
        counted.update(one.rule for one in getattr(imported, "SEEDS", ()))
    few = {name: counted[name] for name in RULES if counted[name] < 3}
    assert few == {}


def test_each_table_is_of_this_form() -> None:
    """The count above would pass over a table that is called otherwise."""
    for module in sorted(Path(__file__).parent.glob("test_rules_*.py")):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        names = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert {"SEEDS", "FAULTS", "SOURCES"} & names or module.stem == "test_rules_clean"
