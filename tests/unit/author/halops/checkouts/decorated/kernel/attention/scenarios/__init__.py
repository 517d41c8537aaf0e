from .decode_sparse import run_decode_sparse

SCENARIOS = {}
SCENARIOS["decode_sparse"] = run_decode_sparse
