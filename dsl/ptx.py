"""PTX instructions that numba.cuda lacks, under PTX's names: `from dsl import ptx`, then `ptx.mma_sync_...`.

They exist inside kernels only; docs/language.md says what each takes and gives. Using one on the host raises
UserError, a name that is not here AttributeError (in a kernel UnsupportedFeature).
"""

from __future__ import annotations

from dsl.intrinsics.device_name import DeviceName

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

(
    cvt_rn_f16x2_f32,
    cvt_rn_bf16x2_f32,
    cvt_rn_satfinite_e4m3x2_f32,
    cvt_rn_satfinite_e5m2x2_f32,
    cvt_rn_satfinite_e4m3x2_f16x2,
    cvt_rn_satfinite_e5m2x2_f16x2,
    cvt_rn_f16x2_e4m3x2,
    cvt_rn_f16x2_e5m2x2,
    cvt_rna_tf32_f32,
    mov_b32,
    mov_b32_f16x2,
    mov_b32_bf16x2,
    ex2_approx_ftz_f32,
) = (
    DeviceName(f"ptx.{name}")
    for name in (
        "cvt_rn_f16x2_f32",
        "cvt_rn_bf16x2_f32",
        "cvt_rn_satfinite_e4m3x2_f32",
        "cvt_rn_satfinite_e5m2x2_f32",
        "cvt_rn_satfinite_e4m3x2_f16x2",
        "cvt_rn_satfinite_e5m2x2_f16x2",
        "cvt_rn_f16x2_e4m3x2",
        "cvt_rn_f16x2_e5m2x2",
        "cvt_rna_tf32_f32",
        "mov_b32",
        "mov_b32_f16x2",
        "mov_b32_bf16x2",
        "ex2_approx_ftz_f32",
    )
)

ldmatrix_x1, ldmatrix_x2, ldmatrix_x4, ldmatrix_x1_trans, ldmatrix_x2_trans, ldmatrix_x4_trans = (
    DeviceName(f"ptx.ldmatrix_x{n}{trans}") for trans in ("", "_trans") for n in (1, 2, 4)
)
cp_async_ca, cp_async_cg, cp_async_commit_group, cp_async_wait_group, cp_async_wait_all = (
    DeviceName(f"ptx.cp_async_{name}") for name in ("ca", "cg", "commit_group", "wait_group", "wait_all")
)

__all__ = [
    "cp_async_ca",
    "cp_async_cg",
    "cp_async_commit_group",
    "cp_async_wait_all",
    "cp_async_wait_group",
    "cvt_rn_bf16x2_f32",
    "cvt_rn_f16x2_e4m3x2",
    "cvt_rn_f16x2_e5m2x2",
    "cvt_rn_f16x2_f32",
    "cvt_rn_satfinite_e4m3x2_f16x2",
    "cvt_rn_satfinite_e4m3x2_f32",
    "cvt_rn_satfinite_e5m2x2_f16x2",
    "cvt_rn_satfinite_e5m2x2_f32",
    "cvt_rna_tf32_f32",
    "ex2_approx_ftz_f32",
    "ldmatrix_x1",
    "ldmatrix_x1_trans",
    "ldmatrix_x2",
    "ldmatrix_x2_trans",
    "ldmatrix_x4",
    "ldmatrix_x4_trans",
    "mma_sync_m16n8k8_f32_tf32",
    "mma_sync_m16n8k16_f32_bf16",
    "mma_sync_m16n8k16_f32_f16",
    "mma_sync_m16n8k32_f32_e4m3",
    "mma_sync_m16n8k32_f32_e4m3_e5m2",
    "mma_sync_m16n8k32_f32_e5m2",
    "mma_sync_m16n8k32_f32_e5m2_e4m3",
    "mov_b32",
    "mov_b32_bf16x2",
    "mov_b32_f16x2",
]
