"""Small facts of framework test utilities, so that a runner needs none of them.

What a test asks its platform is answered as for a CUDA-like device (which MetaX's are); helpers of
plain arithmetic that many tests import are written out.
"""

from __future__ import annotations

import ast

_ANSWERS = {
    "is_cuda": "True",
    "is_cuda_alike": "True",
    "is_rocm": "False",
    "is_hip": "False",
    "is_xpu": "False",
    "is_cpu": "False",
    "is_tpu": "False",
    "is_hpu": "False",
    "is_fp8_fnuz": "False",
    "fp8_dtype": "torch.float8_e4m3fn",
}
_FUNCTIONS = {
    "cdiv": "def cdiv(a, b):\n    return -(-a // b)\n",
    "ceil_div": "def ceil_div(a, b):\n    return -(-a // b)\n",
    "round_up": "def round_up(x, y):\n    return -(-x // y) * y\n",
    "round_down": "def round_down(x, y):\n    return x // y * y\n",
    "next_power_of_2": (
        "def next_power_of_2(n):\n    return 1 if n < 1 else 1 << (n - 1).bit_length()\n"
    ),
}
_CONSTANTS = {
    "FP8_DTYPE": "FP8_DTYPE = torch.float8_e4m3fn",
    "STR_DTYPE_TO_TORCH_DTYPE": (
        "STR_DTYPE_TO_TORCH_DTYPE = {\n"
        '    "half": torch.half,\n'
        '    "bfloat16": torch.bfloat16,\n'
        '    "float": torch.float,\n'
        '    "fp8": torch.uint8,\n'
        '    "fp8_e4m3": torch.uint8,\n'
        '    "fp8_e5m2": torch.uint8,\n'
        '    "int8": torch.int8,\n'
        "}"
    ),
}


def definition(name: str) -> ast.stmt | None:
    """What a well-known name from a framework's module that is not at hand stands for."""
    text = _FUNCTIONS.get(name) or _CONSTANTS.get(name)
    return None if text is None else ast.parse(text).body[0]


class Platform(ast.NodeTransformer):
    """Answers what code asks ``current_platform`` and functions like ``is_hip()``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``current_platform.is_rocm()`` -> ``False``."""
        self.generic_visit(node)
        if node.args or node.keywords:
            return node
        function = node.func
        if isinstance(function, ast.Attribute) and _is_platform(function.value):
            answer = _ANSWERS.get(function.attr)
        elif isinstance(function, ast.Name):
            answer = _ANSWERS.get(function.id)
        else:
            answer = None
        if answer is None:
            return node
        return ast.copy_location(ast.parse(answer, mode="eval").body, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``current_platform.device_type`` -> ``"cuda"``."""
        self.generic_visit(node)
        if node.attr == "device_type" and _is_platform(node.value):
            return ast.copy_location(ast.Constant("cuda"), node)
        if node.attr == "hip" and ast.unparse(node.value) == "torch.version":
            return ast.copy_location(ast.Constant(None), node)
        return node


def _is_platform(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in ("current_platform", "platform", "current_platforms")
