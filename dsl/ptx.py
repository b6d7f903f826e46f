"""PTX instructions that numba.cuda lacks, under PTX's names: `from dsl import ptx`, then `ptx.mma_sync_...`.

They exist inside kernels only; docs/language.md says what each takes and gives. Using one on the host raises
UserError, a name that is not here AttributeError (in a kernel UnsupportedFeature).
"""

from __future__ import annotations

from dsl.cuda import DeviceName

(
    mma_sync_m16n8k16_f32_f16,
    mma_sync_m16n8k16_f32_bf16,
    mma_sync_m16n8k8_f32_tf32,
    mma_sync_m16n8k32_f32_e4m3,
    mma_sync_m16n8k32_f32_e5m2,
    mma_sync_m16n8k32_f32_e4m3_e5m2,
    mma_sync_m16n8k32_f32_e5m2_e4m3,
) = (
    DeviceName(f"ptx.mma_sync_{shape}_f32_{types}")
    for shape, types in (
        ("m16n8k16", "f16"),
        ("m16n8k16", "bf16"),
        ("m16n8k8", "tf32"),
        ("m16n8k32", "e4m3"),
        ("m16n8k32", "e5m2"),
        ("m16n8k32", "e4m3_e5m2"),
        ("m16n8k32", "e5m2_e4m3"),
    )
)

__all__ = [
    "mma_sync_m16n8k8_f32_tf32",
    "mma_sync_m16n8k16_f32_bf16",
    "mma_sync_m16n8k16_f32_f16",
    "mma_sync_m16n8k32_f32_e4m3",
    "mma_sync_m16n8k32_f32_e4m3_e5m2",
    "mma_sync_m16n8k32_f32_e5m2",
    "mma_sync_m16n8k32_f32_e5m2_e4m3",
]
