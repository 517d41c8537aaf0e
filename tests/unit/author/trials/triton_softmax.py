"""Style: a Triton wrapper that returns a tensor, imported by another name; a partial of it."""
from functools import partial

import pytest
import torch

from kernels.softmax import row_softmax as triton_softmax

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.float16: (1e-2, 1e-3)}


@pytest.mark.parametrize("shape", [(4, 33), (128, 1024)], ids=str)
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("causal", [False])
def test_softmax(shape, dtype, causal):
    x = torch.randn(*shape, device=DEVICE, dtype=dtype)
    atol, rtol = TOLERANCES[dtype]
    op = partial(triton_softmax, causal=causal)
    torch.testing.assert_close(op(x, scale=0.5), torch.softmax(x.float() * 0.5, -1).to(dtype), atol=atol, rtol=rtol)
