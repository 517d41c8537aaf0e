"""GEMM scenarios: dense, and the two layouts in which mixture-of-experts models group them."""
