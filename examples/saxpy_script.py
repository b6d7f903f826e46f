"""A script for numba.cuda that knows nothing of gpusim: two kernels, device arrays, a copy back.

On a GPU: `python examples/saxpy_script.py`. Without one: `python cli.py profile examples/saxpy_script.py`,
which reports every launch; `--kernel-name`, `--launch-skip` and `--launch-count` choose some, as in ncu.
"""

import sys

import numpy as np
from numba import cuda


@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def scale_every(step, x):
    i = cuda.grid(1) * step
    if i < x.size:
        x[i] *= np.float32(0.5)


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    out = cuda.device_array_like(x)
    threads = 256
    blocks = (n + threads - 1) // threads
    saxpy[blocks, threads](np.float32(2), cuda.to_device(x), cuda.to_device(y), out)
    scale_every[(blocks + 7) // 8, threads](8, out)
    cuda.synchronize()
    got = out.copy_to_host()
    expected = np.float32(2) * x + y
    expected[::8] *= np.float32(0.5)
    print(f"largest error {np.abs(got - expected).max():.1e} over {n:,} elements")


if __name__ == "__main__":
    main()
