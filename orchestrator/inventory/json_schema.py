"""The JSON Schema of ``inventory.yaml``, by which editors complete, explain and check its keys.

``inventory.schema.json`` beside this module is its output, shipped as a file; write it anew after
a change of ``schema`` with ``python -m orchestrator.inventory.json_schema``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("inventory.schema.json")


def generate() -> dict[str, Any]:
    """The schema as a JSON object (draft 2020-12)."""
    from orchestrator.inventory.schema import InventoryFile

    schema = _tidy(InventoryFile.model_json_schema())
    entries = schema["properties"]
    # A key with nothing after it reads as null: all of it may be commented out.
    for owner, key in (
        (entries, "defaults"),
        (entries["hosts"], "additionalProperties"),
    ):
        reference = owner[key]
        owner[key] = {"anyOf": [{"$ref": reference.pop("$ref")}, {"type": "null"}], **reference}
    for key in ("groups", "hosts"):
        entries[key]["type"] = ["object", "null"]
    for model in schema["$defs"].values():
        several = model["properties"].get("containers")
        if several is not None:
            name = schema["$defs"]["ContainerEntry"]["properties"]["name"]
            bare = {key: name[key] for key in ("type", "pattern")}
            several["items"] = {"anyOf": [bare, several["items"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mxfleet inventory",
        **schema,
    }


def text() -> str:
    """The schema as the shipped file has it."""
    return json.dumps(generate(), indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any) -> Any:
    """Without titles and default values (descriptions name the defaults), on single lines."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in ("title", "default")}
    if len(kept.get("allOf", ())) == 1:  # how older pydantic writes a reference with a description
        kept = {**kept.pop("allOf")[0], **kept}
    for key, value in kept.items():
        kept[key] = " ".join(value.split()) if key == "description" else _tidy(value)
    return kept


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
