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

from .test_load import PRECEDENCE
from .test_load_errors import CASES
from .test_select import FLEET

DOCS = Path(__file__).parents[3] / "docs" / "inventory.md"

FULL = """\
push: {exclude: ["*.log"], symlinks: refuse}
defaults:
groups:
  g: {hosts: [a, "@all"], gpus: [0, GPU-1f]}
hosts:
  a:
  b: {containers: [none, {name: xx, env: {X: 1.5}}], timeouts: {job: none, silence: 3}}
  c: {docker_command: [sudo, docker], host_python: python3.9, port: 22, connect_timeout: 1.5}
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


@pytest.mark.parametrize("text", [FULL, PRECEDENCE, FLEET], ids=["full", "precedence", "fleet"])
def test_what_loads_is_valid(validator, loaded, text):
    assert loaded(text).targets
    validator.validate(plain(text))


UNKNOWN = [case for case in CASES if case[2].startswith(("unknown key", "did you mean"))]


@pytest.mark.parametrize(
    "text",
    [case[0] for case in UNKNOWN if "hosts: gpu1" not in case[0] and "'@gg'" not in case[0]]
    + [
        "hosts: {}",
        "hosts: {a: {port: 70000}}",
        "hosts: {a: {port: '22'}}",
        "hosts: {a: {workdir: rel}}",
        "hosts: {a: {container: a b}}",
        "hosts: {a: {containers: []}}",
        "hosts: {a: {containers: [{user: x}]}}",
        "hosts: {a: {env: {X: true}}}",
        "hosts: {a: {timeouts: {job: never}}}",
        "groups: {g: {}}\nhosts: {a: }",
    ],
)
def test_what_the_schema_refuses_load_refuses_too(validator, inventory_file, text):
    assert not validator.is_valid(plain(text))
    with pytest.raises(ConfigError):
        load(inventory_file(text))


def test_the_examples_of_the_documentation_load(validator, loaded):
    examples = re.findall(r"^```yaml\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.M | re.S)
    whole = [text for text in examples if re.search(r"^hosts:", text, re.MULTILINE)]
    assert len(whole) == 4
    for text in whole:
        assert loaded(text).targets
        validator.validate(plain(text))


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
    described = set(re.findall(r"^\| `([a-z_]+)`", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    assert described == keys(schema), "docs/inventory.md has one table row for every key"
