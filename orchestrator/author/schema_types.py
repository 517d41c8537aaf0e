"""The types of torch's function schemas, and the words that their defaults may be."""

from __future__ import annotations

# Base types, and how their defaults are written: a constant, None, a string, or not at all.
BASE = {
    **dict.fromkeys(("Scalar", "str", "float", "complex", "int", "SymInt", "bool"), "constant"),
    **dict.fromkeys(("ScalarType", "Layout", "MemoryFormat"), "constant"),
    **dict.fromkeys(("DeviceIndex", "ConstQuantizerPtr"), "constant"),
    **dict.fromkeys(("Tensor", "Generator", "Quantizer"), "none"),
    "Device": "string",
    **dict.fromkeys(("Storage", "QScheme", "Stream", "SymBool", "None", "NoneType"), "never"),
    **dict.fromkeys(("Capsule", "Any", "AnyClassType", "AnyEnumType"), "never"),
}
INTEGERS = frozenset(
    ("int", "SymInt", "ScalarType", "Layout", "MemoryFormat", "DeviceIndex", "ConstQuantizerPtr")
)
LISTED = INTEGERS | {"float", "complex", "bool"}  # what a list default may be made of
LARGEST = 1 << 63  # what no integer default reaches
WORDS = {
    "float": "torch.float32",
    "complex": "torch.complex64",
    "long": "torch.int64",
    "strided": "torch.strided",
    "contiguous_format": "torch.contiguous_format",
    "Mean": "1",
}
# What these words are where an integer is wanted.
CODES = {
    "torch.float32": "6",
    "torch.complex64": "9",
    "torch.int64": "4",
    "torch.strided": "0",
    "torch.contiguous_format": "0",
}
DEVICES = frozenset(
    [
        *("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga"),
        *("maia", "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone"),
    ]
)
DTYPES = frozenset(
    [
        *("bool", "double", "short", "int", "half", "cfloat", "cdouble", "chalf", "bfloat16"),
        *("bit", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex32", "complex64", "complex128", "qint8"),
        *("quint8", "qint32", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2"),
        *("bits8", "bits16", "float4_e2m1fn_x2", "float8_e8m0fnu", "float8_e4m3fn"),
        *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int1", "int2", "int3"),
        *("int4", "int5", "int6", "int7", "uint1", "uint2", "uint3", "uint4", "uint5"),
        *("uint6", "uint7"),
    ]
)
# What is written where a type of schemas is meant.
MEANT = {
    "double": "float",
    "float32": "float",
    "int64_t": "int",
    "int64": "int",
    "int32_t": "int",
    "string": "str",
    "tensor": "Tensor",
    "dtype": "ScalarType",
    "device": "Device",
}
