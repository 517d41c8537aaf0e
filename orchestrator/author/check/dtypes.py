"""The names of torch's dtypes, without importing torch; a test holds them against torch itself."""

from __future__ import annotations

from orchestrator.inventory.spelling import near

DTYPES = frozenset(
    {
        *("float", "float16", "float32", "float64", "half", "double", "bfloat16"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn_x2", "bit", "bool", "int", "long", "short"),
        *(f"int{bits}" for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)),
        *(f"uint{bits}" for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)),
        *(f"bits{bits}" for bits in ("1x8", "2x4", "4x2", "8", "16")),
        *("complex32", "complex64", "complex128", "chalf", "cfloat", "cdouble"),
        *("qint8", "qint32", "quint8", "quint2x4", "quint4x2"),
    }
)
# What people write elsewhere and mean without a doubt.
SHORT = {
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
    "fp64": "float64",
    "f64": "float64",
    "bf16": "bfloat16",
    "i8": "int8",
    "i32": "int32",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


def is_dtype(text: str) -> bool:
    """Whether the harness takes ``text`` for a dtype: ``float16``, ``torch.float16``."""
    return text.removeprefix("torch.") in DTYPES


def surely(text: str) -> str | None:
    """The dtype that a misspelt one is beyond doubt: another case, or a common short name."""
    word = text.strip().removeprefix("torch.").lower()
    return word if word in DTYPES else SHORT.get(word)


def probably(text: str) -> str | None:
    """The dtype that a misspelt one is most likely."""
    return surely(text) or near(text.removeprefix("torch."), DTYPES)
