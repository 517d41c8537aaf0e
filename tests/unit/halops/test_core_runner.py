"""The course of a case: what becomes of backends that are right, wrong, broken or absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from core import report, runner
from core.backends import (
    Adapt,
    Launch,
    UnavailableError,
    UnsupportedError,
    _move_to_front,
    refusal,
    require,
    torch_dtype,
)
from core.metrics import Work
from harness import environment
from harness.errors import DeadDeviceError

from orchestrator.records import parse_line

CFG: dict[str, Any] = {"dtype": "float32"}


def _context() -> runner.Context:
    context = runner.Context(
        torch.device("cpu"), environment.cpu_device(), dry_run_iters=1, repeat_iters=3
    )
    context.op, context.scenario = "attention", "prefill_dense"
    return context


def _ok(inputs: Any, cfg: Any) -> Launch:
    return lambda: inputs * 2


def _wrong(inputs: Any, cfg: Any) -> Launch:
    return lambda: inputs * 2.1


def _raises(inputs: Any, cfg: Any) -> Launch:
    raise RuntimeError("no such thing")


def _absent(inputs: Any, cfg: Any) -> Launch:
    raise UnavailableError("mylib is not installed")


def _narrow(inputs: Any, cfg: Any) -> Launch:
    if cfg["dtype"] != "bfloat16":
        raise UnsupportedError("narrow does bfloat16 alone")
    return _ok(inputs["x"], cfg)


BACKENDS: dict[str, Adapt] = {
    "golden": lambda inputs, cfg: lambda: (inputs * 2).double(),
    "ok": _ok,
    "wrong": _wrong,
    "raises": _raises,
    "absent": _absent,
    "narrow": _narrow,
}


def _run(
    names: list[str],
    context: runner.Context | None = None,
    build: Callable[[], Any] = lambda: torch.rand(16, 8) + 1,
    **more: Any,
) -> list[report.Row]:
    options = more.pop("options", runner.Options())
    return runner.run_case(
        context or _context(),
        CFG,
        {"n": 16},
        BACKENDS,
        build,
        lambda inputs: Work(128, 512, 512, "fp32"),
        options,
        names=names,
        **more,
    )


def test_each_backend_has_the_status_of_its_own() -> None:
    rows = _run(["ok", "wrong", "raises", "absent", "golden"])
    assert [(row.backend, row.status) for row in rows] == [
        ("ok", "PASSED"),
        ("wrong", "FAILED"),
        ("raises", "ERROR"),
        ("absent", "UNAVAILABLE"),
        ("golden", "UNVERIFIED"),
    ]
    assert rows[1].timing is None, "what is wrong is not timed"
    assert rows[2].reason == "RuntimeError: no such thing"
    assert rows[3].reason == "mylib is not installed"
    assert rows[0].timing is not None
    assert len(rows[0].timing.samples) == 3
    assert (rows[0].timing.timer, rows[0].timing.cold) == ("cpu", False)


def test_without_a_reference_nothing_passes() -> None:
    (row,) = _run(["ok"], options=runner.Options(refcheck=False))
    assert (row.status, row.reason) == ("UNVERIFIED", "refcheck is off")
    (row,) = _run(["ok"], options=runner.Options(refcheck_reference="raises"))
    assert row.status == "UNVERIFIED"
    assert row.reason is not None
    assert "no such thing" in row.reason


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        (["nobody"], runner.Options(), "nobody"),
        (["ok", "narrow"], runner.Options(), "bfloat16 alone"),
        ([], runner.Options(), "empty"),
        (["ok"], runner.Options(refcheck_reference="nobody"), "nobody"),
        (["ok"], runner.Options(gpu_type="h300"), "h300"),
    ],
)
def test_a_wrong_configuration_is_refused_before_data_is_made(
    names: list[str], options: runner.Options, says: str
) -> None:
    def build() -> Any:
        raise AssertionError("data was made")

    context = _context()
    with pytest.raises(ValueError, match=says):
        _run(names, context, build, options=options)
    assert context.rows == []


def test_checking_runs_nothing() -> None:
    context = _context()
    context.checking = True
    assert _run(["ok"], context, lambda: pytest.fail("data was made")) == []


def test_inputs_that_cannot_be_made_are_an_error_of_each_backend() -> None:
    def build() -> Any:
        assert 100 % 32 == 0, "K must be a multiple of 32"

    rows = _run(["ok", "golden"], None, build)
    assert {row.status for row in rows} == {"ERROR"}
    assert "multiple of 32" in str(rows[0].reason)


def test_speedups_are_against_the_base() -> None:
    rows = _run(["absent", "ok", "golden"])
    assert rows[1].speedup == 1.0, "what is not here is no base"
    assert rows[1].timing is not None
    assert rows[2].timing is not None
    assert rows[2].speedup == pytest.approx(rows[1].timing.median / rows[2].timing.median)
    assert [row.speedup for row in _run(["wrong", "ok"])] == [None, None]
    assert [row.speedup for row in _run(["wrong", "ok"], base=report.first_success)] == [None, 1.0]


def test_only_runs_what_was_asked_for() -> None:
    context = _context()
    context.only = "golden"
    assert [row.backend for row in _run(["ok", "wrong"], context)] == ["golden"]


def test_rows_are_records() -> None:
    device = environment.cpu_device()
    for row in _run(["ok", "wrong", "raises", "absent", "golden"]):
        line = report.as_record(row, definition="0" * 16, device=device, environment={})
        record = parse_line(report.record.json.dumps(line))
        assert (record.suite, record.status.value) == ("halops", row.status)
        assert record.parameters == {"scenario": "prefill_dense", "n": 16, "backend": row.backend}
        if row.status in ("PASSED", "UNVERIFIED"):
            assert record.headline is not None
            assert record.headline[0] == "cpu"
            assert (record.flops, record.bytes_read) == (128, 512)


def test_the_table_has_common_parameters_once_and_no_time_of_what_failed() -> None:
    rows = _run(["ok", "wrong"])
    text = report.table(rows, None)
    assert text.splitlines()[0] == "n=16"
    assert report.cells(rows[1], None)["median_us"] == ""
    header, *lines = report.csv_text(rows, None).splitlines()
    assert header == ",".join(report.COLUMNS)
    assert len(lines) == 2


def test_what_lies_about_is_not_the_library(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_kernels").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnavailableError, match="not installed"):
        require("some_kernels")
    (tmp_path / "broken_kernels.py").write_text("raise OSError('libx.so: undefined symbol')")
    with pytest.raises(UnavailableError, match="undefined symbol"):
        require("broken_kernels")


def test_refusals_need_no_data() -> None:
    assert refusal(_narrow, {"dtype": "float32"}) == "narrow does bfloat16 alone"
    assert refusal(_narrow, {"dtype": "bfloat16"}) is None
    assert refusal(_absent, {}) is None


def test_the_library_comes_first() -> None:
    assert _move_to_front(["a", "halops", "b"], "halops") == ["halops", "a", "b"]
    assert _move_to_front(["b", "a"], "halops") == ["b", "a"]


def test_dtypes_are_spelt_as_torch_does() -> None:
    assert torch_dtype("bfloat16") is torch.bfloat16
    for name in ("bf16", "nn", None, "fp8"):
        with pytest.raises(ValueError, match="bfloat16"):
            torch_dtype(name)


def test_a_dead_device_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def illegal(device: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", illegal)
    context = _context()
    context.device = torch.device("cuda")
    with pytest.raises(DeadDeviceError, match=r"after raises .*illegal memory access"):
        _run(["raises", "ok"], context, options=runner.Options(refcheck=False))
