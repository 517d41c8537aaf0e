"""The documents say what the code does: fields, backends, columns, limits, peaks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from core import metrics, refcheck, report
from kernel.attention.scenarios import SCENARIOS, decode_gqa

import benchmark as front_door

DOCS = Path(front_door.ROOT) / "docs"
SCHEMA = (DOCS / "config_schema.md").read_text()
REPORT = (DOCS / "report_guide.md").read_text()
COMMON = {"backends", "refcheck", "refcheck_reference", "cold_l2_cache", "use_cuda_graph"} | {
    "gpu_type"
}


def _reads(scenario: str) -> dict[str, str | None]:
    return _fields(Path(front_door.ROOT) / f"kernel/attention/scenarios/{scenario}.py")


def _fields(path: Path) -> dict[str, str | None]:
    """The fields that a module reads, and each one's default (None: required)."""
    found: dict[str, str | None] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "cfg":
            if isinstance(node.slice, ast.Constant):
                found[str(node.slice.value)] = None
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "cfg.get":
            name, *default = [ast.unparse(arg).strip("'") for arg in node.args]
            shown = default[0] if default else "None"
            found.setdefault(name, shown.lower() if shown in ("True", "False") else shown)
    return found


def _documented(text: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3 or "`" not in cells[0]:
            continue
        names = re.findall(r"`([^`]+)`", cells[0])
        defaults = re.findall(r"`([^`]+)`", cells[1])
        required = cells[1].startswith("required")
        assert required or len(defaults) == len(names), line
        found |= {n: None if required else defaults[i] for i, n in enumerate(names)}
    return found


def _section(title: str) -> str:
    found = re.search(rf"^### {title}$(.*?)(?=^##|\Z)", SCHEMA, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_fields_and_defaults_are_those_of_the_code(scenario: str) -> None:
    read = {name: default for name, default in _reads(scenario).items() if name not in COMMON}
    assert _documented(_section(scenario)) == read


def test_common_fields_are_read_by_every_scenario() -> None:
    section = SCHEMA.split("## Fields of every scenario")[1].split("## attention")[0]
    named = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    assert named == COMMON | {"scenario"}
    for scenario in SCENARIOS:
        assert set(_reads(scenario)) >= COMMON, scenario


def test_sweeps_are_marked() -> None:
    marked = set(re.findall(r"^\| `(\w+)` \| [^|]*\*\*sweep\*\*", SCHEMA, re.MULTILINE))
    assert marked >= {"seq_lens", "s_kv_list", "mtp_steps_list", "prefix_len_list"}
    assert all(name.endswith(("s", "_list")) for name in marked)


def test_backends_of_attention_are_those_of_the_registries() -> None:
    section = SCHEMA.split("## Backends of attention")[1]
    named = {n for row in re.findall(r"^\| (`[^|]*) \|", section, re.M) for n in row.split(", ")}
    assert {name.strip("`") for name in named} == set(decode_gqa._get_backends())


def test_columns_are_explained() -> None:
    section = REPORT.split("## Columns")[1].split("## Timing")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", section, re.M)))
    assert tuple(named) == report.COLUMNS


def test_limits_are_those_of_the_check() -> None:
    rows = re.findall(r"^\| (fp\d+|bf16) \| (\S+) \|", (DOCS / "refcheck.md").read_text(), re.M)
    assert {name: float(value) for name, value in rows} == refcheck.LIMITS


def test_peaks_are_named() -> None:
    found = re.search(r"Known peaks \(`GPU_SPECS`\): ([^.]+)\.", REPORT)
    assert found is not None
    assert re.findall(r"`(\w+)`", found[1]) == list(metrics.GPU_SPECS)
    assert f"above {metrics.ABOVE_ROOFLINE}" in REPORT


def test_flags_of_the_front_door_are_named() -> None:
    text = Path(front_door.__file__).read_text()
    for flag in re.findall(r'"(--[a-z-]+)"', text):
        assert flag in SCHEMA, flag


def test_fields_of_gemm_are_those_of_the_code() -> None:
    section = SCHEMA.split("## gemm")[1].split("## Backends of attention")[0]
    folder = Path(front_door.ROOT) / "kernel" / "gemm"
    read: dict[str, str | None] = {}
    for path in [folder / "settings.py", *(folder / "scenarios").glob("*.py")]:
        read |= {
            name: "row" if name == "fp8_scales" else default
            for name, default in _fields(path).items()
            if name not in COMMON
        }
    # Read by subscript only where it is known to be there.
    read |= {"masked_m": "None", "m_alignment": "128", "routing": "even"}
    assert _documented(section) == read
