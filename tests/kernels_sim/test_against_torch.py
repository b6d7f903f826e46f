"""Outputs and gradients of the attention kernels against torch on the CPU, in float64, torch at work.

`make test` holds the kernels to answers of torch that were recorded; these tests ask it now, over the product
of lengths, masks and shared heads. They need torch and fail without it.
"""

from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from kernels_sim import find
from kernels_sim.attention import Shape
from kernels_sim.check import largest_error
from kernels_sim.flash_row import heads_first
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from tests.kernels_sim.autograd import autograd, sdpa

pytestmark = pytest.mark.full

SHAPES = [
    Shape(37, Nk, 16, heads=4, causal=causal, q_start=q_start, scale=0.3, group=group, window=window)
    for (Nk, q_start), causal, group, window in product(
        ((37, 0), (50, 13), (20, -9)), (False, True), (1, 2, 4), (0, 7))
]
"""As many keys, more, and fewer with rows that see none; causal, shared heads and a window; 37 rows."""
PLAIN = [shape for shape in SHAPES if shape.group == 1 and not shape.window]
"""What the standard kernels have."""


class Kept(Data):
    """Make a problem's arrays and keep the random ones: Q, K, V and dO, in this order."""

    def __init__(self) -> None:
        super().__init__(seed=7)
        self.kept: list[np.ndarray] = []

    def normal(self, *shape, dtype=np.float32):
        self.kept.append(super().normal(*shape, dtype=dtype))
        return self.kept[-1]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


TILES = {"flash_forward": {"Br": 16, "Bc": 16}, "flash_backward": {"Br": 16, "Bc": 24},
         "flash_row_forward": {"Br": 32, "Bc": 16}}  # fmt: skip


def options_of(name, shape):
    """Return a shape as the options of a kernel."""
    given = {"d": shape.d, "causal": shape.causal, "q_start": shape.q_start, "scale": shape.scale}
    if name.startswith("flash_row"):
        given |= {"T": shape.N, "Tk": shape.Nk, "H": shape.heads, "HKV": shape.kv_heads}
    else:
        given |= {"N": shape.N, "Nk": shape.Nk, "heads": shape.heads}
    if name in ("flash_forward", "flash_backward"):
        given |= {"kv_heads": shape.kv_heads}
    return given | ({"window": shape.window} if name.startswith("flash") else {}) | TILES.get(name, {})


def solve(device, name, shape, **more):
    """Run a kernel on a shape; return (inputs, outputs), each (heads, rows, d), or (heads, rows) for L."""
    data = Kept()
    problem = find(name).build(find(name).options(**options_of(name, shape) | more), data)
    run_problem(problem, device)
    as_heads = heads_first if name.startswith("flash_row") else lambda x: x.reshape(len(x), -1, shape.d)
    outputs = {k: x.reshape(shape.heads, shape.N) if k == "L" else as_heads(x)
               for k, x in problem.outputs.items()}  # fmt: skip
    return [as_heads(x) for x in data.kept], outputs


def assert_equal_to_torch(inputs, outputs, shape, tolerance=1e-5):
    dO = inputs[3] if len(inputs) == 4 else np.zeros((shape.heads, shape.N, shape.d))
    theirs = autograd(*inputs[:3], dO, shape)
    if shape.q_start >= 0:  # every row sees a key; where one does not, torch's own attention gives no number
        assert largest_error(sdpa(*inputs[:3], shape), theirs["O"]) <= 1e-12
    far = {name: largest_error(x, theirs[name]) for name, x in outputs.items()}
    assert [name for name, error in far.items() if not error <= tolerance] == [], far


@pytest.mark.parametrize("shape", PLAIN, ids=str)
@pytest.mark.parametrize("name", ["standard_attention", "standard_attention_backward"])
def test_the_standard_kernels_give_what_torch_gives(device, name, shape):
    assert_equal_to_torch(*solve(device, name, shape), shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["flash_forward", "flash_backward", "flash_row_forward", "flash_row_dq",
                                  "flash_row_dv", "flash_row_dk"])  # fmt: skip
def test_the_flash_kernels_give_what_torch_gives(device, name, shape):
    assert_equal_to_torch(*solve(device, name, shape), shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_deterministic_backward_pass_gives_what_torch_gives(device, shape):
    assert_equal_to_torch(*solve(device, "flash_backward", shape, deterministic=True), shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1.6e-2)])
def test_the_tensor_cores_give_what_torch_gives(device, shape, dtype, tolerance):
    for name, tiles in (("flash_forward", {}), ("flash_backward", {"Br": 32, "Bc": 16})):
        inputs, outputs = solve(device, name, shape, variant="mma", dtype=dtype, **tiles)
        assert_equal_to_torch(inputs, outputs, shape, tolerance)


def test_a_gradient_that_is_a_thousandth_off_is_found(device):
    inputs, outputs = solve(device, "flash_backward", SHAPES[0])
    outputs["dK"][0, 0, 0] += 1e-3 * np.abs(outputs["dK"]).max()
    with pytest.raises(AssertionError, match="dK"):
        assert_equal_to_torch(inputs, outputs, SHAPES[0])
