"""What torch's functions and tensor methods do, as far as the rules need it: facts, no behaviour.

Names are those of torch without ``torch.``; methods those of tensors and generators.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Draw random numbers, from the global generator unless ``generator=`` is given.
RANDOM = _words(
    "rand randn randint randperm normal rand_like randn_like randint_like bernoulli multinomial "
    "poisson"
)
# Of these the numbers depend on an argument as well: probabilities, means.
DRAWN_FROM = frozenset({"bernoulli", "multinomial", "poisson", "normal"})
# Permutations order data; they are none themselves.
ORDERS = frozenset({"randperm"})
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"})
FILLED = _words(
    "zeros ones full zeros_like ones_like full_like arange linspace logspace eye range "
    "new_zeros new_ones new_full tril_indices triu_indices"
)
# Made of host data: a copy to the device, where it is made there.
FROM_HOST = frozenset({"tensor", "as_tensor", "from_numpy", "new_tensor", "scalar_tensor"})
MAKERS = RANDOM | EMPTY | FILLED | FROM_HOST
LIKE = frozenset(name for name in MAKERS if name.endswith("_like") or name.startswith("new_"))

# Methods that return another tensor over the same memory.
VIEWS = _words(
    "view view_as reshape reshape_as t transpose permute unsqueeze squeeze flatten unflatten "
    "expand expand_as narrow unbind split chunk tensor_split detach swapaxes swapdims movedim "
    "moveaxis as_strided select unfold diagonal requires_grad_"
)
VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})
# Methods that return the same contents in memory of their own (``to`` and its kin: perhaps).
COPIES = _words(
    "clone to float half bfloat16 double int long short char byte bool cpu cuda contiguous type "
    "type_as pin_memory numpy resolve_conj copy npu musa"
)
# The dtype that such a copy has.
COPY_DTYPES = {
    "float": "torch.float32",
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "double": "torch.float64",
    "int": "torch.int32",
    "long": "torch.int64",
    "short": "torch.int16",
    "char": "torch.int8",
    "byte": "torch.uint8",
    "bool": "torch.bool",
}
# Methods that fill a tensor with random numbers.
RANDOM_IN_PLACE = _words(
    "normal_ uniform_ random_ exponential_ bernoulli_ geometric_ log_normal_ cauchy_"
)
# Methods that tell something of a tensor without looking at what it holds.
SIZES = _words(
    "size stride numel nelement dim ndimension element_size data_ptr storage_offset is_contiguous "
    "is_floating_point get_device nbytes itemsize"
)
# Methods that wait for the device, or bring numbers to the host.
TO_HOST = frozenset({"item", "tolist", "cpu", "numpy"})
SEEDERS = _words(
    "torch.manual_seed torch.random.manual_seed torch.cuda.manual_seed torch.cuda.manual_seed_all"
)
# Functions of frameworks and of runners that seed everything, by their last name.
SEEDING_NAMES = frozenset({"set_random_seed", "seed_everything", "seed_all", "set_seed"})
STREAMS = frozenset(
    {
        *(f"torch.cuda.{name}" for name in ("stream", "Stream", "StreamContext", "ExternalStream")),
        *("self.stream", "self.as_torch_stream"),
    }
)
CONTEXTS = frozenset(
    {
        *(f"torch.{name}" for name in ("no_grad", "inference_mode", "enable_grad", "autocast")),
        *("torch.cuda.device", "torch.set_grad_enabled", "torch.amp.autocast"),
        *("contextlib.nullcontext", "contextlib.ExitStack"),
    }
)
DTYPE_ALIASES = {
    "torch.half": "torch.float16",
    "torch.float": "torch.float32",
    "torch.double": "torch.float64",
    "torch.int": "torch.int32",
    "torch.long": "torch.int64",
    "torch.short": "torch.int16",
}
SIZE_OF = {
    **dict.fromkeys(("torch.float16", "torch.bfloat16", "torch.int16"), 2),
    **dict.fromkeys(("torch.float32", "torch.int32"), 4),
    **dict.fromkeys(("torch.float64", "torch.int64"), 8),
    **dict.fromkeys(("torch.int8", "torch.uint8", "torch.bool"), 1),
    **dict.fromkeys(
        (f"torch.float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")), 1
    ),
}
# Methods of texts that are worked out.
TEXT_METHODS = _words(
    "lower upper strip lstrip rstrip replace removeprefix removesuffix startswith endswith "
    "casefold title capitalize"
)
# Libraries that hold operators; what else is imported is judged by ``rules.style``.
FRAMEWORKS = _words(
    "mcoplib vllm sgl_kernel sglang flashinfer flash_attn flash_mla triton xformers deep_gemm "
    "deepgemm lmdeploy tilelang causal_conv1d mamba_ssm fla apex bitsandbytes aiter "
    "transformer_engine torchao vllm_flash_attn"
)


def torch_name(path: str) -> str | None:
    """``randn`` for ``torch.randn``; None for what is no function of torch itself."""
    return path[len("torch.") :] if path.startswith("torch.") else None
