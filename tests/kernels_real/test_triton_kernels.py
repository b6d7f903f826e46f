"""The Triton versions against the same references as the simulated kernels.

Without a GPU they run under Triton's interpreter (tests/conftest.py), which is right for float32 and float16;
with one they run compiled. bfloat16 and 8-bit floats: test_triton_fp8.py and test_triton_on_gpu.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("torch", reason="the Triton versions take torch's tensors; torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import kernels_real
import kernels_sim
from gpusim.errors import BadOption, LaunchRefused
from kernels_real.triton_kernels import interpreter
from kernels_real.triton_kernels.attention import sizes_of
from tests.kernels_real.triton_support import problem_of, require_right

pytestmark = pytest.mark.full


HALVES = ("float32", "float16")
MASKS = [{"causal": c, "window": w, "q_start": q} for c in (False, True) for w in (None, 20) for q in (0, -9)]
HEADS = ({"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2})


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("heads", HEADS, ids=("mha", "gqa"))
def test_flash_forward_is_right_for_every_mask(dtype: str, heads: dict[str, int]) -> None:
    for mask in MASKS:
        require_right("flash_forward", N=37, Nk=43, d=16, dv=24, Br=16, Bc=32, dtype=dtype, **heads, **mask)


@pytest.mark.parametrize(("Br", "Bc"), list(itertools.product((16, 64), (16, 64))))
def test_flash_forward_that_reads_seen_keys_alone_is_right_for_every_tile(Br: int, Bc: int) -> None:
    require_right("flash_forward", N=70, d=48, Br=Br, Bc=Bc, variant="mma", causal=True, window=30)


def test_a_row_that_sees_no_key_gives_0_and_minus_infinity() -> None:
    require_right("flash_forward", N=20, Nk=5, d=16, Br=16, Bc=16, causal=True, q_start=-12)


@pytest.mark.parametrize(("variant", "dtype"), [("simt", "float32"), ("simt", "float16"), ("mma", "float16")])
@pytest.mark.parametrize("deterministic", [False, True])
def test_flash_backward_is_right_for_every_mask(dtype: str, deterministic: bool, variant: str) -> None:
    tile = {"Br": 32, "Bc": 16} if variant == "mma" else {"Br": 16, "Bc": 32}
    for mask in MASKS:
        require_right("flash_backward", N=37, Nk=43, d=16, dv=32, heads=2, kv_heads=1, dtype=dtype,
                      deterministic=deterministic, variant=variant, **tile, **mask)


def test_flash_backward_without_a_key_and_with_batch_heads_and_odd_widths() -> None:
    require_right("flash_backward", N=20, Nk=0, d=16, dv=24, Br=16, Bc=16)
    require_right("flash_backward", N=20, d=20, dv=24, Br=16, Bc=16, heads=4, kv_heads=2, batch=2)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kernel", ["standard_attention", "standard_attention_backward"])
def test_standard_attention_is_right_in_both_directions(kernel: str, dtype: str) -> None:
    for causal, q_start in itertools.product((False, True), (0, -9)):
        require_right(kernel, N=37, Nk=50, d=40, dv=24, heads=2, causal=causal, q_start=q_start, dtype=dtype)
    require_right(kernel, N=5, Nk=3, d=16, batch=2, dtype=dtype)


@pytest.mark.parametrize("d", [0, 1, 24, 64])
def test_softmax_states_are_merged_with_and_without_o(d: int) -> None:
    require_right("softmax_merge", parts=5, rows=33 if d else 150, d=d)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "options",
    [
        {"Nq": 3, "Nk": 77, "splits": 5, "d": 24, "dv": 40, "heads": 4, "kv_heads": 2, "batch": 2},
        {"Nq": 1, "Nk": 130, "splits": 40, "d": 16, "heads": 2},
        {"Nq": 5, "Nk": 3, "splits": 5, "d": 16, "heads": 4, "kv_heads": 1},
        {"Nq": 1, "Nk": 0, "splits": 2, "d": 16, "heads": 1},
    ],
    ids=("ragged", "more splits than combine holds", "splits without keys", "no keys"),
)
def test_flash_decode_is_right(options: dict[str, int], dtype: str) -> None:
    require_right("flash_decode", dtype=dtype, **options)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize(("block_size", "partition_size"), [(16, 32), (12, 50), (64, 16)])
def test_paged_attention_is_right(block_size: int, partition_size: int, alibi: bool, dtype: str) -> None:
    require_right("paged_attention_v2", lens="77,30,5,0", block_size=block_size, dtype=dtype, alibi=alibi,
                  partition_size=partition_size, heads=4, kv_heads=2, d=24)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("how", [{}, {"paired": True}, {"key_offset": True}], ids=str)
@pytest.mark.parametrize(("d", "rotary_dim"), [(24, None), (64, 32), (2, 0)])
def test_qk_norm_rope_is_right(d: int, rotary_dim: int | None, how: dict[str, bool], dtype: str) -> None:
    require_right("qk_norm_rope", tokens=5, heads=4, d=d, rotary_dim=rotary_dim, dtype=dtype, **how)


# The interface


def test_preparing_launches_nothing_and_outputs_start_as_nan() -> None:
    import numpy as np

    prepared = kernels_real.prepare(problem_of("flash_forward", N=20, d=16, Br=16, Bc=16))
    assert all(np.isnan(x).all() for x in prepared.outputs().values())
    prepared.launch()
    assert not any(np.isnan(x).any() for x in prepared.outputs().values())
    prepared.refill()
    assert all(np.isnan(x).all() for x in prepared.outputs().values())


@pytest.mark.parametrize(
    ("kernel", "options", "configuration", "message"),
    [
        ("flash_forward", {"N": 20, "stats": True}, {}, "does not count rescalings"),
        ("flash_forward", {"Br": 24}, {}, "--Br must be a power of 2 of at least 16, got 24"),
        ("flash_backward", {"Bc": 4}, {}, "--Bc must be a power of 2 of at least 16, got 4"),
        ("flash_forward", {"N": 20, "q_start": -(1 << 30)}, {}, r"--q-start must be at most 2\*\*29"),
        ("flash_forward", {"N": 20, "window": 1 << 30}, {}, r"--window must be at most 2\*\*29"),
        ("paged_attention_v2", {"partition_size": 8192}, {}, "--partition-size must be at most 4096"),
        ("flash_forward", {}, {"warps": 4}, "no 'warps' to configure; there are: num_warps, num_stages"),
        ("flash_forward", {}, {"num_warps": 0}, "num_warps must be a whole number of at least 1, got 0"),
    ],
)
def test_what_a_version_does_not_take_is_refused_by_name(
    kernel: str, options: dict[str, Any], configuration: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadOption, match=message):
        kernels_real.run(problem_of(kernel, **options), "triton", **configuration)


def test_a_machine_without_a_gpu_or_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(interpreter, "IS_ON", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LaunchRefused, match="no GPU that torch can use is here; .* TRITON_INTERPRET=1"):
        kernels_real.run(problem_of("flash_forward", N=20), "triton")


def test_a_head_of_more_elements_than_32_bits_count_is_refused() -> None:
    options = kernels_sim.find("flash_forward").options(N=1 << 26)
    with pytest.raises(BadOption, match="a head must have fewer than 2.*31 elements, got 4,294,967,296"):
        sizes_of(options)
