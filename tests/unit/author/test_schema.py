"""The schema parser against torch's own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.author import schema
from orchestrator.author.schema import SchemaError

torch = pytest.importorskip("torch")


def _theirs(text: str):
    return torch._C.parse_schema(text)


def _value(literal: str):
    """What a default's Python code stands for, as torch's schemas hold it."""
    value = eval(literal, {"torch": torch})  # our own output
    return [_code(each) for each in value] if isinstance(value, list) else _code(value)


def _code(value):
    if isinstance(value, torch.dtype):
        return (
            _theirs(f"f(ScalarType x={str(value).removeprefix('torch.')}) -> ()")
            .arguments[0]
            .default_value
        )
    return 0 if value in (torch.strided, torch.contiguous_format) else value


def _same_type(spelled: str, theirs) -> bool:
    return str(_theirs(f"f({spelled} x) -> ()").arguments[0].real_type) == str(theirs)


def _assert_same(text: str) -> None:
    """Both read the same out of ``text``, which torch accepts."""
    ours, theirs = schema.parse(text, type_variables=True), _theirs(text)
    assert f"{ours.namespace}::{ours.name}" == f"{'' if '::' in theirs.name else '::'}{theirs.name}"
    assert ours.overload == theirs.overload_name
    before, _, after = str(theirs).rpartition(" -> ")
    assert (ours.varargs, ours.varret) == ("..." in before, "..." in after)
    assert [a.name for a in ours.arguments] == [a.name for a in theirs.arguments]
    for mine, argument in zip(ours.arguments, theirs.arguments, strict=True):
        assert _same_type(mine.type, argument.real_type)
        assert mine.optional == str(argument.real_type).startswith("Optional")
        assert mine.is_tensor == (str(argument.real_type) in ("Tensor", "Optional[Tensor]"))
        assert mine.keyword_only == argument.kwarg_only
        assert mine.mutated == _writes(argument)
        if argument.has_default_value():
            value = _value(mine.default)
            assert type(value) is type(argument.default_value)
            assert value == argument.default_value
        else:
            assert mine.default is None
    assert [r.name or None for r in ours.returns] == [r.name or None for r in theirs.returns]
    for result, returned in zip(ours.returns, theirs.returns, strict=True):
        assert _same_type(result.type, returned.real_type)
        assert result.mutated == _writes(returned)


def _writes(argument) -> bool:
    return bool(argument.alias_info and argument.alias_info.is_write)


def _accepts(text: str) -> bool:
    try:
        _theirs(text)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def test_all_of_torchs_own_schemas_read_as_torch_reads_them() -> None:
    texts = {
        str(s) for s in torch._C._jit_get_all_schemas() + torch._C._jit_get_custom_class_schemas()
    }
    checked = 0
    for text in sorted(texts):
        if _accepts(text):  # torch prints some of its own in a way that it cannot read
            _assert_same(text)
            checked += 1
        else:
            with pytest.raises(SchemaError):
                schema.parse(text, type_variables=True)
    assert checked > 3000


_NAMES = st.sampled_from(["x", "out", "self", "_1", "weight_scale", "e4", "True_", "Tensor"])
_BASES = st.sampled_from(
    [
        *("Tensor", "Tensor(a!)", "Tensor(a|b! -> *)", "Tensor!", "int", "SymInt", "float", "bool"),
        *(
            "str",
            "Scalar",
            "ScalarType",
            "Device",
            "Layout",
            "MemoryFormat",
            "Generator",
        ),
        *("Any", "t", "Dict(str, Tensor)", "(int, Tensor)", "Future(int)", "Stream"),
        *("SymBool", "int(a!)", "Foo", "Storage", "Union(int, str)"),
    ]
)
_SUFFIXES = st.sampled_from(["", "", "", "?", "[]", "[]?", "?[]", "[2]", "[3]?", "[][]"])
_DEFAULTS = st.sampled_from(
    [
        *("", "", "", "=None", "=1", "=-1", "=1.5", "=-.5", "=1e-6", "=2j", "=True", "=False"),
        *("=Mean", "=long", "=float", "=half", "=strided", "=contiguous_format", "=[]", "=[1, 2]"),
        *("=[1.5]", "=[True]", "='a'", '="b\\n"', "='\\101'", "='\\q'", "=foo", "=inf", "=00"),
        *("=9223372036854775807", "=9223372036854775808", "=-9223372036854775808", "=1e999"),
        *("=[None]", "=['a']", "=[float]", "=[1j]", "=1E5"),
    ]
)
_ARGUMENTS = st.one_of(
    st.builds("{}{} {}{}".format, _BASES, _SUFFIXES, _NAMES, _DEFAULTS),
    st.sampled_from(["*", "...", "", "Tensor", "int x y", "*args"]),
)
_SCHEMAS = st.builds(
    "{}({}){}{}".format,
    st.sampled_from(["f", "ns::f", "f.out", "ns::f.a_b", "a::b::c", "f.default", "f.__x", "1f"]),
    st.lists(_ARGUMENTS, max_size=4).map(", ".join),
    st.sampled_from([" -> ", "->", "  ->\t", ""]),
    st.one_of(
        st.sampled_from(["()", "...", "(...)", "", "Tensor", "Tensor(a!)", "(Tensor a, Tensor b)"]),
        st.builds("{}{}".format, _BASES, _SUFFIXES),
        st.lists(st.builds("{}{} r".format, _BASES, _SUFFIXES), max_size=3).map(
            lambda each: f"({', '.join(each)})"
        ),
    ),
)


def _judge(text: str) -> None:
    if _accepts(text):
        _assert_same(text)
    else:
        with pytest.raises(SchemaError) as refused:
            schema.parse(text, "ops.cpp:3", type_variables=True)
        assert str(refused.value).startswith("ops.cpp:3: schema of ")
        assert 0 <= refused.value.offset <= len(text)


@settings(max_examples=1500, deadline=None)
@given(_SCHEMAS)
def test_what_torch_reads_we_read_and_what_it_refuses_we_refuse(text: str) -> None:
    _judge(text)


@settings(max_examples=800, deadline=None)
@given(st.data())
def test_one_character_more_or_less_is_judged_as_torch_judges_it(data: st.DataObject) -> None:
    text = data.draw(
        st.sampled_from(
            [
                "_C::rms_norm(Tensor! result, Tensor input, Tensor? w=None, float eps=1e-06) -> ()",
                "f.out(Tensor(a!)[] x, int[2] s=[1, 2], *, str q='a', ScalarType? d=None) -> "
                "(Tensor(a!) p, Tensor)",
            ]
        )
    )
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 2))
    new = data.draw(st.text("a1.!?*(),[]=->:'\"\\ \n#|$", max_size=2))
    _judge(text[:at] + new + text[at + cut :])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("f(int64_t x) -> ()", "unknown type 'int64_t', did you mean int?"),
        ("f(tensor x) -> ()", "did you mean Tensor?"),
        ("f(Tensor x", "expected ')', not 'the end'"),
        ("f(Tensor x) -> () -> ()", "expected nothing more, not '->'"),
        ("f(int x=1, int y) -> ()", "'y' has no default, but an argument before it has"),
        ("f(Tensor x=0) -> ()", "expected 'None', not '0'"),
        ("f(complex x=1) -> ()", "is no complex number"),
        ("f(" + "(" * 5000 + ") -> ()", "types nested deeper than 40"),
        ("f(Tensor " + "x" * 70000 + ") -> ()", "longer than 65536 characters"),
        ("\0\x1b[2J", "begins no token"),
        ("", "expected a name, not 'the end'"),
    ],
)
def test_a_wrong_schema_is_one_sentence_that_names_the_place(text: str, says: str) -> None:
    with pytest.raises(SchemaError) as refused:
        schema.parse(text, "ops.cpp:3")
    line = str(refused.value)
    assert line.startswith("ops.cpp:3: schema of ")
    assert says in line
    assert line.isprintable() and len(line) < 300


def test_what_an_operator_of_vllm_says_of_itself() -> None:
    read = schema.parse(
        "_C::rms_norm.out(Tensor! result, Tensor? weight, SymInt[2] sizes=1, *,"
        " ScalarType dtype=float, float epsilon=1e-6, str kind='a\\'b') -> (Tensor(a!) y, int[])"
    )
    assert (read.namespace, read.name, read.overload) == ("_C", "rms_norm", "out")
    result, weight, sizes, dtype, epsilon, kind = read.arguments
    assert result.mutated and not weight.mutated
    assert weight.optional and weight.is_tensor
    assert (sizes.type, sizes.default, sizes.keyword_only) == ("SymInt[2]", "[1, 1]", False)
    assert (dtype.default, dtype.keyword_only) == ("torch.float32", True)
    assert (epsilon.default, kind.default) == ("1e-06", '"a\'b"')
    assert [(r.type, r.name, r.mutated) for r in read.returns] == [
        ("Tensor", "y", True),
        ("int[]", "", False),
    ]


def test_a_size_of_millions_makes_no_list_of_millions() -> None:
    (argument,) = schema.parse("f(int[2147483647] x=1) -> ()").arguments
    assert argument.default == "[1] * 2147483647"


def test_names_alone() -> None:
    assert schema.parse_name("ns::f.out") == ("ns", "f", "out")
    for wrong in ("f()", "a::b::c", "", "f g"):
        with pytest.raises(SchemaError):
            schema.parse_name(wrong)
