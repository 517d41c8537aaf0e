"""What attention over paged sequences has to do: FLOPs and bytes by the actual lengths."""

from __future__ import annotations

from core import metrics

from kernel.attention.sequences import Sequences


def count_work(inputs: Sequences, *, shared_latent: bool = False) -> metrics.Work:
    """FLOPs and bytes of one call; ``shared_latent``: values are a part of the keys' rows (MLA)."""
    heads, head_dim = inputs.q.shape[1:]
    pairs = sum(
        metrics.attended_pairs(q_len, kv_len, inputs.causal)
        for q_len, kv_len in zip(inputs.q_lens, inputs.kv_lens, strict=True)
    )
    read, written = metrics.attention_bytes(
        inputs.q_lens,
        inputs.kv_lens,
        num_q_heads=heads,
        num_kv_heads=inputs.k_pages.shape[2],
        head_dim_qk=head_dim,
        head_dim_vo=inputs.head_dim_vo,
        q_bytes=inputs.q.element_size(),
        kv_bytes=inputs.k_pages.element_size(),
        out_bytes=inputs.out_dtype.itemsize,
        page_size=inputs.page_size,
        scale_bytes=inputs.scale_bytes,
        shared_latent=shared_latent,
    )
    flops = metrics.attention_flops(heads, head_dim, inputs.head_dim_vo, pairs)
    return metrics.Work(flops, read, written, metrics.compute_class(inputs.q.dtype))
