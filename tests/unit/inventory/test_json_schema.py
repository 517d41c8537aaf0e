"""The shipped JSON Schema: the generated one, and of one mind with ``load``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from orchestrator.errors import ConfigError
from orchestrator.inventory.json_schema import FILE, generate
from orchestrator.inventory.load import load
from orchestrator.inventory.select import select

from .test_load import PRECEDENCE
from .test_load_errors import CASES
from .test_select import FLEET

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "inventory.md"

FULL = """\
push: {exclude: ["*.log"], symlinks: refuse}
defaults:
groups:
  g: {hosts: [a, "@all"], gpus: [0, GPU-1f]}
hosts:
  a:
  b: {containers: [none, {name: xx, env: {X: 1.5}}], timeouts: {job: none, silence: 3}}
  c: {docker_command: [sudo, docker], host_python: python3.9, port: 22, connect_timeout: 1.5}
  f: {library: vllm, containers: [xx, {name: yy, library: [_C=/x.so, sgl_kernel]}]}
  h: {library: []}
  e: {gpu_specs: {C600: {bandwidth: 2e12, flops: {bfloat16: 3e14}, source: a sheet}}}
  d: {workdir: none, path: [/opt/bin], suites: {halops: {sync: [configs]}}}
"""


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def plain(text: str):
    return json.loads(json.dumps(YAML(typ="safe", pure=True).load(text)))


def test_the_shipped_file_is_the_generated_one():
    assert json.loads(FILE.read_text(encoding="utf-8")) == generate(), (
        "write it anew: python -m orchestrator.inventory.json_schema"
    )


GROUPS = 'hosts:\ngroups:\n  c500: {hosts: "c500-[01-08]"}\n'


@pytest.mark.parametrize(
    "text", [FULL, PRECEDENCE, FLEET, GROUPS], ids=["full", "precedence", "fleet", "groups"]
)
def test_what_loads_is_valid(validator, loaded, text):
    assert loaded(text).targets
    validator.validate(plain(text))


UNKNOWN = [case for case in CASES if case[2].startswith(("unknown key", "did you mean"))]


@pytest.mark.parametrize(
    "text",
    [case[0] for case in UNKNOWN if "hosts: gpu1" not in case[0] and "'@gg'" not in case[0]]
    + [
        "hosts: {}",
        "hosts:\ngroups: {}",
        "defaults: {user: me}",
        "hosts: {a: {port: 70000}}",
        "hosts: {a: {port: '22'}}",
        "hosts: {a: {workdir: rel}}",
        "hosts: {a: {container: a b}}",
        "hosts: {a: {containers: []}}",
        "hosts: {a: {containers: [{user: x}]}}",
        "hosts: {a: {env: {X: true}}}",
        "hosts: {a: {timeouts: {job: never}}}",
        "hosts: {a: {library: vlm}}",
        "hosts: {a: {library: [_C=x.so]}}",
        "hosts: {a: {gpu_specs: {C600: {bandwidth: 1843.2}}}}",
        "hosts: {a: {gpu_specs: {C600: {flops: {bf16: 3.0e+14}}}}}",
        "hosts: {a: {gpu_specs: {C600: {speed: 3.0e+14}}}}",
        "groups: {g: {}}\nhosts: {a: }",
    ],
)
def test_what_the_schema_refuses_load_refuses_too(validator, inventory_file, text):
    assert not validator.is_valid(plain(text))
    with pytest.raises(ConfigError):
        load(inventory_file(text))


def examples() -> dict[str, str]:
    """The whole inventories among the YAML blocks of the documentation, by file and line."""
    found = {}
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for block in re.finditer(r"^```ya?ml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if re.search(r"^(hosts|groups):", block[1], re.MULTILINE):
                line = text.count("\n", 0, block.start()) + 1
                found[f"{path.relative_to(ROOT)}:{line}"] = block[1]
    return found


def test_the_documentation_has_examples():
    assert {name.partition(":")[0] for name in examples()} >= {"README.md", "docs/inventory.md"}


@pytest.mark.parametrize("text", examples().values(), ids=examples().keys())
def test_the_examples_of_the_documentation_load(validator, loaded, text):
    inventory = loaded(text)
    assert inventory.targets
    validator.validate(plain(text))
    for group in inventory.groups:
        assert select(inventory, f"@{group}")


def test_what_the_documentation_selects_is_there(loaded):
    """The first example of docs/inventory.md has the targets that its text and table name."""
    text = next(text for name, text in examples().items() if name.startswith("docs/inventory.md"))
    inventory = loaded(text)
    for pattern, count in {
        "h200": 2,
        "c500-[01-04]": 4,
        "@c500": 8,
        "h200:sglang": 1,
        "h200:none": 1,
        "c500-[01-04]:none": 4,
        "@c500:none": 8,
        "@all": 10,
    }.items():
        assert len(select(inventory, pattern)) == count, pattern


def keys(node) -> set[str]:
    found: set[str] = set()
    if isinstance(node, dict):
        found |= set(node.get("properties", {}))
        for value in node.values():
            found |= keys(value)
    elif isinstance(node, list):
        for value in node:
            found |= keys(value)
    return found


def test_every_key_is_explained_to_editors_and_readers():
    schema = generate()
    for model in [schema, *schema["$defs"].values()]:
        for key, entry in model["properties"].items():
            assert len(entry.get("description", "")) > 15, key
            assert "\n" not in entry["description"]
    rows, _, _ = DOCS.read_text(encoding="utf-8").partition("## Selecting targets")
    described = set(re.findall(r"^\| `([a-z0-9_]+)`", rows, re.MULTILINE))
    assert described == keys(schema), "docs/inventory.md has one table row for every key"
