"""Drafts of small operators of several kinds: what stands in config and runner, and why."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from emit_kit import (
    AT,
    DTYPE,
    KINDS,
    SOURCE,
    activation,
    close,
    config,
    dequantising,
    established_tree,
    made,
    norm,
    operator,
    our_tree,
    parameter,
    returning,
    runner,
    scatter,
    top_k,
    trial,
)
from test_emit_tidy import RUFF

from orchestrator.author.check.engine import check_tree
from orchestrator.author.facts import Constraint, Operator, Todo, Trial
from orchestrator.errors import TreeError, UsageError
from orchestrator.suites import whitelist


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return our_tree(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def established(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return established_tree(tmp_path_factory.mktemp("established"))


@pytest.fixture(params=["ours", "established"])
def tree(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def method(source: str, name: str) -> str:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.unparse(node)
    raise AssertionError(f"there is no {name}")


def has(source: str, name: str) -> bool:
    return f"def {name}(" in source


def varied(what: tuple[Any, Trial], **changes: Any) -> tuple[Any, Trial]:
    return what[0], dataclasses.replace(what[1], **changes)


# All kinds, both base classes.


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_python_in_its_form(tree: Path, kind: str, tmp_path: Path) -> None:
    source = runner(made(tree, KINDS[kind]()))
    compile(source, "runner", "exec")
    if not RUFF.exists():
        pytest.skip("ruff is not installed beside this Python")
    path = tmp_path / "runner.py"
    path.write_text(source)
    for words in (["format", "--diff"], ["check", "--select", "E,F,W,I"]):
        flags = ["--isolated", "--line-length", "100", str(path)]
        ran = subprocess.run([str(RUFF), *words, *flags], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_check_has_nothing_against_it(ours: Path, kind: str, tmp_path: Path) -> None:
    tree = our_tree(tmp_path)
    draft = made(tree, KINDS[kind]())
    for path, text in draft.files.items():
        (tree / path).write_text(text)
    script = tree / "mcoplib_mxbenchmark_ops.py"
    script.write_text(whitelist.add(script.read_text(), [draft.name], "ops"))
    found = [f for f in check_tree(tree, [draft.name]) if f.severity == "error"]
    assert [(one.rule, one.message) for one in found] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_runner_falls_back_on_what_the_config_says(tree: Path, kind: str) -> None:
    draft = made(tree, KINDS[kind]())
    told = json.loads(config(draft))
    read = re.findall(r'config\.get\("(\w+)", (.*)\)', runner(draft))
    assert {key: ast.literal_eval(value) for key, value in read} == {
        key: value
        for key, value in told.items()
        if key not in ("device_id", "device_name", "dtype", "samples")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_data_is_made_by_two_seeds_under_the_stream(tree: Path, kind: str) -> None:
    source = runner(made(tree, KINDS[kind]()))
    assert "torch.manual_seed(seed)" in method(source, "_prepare")
    launcher = ast.parse(method(source, "prepare_and_get_launcher")).body[0]
    assert isinstance(launcher, ast.FunctionDef) and isinstance(launcher.body[0], ast.With)
    assert "seed=42" in ast.unparse(launcher.body[0])
    assert "seed=7" in method(source, "run_verification")


@pytest.mark.parametrize("kind", KINDS)
def test_no_runner_names_a_device(tree: Path, kind: str) -> None:
    body = runner(made(tree, KINDS[kind]())).replace('torch.device("cuda", dev_id)', "")
    assert '"cuda' not in body and "'cuda" not in body and ".cuda()" not in body


# Values.


def test_sizes_are_the_largest_that_are_no_odd_ones(ours: Path) -> None:
    told = json.loads(config(made(ours, activation())))
    assert (told["num_tokens"], told["d"], told["dtype"]) == (4096, 13824, "bfloat16")
    draft = made(ours, activation())
    assert draft.inferred == ("num_tokens: the unit test has at most 2048",)
    assert "# inferred: the unit test has at most 2048" in runner(draft)


def test_an_odd_size_is_not_preferred_for_being_larger(ours: Path) -> None:
    op, tested = activation()
    odd = (parameter("num_tokens", "7"), parameter("d", "1024", "1025", "512"), DTYPE)
    told = json.loads(config(made(ours, (op, dataclasses.replace(tested, parameters=odd)))))
    assert told["d"] == 1024


def test_what_varies_together_stays_together(ours: Path) -> None:
    told = json.loads(config(made(ours, scatter())))
    assert (told["num_tokens"], told["head_size"], told["block_size"]) == (2048, 128, 32)


def test_a_count_that_is_more_than_a_length_is_not_raised(ours: Path) -> None:
    op, tested = activation()
    more = (*tested.prepare, "slots = random.sample(range(99), num_tokens)", "x += slots[0]")
    draft = made(ours, (op, dataclasses.replace(tested, prepare=more, imports=("import random",))))
    assert json.loads(config(draft))["num_tokens"] == 2048


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        (("d > 1000",), 512),
        (("dtype == torch.bfloat16 and d == 13824",), 512),
        (("num_tokens * d > 10**9",), 13824),
        (("unknowable(d)",), 13824),
    ],
)
def test_no_value_is_chosen_that_the_test_skips(
    ours: Path, skips: tuple[str, ...], expected: int
) -> None:
    told = json.loads(config(made(ours, varied(activation(), skips=skips))))
    found = told["d"] if told["dtype"] == "bfloat16" else 512
    assert found == expected


def test_equal_values_want_a_fine_dtype(ours: Path) -> None:
    assert json.loads(config(made(ours, top_k())))["dtype"] == "float32"


def test_a_dtype_that_the_source_refuses_is_not_chosen(ours: Path) -> None:
    op, tested = activation()
    draft = made(ours, (dataclasses.replace(op, dtypes=("float16", "float32")), tested))
    assert json.loads(config(draft))["dtype"] == "float16"


def test_a_pair_that_is_unpacked_becomes_two_keys(ours: Path) -> None:
    draft = made(ours, top_k())
    told = json.loads(config(draft))
    assert (told["num_experts"], told["topk"]) == (256, 6) and "experts" not in told
    assert "self.topk = " in runner(draft)


def test_a_tuple_that_stays_one_has_a_key_for_each_part(ours: Path) -> None:
    tested = trial(
        "x = torch.randn(shape, dtype=dtype)",
        "ref = x + 1",
        parameters=(parameter("shape", "(16, 32)", kind="other"), DTYPE),
        arguments={"x": "x"},
        outputs=(close("x", "ref"),),
    )
    draft = made(ours, (operator("add_one", "x!: Tensor"), tested))
    told = json.loads(config(draft))
    assert (told["shape_0"], told["shape_1"]) == (16, 32)
    assert "torch.randn((self.shape_0, self.shape_1), dtype=self.dtype)" in runner(draft)


def test_a_key_that_nothing_reads_is_left_out(ours: Path) -> None:
    op, tested = activation()
    unused = (*tested.parameters, parameter("verbose", "True", kind="bool"))
    draft = made(ours, (op, dataclasses.replace(tested, parameters=unused)))
    assert "verbose" not in config(draft) and "verbose" not in runner(draft)


def test_keys_of_the_base_class_stay_its_own(ours: Path) -> None:
    tested = trial(
        "x = torch.randn(samples, name, dtype=dtype)",
        "ref = x * 2",
        parameters=(parameter("samples", "8"), parameter("name", "16"), DTYPE),
        arguments={"x": "x"},
        outputs=(close("x", "ref"),),
    )
    draft = made(ours, (operator("double", "x!: Tensor"), tested))
    told = json.loads(config(draft))
    assert (told["case_samples"], told["case_name"], told["samples"]) == (8, 16, 1000)
    assert "self.name = " not in runner(draft)


def test_a_local_of_the_tests_that_hides_a_parameter(ours: Path) -> None:
    tested = trial(
        """
        x = torch.rand(16, 16, dtype=dtype)
        bound = torch.mean(x) if bound else None
        """,
        "ref = x if bound is None else torch.minimum(x, bound)",
        parameters=(parameter("bound", "True", "False", kind="bool"), DTYPE),
        arguments={"x": "x", "bound": "bound"},
        outputs=(close("out", "ref"),),
        result="out",
    )
    source = runner(made(ours, (operator("clip", "x: Tensor", "bound: Tensor?"), tested)))
    assert "bound = self.bound\n" in source and "self.bound = config.get" in source
    # What is timed does not take the parameter's place.
    assert "self.timed_bound" in method(source, "prepare_and_get_launcher")


def test_what_is_set_overrides_and_lists_sweep(ours: Path) -> None:
    given = {"d": [64, 128], "dtype": "float16", "samples": 7}
    draft = made(ours, activation(), settings=given, device_name="MetaX C600")
    told = json.loads(config(draft))
    assert told == {**told, **given, "device_name": "MetaX C600"}
    assert 'config.get("d", 64)' in runner(draft)


def test_an_unknown_key_is_refused_with_the_near_one(ours: Path) -> None:
    with pytest.raises(UsageError, match="num_tokens"):
        made(ours, activation(), settings={"num_token": 4})


def test_operators_that_allocate_take_few_samples(ours: Path) -> None:
    draft = made(ours, dequantising())
    assert json.loads(config(draft))["samples"] == 100 and "100 samples" in draft.notes[0]
    assert json.loads(config(made(ours, dequantising(), samples=9)))["samples"] == 9


def test_the_configuration_reads_like_the_shipped_ones(ours: Path) -> None:
    text = config(made(ours, activation(), settings={"d": [1, 2]}))
    assert text.startswith('{\n    "device_id": 0,\n    "device_name": "MetaX C500",\n')
    assert '\n    "d": [1, 2],\n' in text and text.endswith("\n}\n")


# The call.


def test_outputs_are_poisoned_and_what_was_timed_is_checked(ours: Path) -> None:
    source = runner(made(ours, activation()))
    check = method(source, "run_verification")
    assert check.index("self.poison(out)") < check.index("silu_and_mul(out, x)")
    assert "self._check(self.out, self.x)" in method(source, "verify_timed")


def test_an_established_base_gets_what_it_knows(established: Path) -> None:
    source = runner(made(established, activation()))
    for unknown in ("self.device(", "self.stream(", "self.moves(", "self.verify", "self.poison("):
        assert unknown not in source
    assert "with torch.cuda.stream(tc_s):" in source and "torch.cuda.synchronize()" in source
    assert "_poison(out)" in source and "self.check_diff(out, ref.to(out.dtype)" in source
    assert "self.x.numel() * self.x.element_size()" in source and not has(source, "verify_timed")


def test_what_is_overwritten_is_copied_for_the_reference_first(tree: Path) -> None:
    check = method(runner(made(tree, norm())), "run_verification")
    reference = check.index("_ref_fused_add_rms_norm(layer, x.clone(), residual.clone())")
    assert reference < check.index("torch.ops._C.fused_add_rms_norm(")
    assert "poison" not in check


def test_a_result_is_kept_by_a_method_of_its_own(tree: Path) -> None:
    source = runner(made(tree, returning()))
    assert "self.y = softcap_softmax(x, self.cap)" in method(source, "_call")
    assert "self.make_launcher(dev_id, self._call, self.x)" in source
    assert "from rowops.softcap import softcap_softmax" in source


def test_a_gap_among_the_arguments_is_filled_and_keywords_are_named(
    ours: Path, established: Path
) -> None:
    call = "topk_softmax(weights, indices, gating, self.renormalize, 0.0, bias=bias)"
    assert call in runner(made(ours, top_k()))
    # make_launcher of an established base takes no keywords.
    source = runner(made(established, top_k()))
    assert call in method(source, "_call") and "bias=" not in method(
        source, "prepare_and_get_launcher"
    )


def test_an_argument_that_the_test_does_not_pass_is_left_open(ours: Path) -> None:
    op, tested = activation()
    op = dataclasses.replace(op, arguments=(*op.arguments, *operator("x", "w: Tensor").arguments))
    draft = made(ours, (op, tested))
    (todo,) = draft.todos
    assert todo.what == "the unit test passes nothing for w (Tensor)"
    assert f"# TODO(mxfleet): {todo.what}" in runner(draft)


# What is moved.


def test_bytes_are_counted_from_the_tensors(ours: Path) -> None:
    moved = method(runner(made(ours, norm())), "define_metrics")
    assert "read=(self.x, self.residual, self.weight), written=(self.x, self.residual)" in moved
    moved = method(runner(made(ours, activation())), "define_metrics")
    assert "read=(self.x,), written=(self.out,)" in moved
    moved = method(runner(made(ours, returning())), "define_metrics")
    assert "read=(self.x,), written=(self.y,)" in moved


def test_of_a_cache_the_slots_are_counted(ours: Path) -> None:
    source = runner(made(ours, scatter()))
    moved = method(source, "define_metrics")
    assert "written=(self.key.numel() * self.key_cache.element_size(),)" in moved
    assert "# inferred: of key_cache the slots that key fills" in source


def test_of_a_paged_cache_the_filled_blocks_are_counted(ours: Path) -> None:
    op = operator(
        "attend",
        *("out!: Tensor", "query: Tensor", "key_cache: Tensor", "block_tables: Tensor"),
        *("seq_lens: Tensor", "block_size: int", "cos_sin_cache: Tensor", "positions: Tensor"),
    )
    names = [one.name for one in op.arguments if one.name != "block_size"]
    tested = trial(
        "\n".join(f"{name} = torch.empty(16, dtype=dtype)" for name in names),
        "ref = query + 1",
        parameters=(parameter("block_size", "16"), DTYPE),
        arguments={name: name for name in [*names, "block_size"]},
        outputs=(close("out", "ref"),),
    )
    moved = method(runner(made(ours, (op, tested))), "define_metrics")
    assert "(self.seq_lens + self.block_size - 1) // self.block_size" in moved
    assert "self.positions.unique().numel() * self.cos_sin_cache[0].numel()" in moved


def test_shapes_have_no_comma(tree: Path) -> None:
    for kind in KINDS.values():
        shape = re.search(r'add_summary\(\s*"Shape",(.*?)\)\n', runner(made(tree, kind())), re.S)
        assert shape is not None and "," not in shape[1].strip().rstrip(",")


# Verification.


def test_how_the_test_compares_is_how_the_runner_does(ours: Path) -> None:
    check = method(runner(made(ours, scatter())), "run_verification")
    assert "self.verify.exact(key_cache, cloned, name='key_cache')" in check
    check = method(runner(made(ours, top_k())), "_check")
    assert "self.verify.unordered(indices, ref_indices.int(), name='indices')" in check
    assert "if not self.renormalize:\n        self.verify.close(weights, ref_weights" in check
    # float32 weights need no reason, whatever the test allows.
    assert "threshold_reason" not in runner(made(ours, top_k()))


def test_a_loose_threshold_says_why(tree: Path) -> None:
    source = runner(made(tree, norm()))
    assert "least = 0.99999 if self.dtype is torch.bfloat16 else 0.999999" in source
    reason = re.search(r"threshold_reason = \((.*?)\n    \)", source, re.S)
    assert reason is not None and "the unit test allows atol=1e-2 rtol=1e-2" in reason[1]


def test_quantised_operators_are_held_to_their_own_rule(ours: Path) -> None:
    check = method(runner(made(ours, dequantising())), "_check")
    assert "self.verify.close(self.out, ref, limit=0.1, name='out')" in check
    assert "self.verify.cosine(self.out, ref, 0.999, name='out')" in check


def _quantising(scale: str) -> tuple[Operator, Trial]:
    op = operator("dynamic_int8_quant", "out!: Tensor", "x: Tensor", "azp!: Tensor?")
    tested = trial(
        f"""
        x = torch.randn(m, 64, dtype=dtype)
        out = torch.empty(m, 64, dtype=torch.int8)
        azp = {scale}
        """,
        "expected, expected_azp = quantise(x)",
        parameters=(
            parameter("m", "64"),
            parameter("symmetric", "True", "False", kind="bool"),
            DTYPE,
        ),
        arguments={"out": "out", "x": "x", "azp": "azp"},
        outputs=(
            close("out", "expected", atol="2", rtol="0"),
            close("azp", "expected_azp", how="exact", when="not symmetric"),
        ),
        helpers=("def quantise(x):\n    return x.char(), x.int()",),
    )
    return op, tested


def test_whole_numbers_are_held_to_the_steps_that_the_test_allows(ours: Path) -> None:
    text = runner(made(ours, _quantising("torch.empty(m, dtype=torch.int32)")))
    assert "limit=2," in text and 'reason="the unit test allows 2 steps"' in text
    assert "verify.cosine(out" not in text


@pytest.mark.parametrize(
    "made_by",
    [
        "None if symmetric else torch.empty(m, dtype=torch.int32)",
        "torch.empty(m, dtype=torch.int32) if not symmetric else None",
    ],
)
def test_an_optional_tensor_that_holds_nothing_is_an_output(ours: Path, made_by: str) -> None:
    text = runner(made(ours, _quantising(made_by)))
    assert "azp: [m], int32; written." in text
    assert "self.poison(out)\n        if azp is not None:\n            self.poison(azp)\n" in text


def test_what_was_concluded_is_told_in_words(ours: Path) -> None:
    op, tested = activation()
    arguments = tuple(dataclasses.replace(a, inferred=("mutated",)) for a in op.arguments)
    draft = made(ours, (dataclasses.replace(op, arguments=arguments), tested))
    assert "argument result, concluded from the code: written" in draft.inferred
    assert "argument input, concluded from the code: read only" in draft.inferred
    assert "mutated" not in runner(draft)


def test_what_was_set_is_not_said_to_be_the_test_s(ours: Path) -> None:
    text = runner(made(ours, activation(), settings={"num_tokens": 16}))
    assert "num_tokens: 16, as set." in text


def test_an_output_is_compared_as_it_is(ours: Path) -> None:
    check = method(runner(made(ours, norm())), "run_verification")
    # Not as float32, which would hold bfloat16 to the limits of float32.
    assert "self.verify.exact(residual, expected_residual, name='residual')" in check


def test_the_reference_takes_one_step_at_a_time(tree: Path) -> None:
    source = method(runner(made(tree, dequantising())), "_ref_awq_gemm")
    assert re.search(r"unpacked = .*>>.*&", source)
    assert re.search(r"dequantised = .*unpacked \* scales", source)
    assert "x @ dequantised" in source


def test_a_reference_that_reads_the_result_comes_after_the_call(ours: Path) -> None:
    tested = trial(
        """
        x = torch.randn(16, 16, dtype=dtype)
        scale = torch.empty(1, dtype=torch.float32)
        """,
        "ref = x / scale",
        parameters=(DTYPE,),
        arguments={"x": "x", "scale": "scale"},
        outputs=(close("x", "ref"),),
        copied=("x",),
    )
    op = operator("normalise", "x!: Tensor", "scale!: Tensor")
    check = method(runner(made(ours, (op, tested))), "run_verification")
    assert check.index("x_before = x.clone()") < check.index("normalise(x, scale)")
    assert check.index("normalise(x, scale)") < check.index("_ref_normalise(x_before, scale)")


def test_what_reads_an_output_is_no_part_of_the_reference(ours: Path) -> None:
    op, tested = activation()
    after = (
        "order = out.argsort(-1)",
        "ref_order = ref.argsort(-1)",
        "got = out.gather(-1, order)",
    )
    outputs = (close("got", "ref.gather(-1, ref_order)"),)
    draft = made(ours, (op, dataclasses.replace(tested, after=after, outputs=outputs)))
    reference = method(runner(draft), "_ref_silu_and_mul")
    assert "ref.argsort(-1)" in reference and "out" not in reference
    assert "order = out.argsort(-1)" in method(runner(draft), "_check")


def test_without_a_comparison_nothing_is_pretended(ours: Path) -> None:
    draft = made(ours, varied(activation(), outputs=(), reference=()))
    assert "return None" in method(runner(draft), "run_verification")
    assert [t.what for t in draft.todos] and "# TODO(mxfleet):" in runner(draft)


def test_todos_of_the_readers_are_in_the_runner(ours: Path) -> None:
    open_point = Todo("vllm.model_executor is not there", AT)
    draft = made(ours, varied(activation(), todos=(open_point, open_point)))
    assert draft.todos == (open_point,)
    assert f"# TODO(mxfleet): {open_point.what} ({AT})" in runner(draft)


# Foreign text.


def test_a_name_that_nothing_defines_is_left_open(ours: Path) -> None:
    op, tested = activation()
    prepare = (*tested.prepare, "x = x * case.scale")
    draft = made(ours, (op, dataclasses.replace(tested, prepare=prepare)))
    assert [todo.what for todo in draft.todos] == [
        "nothing defines case: the unit test has it from elsewhere"
    ]
    assert "# TODO(mxfleet): nothing defines case" in runner(draft)


def test_words_of_the_source_cannot_break_out_of_the_docstring(tree: Path) -> None:
    op, tested = activation()
    nasty = Constraint('x == """\\', 'end""" \\N{x} ' + "long " * 60, SOURCE)
    source = runner(made(tree, (dataclasses.replace(op, constraints=(nasty,)), tested)))
    text = ast.get_docstring(ast.parse(source))
    assert text is not None and "long long" in text and text.endswith(f"({SOURCE}).")


def test_a_tree_without_a_base_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="op_wrapper"):
        made(tmp_path, activation())
    (tmp_path / "mcoplib_mxbenchmark_op_wrapper.py").write_text("OpBenchmarkBase = 1\n")
    with pytest.raises(TreeError, match="there is no class OpBenchmarkBase"):
        made(tmp_path, activation())


def test_parts_that_make_no_module_are_told_in_a_sentence(ours: Path) -> None:
    with pytest.raises(TreeError, match=r"test_it.py:12: what the unit test does cannot be put"):
        made(ours, varied(activation(), helpers=("def silu_and_mul_ref(x, x): return x",)))


def _swapped(prepare: str, *outputs: Any, **more: Any) -> tuple[Operator, Trial]:
    op = operator("swap_blocks", "src: Tensor", "dst!: Tensor", "block_mapping: Tensor")
    tested = trial(
        f"""
        src = torch.randn(10000, block_size, 64, dtype=dtype)
        dst = torch.zeros(10000, block_size, 64, dtype=dtype)
        block_mapping = torch.randint(0, 10000, (256, 2))
        {prepare}
        """,
        "expected = src.clone()",
        parameters=(parameter("block_size", "16"), DTYPE),
        arguments={"src": "src", "dst": "dst", "block_mapping": "block_mapping"},
        outputs=outputs or (close("dst", "expected"),),
        **more,
    )
    return op, tested


def test_of_a_copy_the_blocks_that_are_named_are_counted(ours: Path) -> None:
    text = runner(made(ours, _swapped("")))
    part = "self.block_mapping.shape[0] * self.{0}[0].numel() * self.{0}.element_size()"
    assert part.format("src") in text and part.format("dst") in text
    assert "# inferred: of src the blocks that block_mapping names" in text


def test_a_flat_destination_is_not_taken_for_pages(ours: Path) -> None:
    op = operator("gather_cache", "src_cache: Tensor", "dst!: Tensor", "block_table: Tensor")
    tested = trial(
        """
        src_cache = torch.randn(512, 16, 64, dtype=dtype)
        dst = torch.empty(1024, 64, dtype=dtype)
        block_table = torch.randint(0, 512, (8, 16))
        """,
        "expected = src_cache[block_table].view(-1, 64)",
        parameters=(DTYPE,),
        arguments={"src_cache": "src_cache", "dst": "dst", "block_table": "block_table"},
        outputs=(close("dst", "expected"),),
    )
    text = runner(made(ours, (op, tested)))
    assert "written=(self.dst,)" in text
    words = " ".join(text.split())
    assert "self.block_table.numel() * self.src_cache[0].numel()" in words
    assert "state.add_element_count(self.dst.numel())" in words


@pytest.mark.parametrize("dialect", ["ours", "established"])
def test_what_only_moves_is_compared_bit_for_bit(
    dialect: str, request: pytest.FixtureRequest
) -> None:
    text = runner(made(request.getfixturevalue(dialect), _swapped("")))
    assert "cosine" not in text and "check_diff" not in text and "threshold_reason" not in text
    assert ("self.verify.exact(dst" in text) or ("torch.equal(dst" in text)


def test_another_name_of_an_output_is_the_output(ours: Path) -> None:
    other = made(ours, _swapped("first = dst[0]", close("first", "expected[0]")))
    assert not [note for note in other.notes if "does not compare" in note]
    none = made(ours, _swapped("first = dst[0]", close("src", "expected")))
    assert [note for note in none.notes if "does not compare dst" in note]


def test_what_hosts_may_lack_is_left_open(ours: Path) -> None:
    op, tested = activation()
    imports = (*tested.imports, "from einops import rearrange")
    helper = tested.helpers[0].replace("return F", "x = rearrange(x, 'a b -> a b')\n    return F")
    draft = made(ours, (op, dataclasses.replace(tested, imports=imports, helpers=(helper,))))
    assert [todo.what for todo in draft.todos] == [
        "the unit test imports einops, which hosts may lack: do it with torch"
    ]
