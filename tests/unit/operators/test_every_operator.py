"""Every operator of the whitelist: right kernels pass, damaged ones fail, declarations hold."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
import torch
from faults import BENCHMARK, Subject, all_subjects
from harness import loader, sweep
from harness.cases import CaseConfig
from mcoplib_mxbenchmark_ops import SUPPORTED_OPERATORS

SUBJECTS = all_subjects()
OF_LIBRARIES = [op for op in SUPPORTED_OPERATORS if not op.startswith("torch_")]
HEADINGS = ["Call:", "Libraries:", "Arguments:", "Parameters:", "Pitfalls:"]


def _config(op: str) -> dict[str, Any]:
    return loader.load_config(BENCHMARK, op)


def _source(op: str) -> str:
    return loader.check_runner(BENCHMARK, op)


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_the_right_kernel_passes(subject: Subject) -> None:
    verdict = subject.verdict()
    assert verdict.passed is True, verdict.reason


@pytest.mark.parametrize(
    ("subject", "name"),
    [pytest.param(s, name, id=f"{s}-{name}") for s in SUBJECTS for name in s.right],
)
def test_a_kernel_that_rounds_otherwise_passes(subject: Subject, name: str) -> None:
    verdict = subject.verdict(subject.right[name])
    assert verdict.passed is True, verdict.reason


@pytest.mark.parametrize(
    ("subject", "fault"),
    [pytest.param(s, fault, id=f"{s}-{fault}") for s in SUBJECTS for fault in s.faults()],
)
def test_a_damaged_kernel_fails(subject: Subject, fault: str) -> None:
    verdict = subject.verdict(subject.damaged(fault))
    assert verdict.passed is False and verdict.reason


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_timing_calls_the_operator_alone_and_declares_what_it_moves(subject: Subject) -> None:
    runner, state = subject.timed()
    if "." not in subject.namespace:
        assert state.watch.called == [subject.qualified] * 3
    assert list(state.summaries)[:3] == ["Op", "dtype", "Shape"]
    assert state.summaries["Op"] == subject.op
    assert "," not in str(state.summaries["Shape"])
    assert state.elements
    moved = [state.bytes_read, state.bytes_written]
    # A copy to or from the host is the device's traffic on one side only.
    assert any(moved) if "host" in subject.label else all(moved)
    flops = runner.flops()
    assert flops is None or flops > 0


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_what_was_timed_is_verified_where_the_runner_can(subject: Subject) -> None:
    runner, _ = subject.timed()
    answer = runner.verify_timed(0)
    if answer is None:
        pytest.skip("the operator changes its inputs, so what was timed has no reference")
    assert answer[0] is True
    runner, _ = subject.timed(subject.damaged(f"scaled:{subject.outputs()[0]}"))
    assert runner.verify_timed(0)[0] is False


@pytest.mark.parametrize("op", SUPPORTED_OPERATORS)
def test_the_configuration_is_read_whole(op: str) -> None:
    config = _config(op)
    cases = sweep.expand(config, op)
    assert 1 <= len(cases) <= 3
    cls = loader.load_runner(BENCHMARK, op)
    cls.device_type = "cpu"
    for case in cases:
        given = CaseConfig(case)
        cls(op, given)
        assert given.unread() == []


@pytest.mark.parametrize("op", OF_LIBRARIES)
def test_the_runners_defaults_are_the_first_case(op: str) -> None:
    cls = loader.load_runner(BENCHMARK, op)
    cls.device_type = "cpu"
    cases = sweep.expand(_config(op), op)
    bare = CaseConfig({"dtype": cases[0]["dtype"]})
    cls(op, bare)
    wanted = CaseConfig(cases[0])
    cls(op, wanted)
    assert bare.parameters() == wanted.parameters()


@pytest.mark.parametrize("op", OF_LIBRARIES)
def test_an_operator_of_a_library_has_a_subject(op: str) -> None:
    assert op in {subject.op for subject in SUBJECTS}


@pytest.mark.parametrize("op", OF_LIBRARIES)
def test_the_configuration_follows_the_rules(op: str) -> None:
    config = _config(op)
    assert config["device_id"] == 0
    assert config["device_name"] == ["MetaX C500", "NVIDIA H200"]
    assert 1 <= config["samples"] <= 2000
    assert isinstance(getattr(torch, config["dtype"]), torch.dtype)


@pytest.mark.parametrize("op", OF_LIBRARIES)
def test_the_docstring_has_the_form_that_the_reference_is_made_from(op: str) -> None:
    doc = ast.get_docstring(ast.parse(_source(op))) or ""
    first, _, rest = doc.partition("\n\n")
    assert "\n" not in first and first.endswith(".")
    positions = [rest.find(heading) for heading in HEADINGS]
    assert min(positions) >= 0 and positions == sorted(positions), positions
    sections = {
        heading: rest[start:end]
        for heading, start, end in zip(HEADINGS, positions, [*positions[1:], None], strict=True)
    }
    assert re.fullmatch(r"Call: ``.+``", sections["Call:"].strip(), re.S)
    described = set(re.findall(r"^    ([\w, ]+):", sections["Parameters:"], re.M))
    described = {name.strip() for group in described for name in group.split(",")}
    ours = set(_config(op)) - {"device_id", "device_name", "samples"}
    assert ours - {"dtype"} <= described, "a parameter of the configuration is not described"
    assert described - {"dtype"} <= ours, "a described parameter is not in the configuration"
    assert re.search(r"^    - \S", sections["Pitfalls:"], re.M)


@pytest.mark.parametrize("op", OF_LIBRARIES)
def test_a_runner_is_quiet_and_leaves_the_blocking_timeout_alone(op: str) -> None:
    source = _source(op)
    assert not re.search(r"\bprint\(", source)
    assert "set_blocking_kernel_timeout" not in source


def test_whitelist_configurations_and_runners_are_the_same_names() -> None:
    configs = sorted(path.stem for path in (BENCHMARK / "config").glob("*.json"))
    runners = sorted(
        path.stem.removeprefix("mcoplib_mxbenchmark_").removesuffix("_runners")
        for path in (BENCHMARK / "runners").glob("*_runners.py")
    )
    assert sorted(SUPPORTED_OPERATORS) == SUPPORTED_OPERATORS == configs == runners
    for op in configs:
        json.loads((BENCHMARK / "config" / f"{op}.json").read_text())
