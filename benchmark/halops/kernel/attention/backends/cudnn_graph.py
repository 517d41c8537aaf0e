"""cuDNN's fused attention through its own Python front end (``nvidia-cudnn-frontend``).

Source: the front end's documentation of ``pygraph.sdpa``.
"""

from __future__ import annotations

from typing import Any

import torch
from core.backends import Launch, need_cuda, require

from kernel.attention.sequences import Sequences


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> Launch:
    """A launch over [B, S, H, D] tensors that returns [B, Sq, Hq, Dvo]."""
    cudnn: Any = require("cudnn", "nvidia-cudnn-frontend")
    need_cuda(q, "cudnn")
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    # It takes [B, H, S, D] with any strides.
    tensors = [tensor.transpose(1, 2) for tensor in (q, k, v, out)]
    kinds = {torch.float16: cudnn.data_type.HALF, torch.bfloat16: cudnn.data_type.BFLOAT16}
    handle = cudnn.create_handle()
    graph = cudnn.pygraph(
        io_data_type=kinds[q.dtype],
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )
    nodes = [graph.tensor_like(tensor) for tensor in tensors[:3]]
    result, _ = graph.sdpa(
        name="sdpa",
        q=nodes[0],
        k=nodes[1],
        v=nodes[2],
        is_inference=True,
        attn_scale=scale,
        use_causal_mask_bottom_right=causal,
    )
    result.set_output(True).set_dim(list(tensors[3].shape)).set_stride(list(tensors[3].stride()))
    graph.build([cudnn.heur_mode.A])
    workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device=q.device)
    pack = dict(zip((*nodes, result), tensors, strict=True))

    def launch() -> torch.Tensor:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(pack, workspace, handle=handle)
        return out

    return launch


def prepare_sequences(inputs: Sequences) -> Launch:
    """The same over ``inputs``, gathered from their pages beforehand; returns [T, Hq, Dvo]."""
    launch = dense(*inputs.dense(), inputs.scale, inputs.causal and max(inputs.q_lens) > 1)
    return lambda: launch().flatten(0, 1)
