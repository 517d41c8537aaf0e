"""A config's keys against what the runner reads, and what the harness asks of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_kit import CONFIG, SKELETON, Tree

from orchestrator.author.check import check_tree
from orchestrator.author.check.dtypes import DTYPES, is_dtype
from orchestrator.author.check.fix import mend

READ = '        self.hidden_size = config.get("hidden_size", 4096)\n'


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_key_that_is_spelt_otherwise_is_named(tree: Tree) -> None:
    tree.config({**{k: v for k, v in CONFIG.items() if k != "num_tokens"}, "num_token": 8})
    finding = tree.only("unread-key")
    assert finding.at.line == 7
    assert finding.at.column == 5
    assert 'reads "num_tokens"' in finding.fix


def test_a_key_in_another_case(tree: Tree) -> None:
    tree.config({**{k: v for k, v in CONFIG.items() if k != "num_tokens"}, "Num_Tokens": 8})
    assert 'reads "num_tokens"' in tree.only("unread-key").fix


def test_a_key_that_nobody_reads(tree: Tree) -> None:
    tree.change(top_k=8)
    assert tree.only("unread-key").message == 'the runner never reads "top_k"'


def test_keys_of_the_harness_are_read_by_it(tree: Tree) -> None:
    tree.change(batch_size_list=[1, 2])
    assert tree.check() == []


@pytest.mark.parametrize(
    "reading",
    [
        'self.top_k = config["top_k"]',
        'self.top_k = self.config["top_k"]',
        'self.top_k = self.config.get("top_k", 8)',
        'self.top_k = int(config.get(key="top_k", default=8))',
        'self.top_k = config.pop("top_k")',
        'self.top_k = config.setdefault("top_k", 8)',
        'cfg = config\n        self.top_k = cfg.get("top_k")',
        'self.cfg = cfg = config\n        self.top_k = self.cfg["top_k"]',
        'self.top_k = config["top_k"] if "top_k" in config else 3',
        'self.top_k = (lambda: config["top_k"])()',
        'KEY = "top_k"\n        self.top_k = config.get(KEY, 8)',
        'self.top_k = _read(config)',
        'self.top_k = _read(c=self.config)',
        'self.top_k = self._mine(config)',
        'self.top_k = My_op_runner._static(config)',
        'self.top_k = self._static(config)',
        # What cannot be told is no finding.
        'self.top_k = config.get("top_" + "k")',
        'self.top_k = config[f"{name}_top_k"]',
        'self.__dict__.update(config)',
        'for key in ("top_k",):\n            setattr(self, key, config[key])',
        'for key, value in config.items():\n            setattr(self, key, value)',
        'self.shape = elsewhere(config)',
        'self.shape = Shape(**config)',
        'self.shape = [config]',
        'self.top_k = {**config}["top_k"]',
        'self.get = config.get\n        self.top_k = self.get("top_k")',
        'self.top_k = json.loads(json.dumps(config))["top_k"]',
        'config = dict(config)\n        self.top_k = config["top_k"]',
    ],
)  # fmt: skip
def test_ways_to_read_a_key(tree: Tree, reading: str) -> None:
    helpers = (
        'def _read(c):\n    return c.get("top_k", 8)\n\n\nclass My_op_runner(OpBenchmarkBase):\n'
        '    def _mine(self, given):\n        return given["top_k"]\n\n'
        "    @staticmethod\n    def _static(given):\n        return given.get('top_k')\n\n"
    )
    text = SKELETON.replace("class My_op_runner(OpBenchmarkBase):\n", helpers)
    tree.runner(text.replace(READ, f"{READ}        {reading}\n"))
    tree.change(top_k=8)
    assert "unread-key" not in tree.rules()
    tree.change(top_k=8, other=1)
    # The control: where everything is in sight, another key is found.
    told = "cannot be told" if _out_of_sight(reading) else "unread-key"
    assert ("unread-key" in tree.rules()) == (told == "unread-key")


def _out_of_sight(reading: str) -> bool:
    words = ('"top_" +', 'f"', "update", "for key", "elsewhere", "**", "[config]", "= config.get\n")
    return any(word in reading for word in (*words, "dumps(", "dict(config)"))


def test_a_base_of_another_module_may_read_more(tree: Tree) -> None:
    shared = "import torch\nfrom mcoplib_mxbenchmark_shared import SharedBase\n"
    text = SKELETON.replace("(OpBenchmarkBase):", "(SharedBase):")
    tree.runner(text.replace("import torch\n", shared))
    tree.change(top_k=8)
    assert tree.check() == []


def test_a_helper_base_in_the_module_is_read_too(tree: Tree) -> None:
    base = (
        "class Shared:\n    def __init__(self, name, config):\n"
        "        self.top_k = config.get('top_k', 8)\n\n\n"
        "class My_op_runner(Shared, OpBenchmarkBase):\n"
    )
    tree.swap("class My_op_runner(OpBenchmarkBase):\n", base)
    tree.change(top_k=8)
    assert tree.check() == []


def test_a_key_that_has_to_be_there(tree: Tree) -> None:
    tree.swap(READ, READ + '        self.top_k = config["top_k"]\n')
    finding = tree.only("missing-key")
    assert finding.at.line == 20
    tree.change(topk=8)
    found = {one.rule: one for one in tree.check()}
    assert 'the config has "topk"' in found["missing-key"].fix


@pytest.mark.parametrize(
    "reading",
    [
        'self.k = config["top_k"] if "top_k" in config else 3',
        'config["top_k"] = 3\n        self.k = config["top_k"]',
        'config.setdefault("top_k", 3)\n        self.k = config["top_k"]',
        "try:\n            self.k = config['top_k']\n        except KeyError:\n            pass",
        'self.k = config.get("top_k")',
    ],
)
def test_a_key_that_need_not_be_there(tree: Tree, reading: str) -> None:
    tree.swap(READ, f"{READ}        {reading}\n")
    assert tree.check() == []


@pytest.mark.parametrize(
    ("value", "default", "found"),
    [
        (4096, "4096", False),
        (4096, "2048", True),
        (4096, "4 * 1024", False),
        (4096, "1 << 12", False),  # not folded: cannot be told
        (4096, "DEFAULT", False),
        (4096, "None", False),
        ([4096, 8192], "8192", False),
        ([4096, 8192], "1024", True),
        (1e-6, "1e-6", False),
        (1e-6, "1e-5", True),
        (1, "True", True),
        (1.0, "1", False),
        ("silu", "'gelu'", True),
        ("torch.float16", "'float16'", False),
        ([[1, 2], [3, 4]], "(1, 2)", False),
        ([[1, 2], [3, 4]], "[1, 3]", True),
        (0.5, "-0.5", True),
    ],
)
def test_a_default_beside_the_config_s_value(
    tree: Tree, value: Any, default: str, found: bool
) -> None:
    tree.swap('config.get("hidden_size", 4096)', f'config.get("hidden_size", {default})')
    tree.change(hidden_size=value)
    assert tree.rules() == (["other-default"] if found else [])


def test_a_default_is_mended(tree: Tree) -> None:
    tree.change(num_tokens=[16, 32], hidden_size=7)
    mend(tree.check(), tree.check)
    assert 'config.get("num_tokens", 16)' in tree.runner_path().read_text(encoding="utf-8")
    assert 'config.get("hidden_size", 7)' in tree.runner_path().read_text(encoding="utf-8")
    assert tree.check() == []


def test_one_key_with_two_defaults(tree: Tree) -> None:
    again = '        self.w = config.get("width", 1)\n        self.v = config.get("width", 2)\n'
    tree.swap(READ, READ + again)
    finding = tree.only("other-default")
    assert finding.message == '"width" has the default 2 here, but 1 in line 20'


@pytest.mark.parametrize("value", ["float16", "torch.bfloat16", "float8_e4m3fn", ["int8", "uint8"]])
def test_a_dtype_of_torch(tree: Tree, value: Any) -> None:
    tree.change(dtype=value)
    assert tree.check() == []


@pytest.mark.parametrize(
    ("value", "fix", "mended"),
    [
        ("BFloat16", "bfloat16", "bfloat16"),
        ("bf16", "bfloat16", "bfloat16"),
        ("torch.FP16", "float16", "float16"),
        ("bfloat61", "bfloat16", None),
        ("float8_e4m3", "float8_e4m3fn", None),
        ("tensor", None, None),
        (16, None, None),
        (None, None, None),
        (["float16", "fp16"], "float16", None),
        ("", None, None),
    ],
)
def test_a_dtype_that_is_none(tree: Tree, value: Any, fix: str | None, mended: str | None) -> None:
    tree.change(dtype=value)
    finding = tree.only("unknown-dtype")
    assert finding.at.line == 6
    if fix is not None:
        assert finding.fix == f'did you mean "{fix}"?'
    done = mend(tree.check(), tree.check)
    assert (done.left == []) is (mended is not None)
    if mended is not None:
        assert f'"dtype": "{mended}"' in tree.config_path().read_text()


def test_the_names_of_dtypes_are_torch_s() -> None:
    torch = pytest.importorskip("torch")
    there = {name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)}
    assert there <= DTYPES
    assert all(is_dtype(name) and is_dtype(f"torch.{name}") for name in there)


def test_a_missing_dtype(tree: Tree) -> None:
    tree.change(dtype=...)
    assert tree.only("missing-dtype").severity == "error"
    tree.change(dtype=..., Dtype="float16")
    found = {one.rule: one for one in tree.check()}
    assert "did you mean dtype?" in found["missing-dtype"].fix


@pytest.mark.parametrize("value", [0, -1, 1.5, "1000", True, None, [100]])
def test_samples_that_are_no_count(tree: Tree, value: Any) -> None:
    tree.change(samples=value)
    assert tree.only("samples-value").at.line == 7


@pytest.mark.parametrize(("value", "rules"), [(10_000, []), (10_001, ["many-samples"])])
def test_very_many_samples(tree: Tree, value: int, rules: list[str]) -> None:
    tree.change(samples=value)
    assert tree.rules() == rules


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.ops._C.my_op", "torch.ops._C.gptq_shuffle"),
        ("import torch\n", '"""Its kernel calls cudaDeviceSynchronize."""\n\nimport torch\n'),
        ("import torch\n", '"""Pitfalls: every call allocates."""\n\nimport torch\n'),
    ],
)
def test_samples_of_an_operator_that_allocates(tree: Tree, old: str, new: str) -> None:
    tree.swap(old, new)
    assert tree.only("many-samples-allocating").severity == "warning"
    tree.change(samples=100)
    assert tree.check() == []


@pytest.mark.parametrize("value", [1, "0", None, [0], False, 0.0])
def test_a_device_id_that_is_not_0(tree: Tree, value: Any) -> None:
    tree.change(device_id=value)
    assert tree.only("device-id").at.line == 2
    assert mend(tree.check(), tree.check).left == []
    assert tree.config_path().read_text().count('"device_id": 0,') == 1


@pytest.mark.parametrize("value", [..., "", 5, [], ["a", 1], None])
def test_a_device_name_that_is_none(tree: Tree, value: Any) -> None:
    tree.change(device_name=value)
    assert tree.only("device-name").severity == "warning"


def test_torch_s_own_operators_are_for_any_device(tree: Tree) -> None:
    tree.swap("torch.ops._C.my_op", "torch.add")
    tree.change(device_name=...)
    assert "device-name" not in tree.rules()


def test_an_empty_sweep(tree: Tree) -> None:
    tree.change(num_tokens=[])
    assert tree.only("empty-sweep").at.line == 4
    tree.change(batch_size_list=[])
    assert tree.check() == []


@pytest.mark.parametrize("text", ["# TODO(mxfleet): which layout?\n", "x = 'TODO(mxfleet)'\n"])
def test_what_is_still_open(tree: Tree, text: str) -> None:
    tree.runner(SKELETON + text)
    finding = tree.only("todo")
    assert finding.at.line == SKELETON.count("\n") + 1
    assert ("which layout?" in finding.message) == ("layout" in text)


def test_what_is_still_open_in_a_config(tree: Tree) -> None:
    tree.swap(READ, READ + '        self.mode = config.get("mode", "x")\n')
    tree.change(mode="TODO(mxfleet) choose")
    assert "todo" in tree.rules()


def test_only_named_operators_are_looked_at(tree: Tree) -> None:
    tree.config({**CONFIG, "dtype": "x"}, "other")
    tree.runner(SKELETON, "other")
    assert tree.rules("my_*") == []
    assert set(tree.rules("other")) == {"unknown-dtype", "unlisted"}
    assert check_tree(tree.folder, ["my_op"]) == []
