"""One tensor-core instruction: a warp multiplies 16 x 16 by 16 x 8 numbers of 16 bits.

    python cli.py simulate examples/tensor_core.py:one_mma --grid 1 --block 32 \
        --arg 'a=float16[16,16]' --arg 'b=float16[16,8]' --arg 'c=float32[16,8]=zeros'

What to look at: one mma.sync of 4,096 FLOPs, exactly; and ldmatrix's 10 wavefronts where 6 would do. The rows
of `a_tile` are 32 bytes long, so that rows 0 and 4 of a matrix lie in the same banks.
"""

import numpy as np

from dsl import cuda, ptx


@cuda.jit
def one_mma(a, b, c):
    a_tile = cuda.shared.array((16, 16), np.float16, alignment=16)
    b_tile = cuda.shared.array((16, 8), np.float16, alignment=16)
    lane = cuda.threadIdx.x
    row, half = lane // 2, lane % 2 * 8
    ptx.cp_async_cg(a_tile, (row, half), a, (row, half), 16)
    if lane < 16:
        ptx.cp_async_cg(b_tile, (lane, 0), b, (lane, 0), 16)
    ptx.cp_async_commit_group()
    ptx.cp_async_wait_group(0)
    cuda.syncwarp()
    of_a = ptx.ldmatrix_x4(a_tile, (lane % 16, lane // 16 * 8))
    of_b = ptx.ldmatrix_x2_trans(b_tile, (lane % 16, 0))
    zero = np.float32(0)
    d = ptx.mma_sync_m16n8k16_f32_f16(of_a, of_b, (zero, zero, zero, zero))
    row, column = lane // 4, lane % 4 * 2
    c[row, column], c[row, column + 1] = d[0], d[1]
    c[row + 8, column], c[row + 8, column + 1] = d[2], d[3]
