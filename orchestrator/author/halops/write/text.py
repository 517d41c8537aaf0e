"""The config's YAML, as the neighbours write theirs, and what it reads back to."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from orchestrator.author.halops.facts import NeighbourStyle
from orchestrator.errors import TreeError

MARK = "# inferred"
# Whether a list, and lists in it, are in brackets on one line.
Flow = tuple[bool, bool]


def yaml_text(
    values: Mapping[str, Any],
    style: NeighbourStyle,
    marked: Collection[str] = (),
    flows: Mapping[str, Flow] | None = None,
) -> str:
    """The file's text; ``marked`` fields end in ``# inferred``, ``flows`` win over ``style``."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 10**6  # a list stays on its line, where comments and people look for it
    yaml.indent(mapping=2, sequence=style.indent + 2, offset=style.indent)
    yaml.representer.ignore_aliases = lambda data: True
    usual = (style.flow, style.flow_inner)
    parts = ["---\n"] if style.document_start else []
    for name, value in values.items():
        stream = io.StringIO()
        styled = _styled(value, style.quotes, (flows or {}).get(name, usual))
        yaml.dump({name: styled}, stream)
        lines = stream.getvalue().splitlines()
        if name in marked:
            lines[0] = f"{lines[0]}  {MARK}"
        parts += [f"{line}\n" for line in lines]
    return "".join(parts)


def flows_of(path: Path) -> dict[str, Flow]:
    """How each list of a config is written; empty where it cannot be read."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML().load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError):
        return {}
    flows = {}
    for name, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, CommentedSeq):
            inner = next((one for one in value if isinstance(one, CommentedSeq)), None)
            outer = bool(value.fa.flow_style())
            flows[str(name)] = (outer, outer if inner is None else bool(inner.fa.flow_style()))
    return flows


def read_yaml(text: str, where: str) -> dict[str, Any]:
    """The values of a config, as the benchmark would see them; raises ``TreeError``."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise TreeError(" ".join(str(error).split()), where=where) from None
    if not isinstance(found, dict):
        raise TreeError("it is no mapping of fields", where=where)
    return found


def _styled(value: Any, quotes: str, flow: Flow) -> Any:
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

    if isinstance(value, str) and quotes:
        return (DoubleQuotedScalarString if quotes == '"' else SingleQuotedScalarString)(value)
    if not isinstance(value, list):
        return value
    found = CommentedSeq([_styled(each, quotes, (flow[1], flow[1])) for each in value])
    if flow[0]:
        found.fa.set_flow_style()
    else:
        found.fa.set_block_style()
    return found
