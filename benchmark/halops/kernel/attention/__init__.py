"""Attention: prefill over dense, paged and chunked keys, decoding with grouped heads and MLA."""
