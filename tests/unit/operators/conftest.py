"""Makes the benchmark tree importable before the modules of this folder are collected."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmark"

if str(BENCHMARK) not in sys.path:
    sys.path.insert(0, str(BENCHMARK))
