"""bench/rows.py: numpy's side of each comparison gives the kernel's outputs."""

import pytest

from bench.rows import SAME_ROWS
from kernels_sim import find
from kernels_sim.check import largest_error
from kernels_sim.problem import Data

SMALL = {
    "standard_attention": {"N": 40, "d": 8},
    "standard_attention_backward": {"N": 40, "d": 8},
    "softmax_merge": {"parts": 3, "rows": 9, "d": 4},
    "qk_norm_rope": {"tokens": 5, "heads": 2, "d": 16},
    "qkv_norm_rope_fp8_backward": {"tokens": 5, "heads": 2, "d": 16},
    "matmul_fp8": {"M": 5, "N": 16, "K": 48},
    "fp8_qkv_backward": {"tokens": 16, "model_dim": 32, "heads": 2, "d": 16},
    "fp8_qkv": {"tokens": 5, "model_dim": 32, "heads": 2, "d": 16},
}


@pytest.mark.parametrize("name", SAME_ROWS)
def test_numpys_side_gives_the_reference(name):
    spec = find(name)
    options = spec.options(**SMALL.get(name, {"T": 70, "d": 16, "B": 2}))
    problem = spec.build(options, Data(seed=2))
    found, expected = SAME_ROWS[name](problem, options), problem.reference()
    for x, (output, right) in zip(found, expected.items(), strict=True):
        assert largest_error(x, right) < 1e-5, output
