"""Attention in torch, written as its definition, with torch's gradients in float64; and their recording.

    python -m tests.kernels_sim.autograd      writes tests/data/attention_gradients.npz

torch is imported where it is used: the recorded file needs none.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sim.attention import Shape

RECORD = Path(__file__).parents[1] / "data" / "attention_gradients.npz"
NAMES = ("O", "L", "dQ", "dK", "dV")
CASES = [
    Shape(5, Nk, 3, heads=4, causal=causal, q_start=q_start, scale=0.7, dv=2, group=group, window=window)
    for (Nk, q_start), causal, group, window in product(
        ((5, 0), (7, 2), (3, -2)), (False, True), (1, 2, 4), (0, 2))
]
"""Every combination of more, as many and fewer keys, causal, shared heads and a window; 4 heads of 5 rows."""


def inputs(shape: Shape, seed: int = 11) -> list[np.ndarray]:
    """Return Q, K, V and dO of N(0, 1), float64."""
    rng = np.random.default_rng(seed)
    sizes = ((shape.heads, shape.N, shape.d), (shape.kv_heads, shape.Nk, shape.d),
             (shape.kv_heads, shape.Nk, shape.dv), (shape.heads, shape.N, shape.dv))
    return [rng.standard_normal(size) for size in sizes]


def visible_keys(shape: Shape) -> Any:
    """Return whether a row sees a key, a torch tensor (N, Nk)."""
    import torch

    at = shape.q_start + torch.arange(shape.N)[:, None]
    key = torch.arange(shape.Nk)[None, :]
    visible = torch.ones(shape.N, shape.Nk, dtype=torch.bool)
    if shape.causal:
        visible &= key <= at
    if shape.window:
        visible &= key > at - shape.window
    return visible


def sdpa(Q: Any, K: Any, V: Any, shape: Shape) -> np.ndarray:
    """Return O as torch's scaled_dot_product_attention has it, in float64; every row has to see a key."""
    import torch

    q, k, v = (torch.tensor(np.asarray(x, np.float64))[None] for x in (Q, K, V))
    found = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, visible_keys(shape), scale=shape.scale, enable_gqa=True)
    return found[0].numpy()


def autograd(Q: Any, K: Any, V: Any, dO: Any, shape: Shape) -> dict[str, np.ndarray]:
    """Return O, L and the gradients of sum(O * dO) as torch finds them."""
    import torch

    q, k, v = (torch.tensor(np.asarray(x, np.float64), requires_grad=True) for x in (Q, K, V))
    visible = visible_keys(shape)
    scores = shape.scale * q @ k.repeat_interleave(shape.group, 0).transpose(1, 2)
    weights = torch.where(visible, torch.exp(torch.where(visible, scores, 0.0)), 0.0)
    total = weights.sum(-1)
    o = weights / torch.where(total == 0, 1.0, total)[..., None] @ v.repeat_interleave(shape.group, 0)
    (o * torch.tensor(np.asarray(dO, np.float64))).sum().backward()
    found = (o, torch.log(total), q.grad, k.grad, v.grad)
    return {name: x.detach().numpy() for name, x in zip(NAMES, found, strict=True)}


def main() -> None:
    """Record the inputs and the answers of every case."""
    arrays = {}
    for i, shape in enumerate(CASES):
        given = inputs(shape)
        arrays |= {f"{i}.{name}": x for name, x in zip(("Q", "K", "V", "dO"), given, strict=True)}
        arrays |= {f"{i}.{name}": x for name, x in autograd(*given, shape).items()}
    np.savez_compressed(RECORD, **arrays)


if __name__ == "__main__":
    main()
