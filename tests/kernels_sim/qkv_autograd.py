"""The packed QKV projection with norm and rotation in torch, its gradients in float64; and their recording.

    python -m tests.kernels_sim.qkv_autograd      writes tests/data/qkv_gradients.npz

torch is imported where it is used: the recorded file needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parents[1] / "data" / "qkv_gradients.npz"
GIVEN = ("x", "weight", "qkv_scale", "factor1", "factor2", "grad_q", "grad_k", "grad_v")
FOUND = ("q", "k", "v", "qkv", "grad_qkv", "grad_x", "grad_weight", "grad_qkv_scale")
EPS = 2.0**-10


@dataclass(frozen=True)
class Case:
    """Hold the sizes of one projection: qkv = x (qkv_scale weight)^T, split into heads of Q, K and V."""

    tokens: int
    heads: int
    d: int
    v_dim: int
    rotary_dim: int
    paired: bool = False
    key_offset: bool = False
    model_dim: int = 5

    @property
    def width(self) -> int:
        """Return the columns of qkv."""
        return self.heads * (2 * self.d + self.v_dim)


CASES = [
    Case(4, 2, 6, 3, 6),
    Case(1, 1, 2, 1, 0, key_offset=True),
    Case(4, 3, 6, 8, 2, key_offset=True),
    Case(5, 1, 40, 2, 0, key_offset=True),
    Case(3, 2, 34, 5, 34, key_offset=True),
    Case(3, 4, 6, 5, 6, paired=True),
    Case(2, 2, 70, 1, 70, paired=True),
]


def inputs(case: Case, seed: int = 5) -> dict[str, np.ndarray]:
    """Return the inputs by GIVEN's names, N(0, 1) in float64; the factors too, so that none is 1 or 0."""
    rng = np.random.default_rng(seed)
    rows = (2 * case.tokens, case.heads // 2, case.d) if case.paired else (case.tokens, case.heads, case.d)
    factors = case.tokens, (2 if case.paired else 1) * case.d
    sizes = ((case.tokens, case.model_dim), (case.width, case.model_dim), (), factors, factors, rows, rows,
             (case.tokens, case.heads, case.v_dim))  # fmt: skip
    return {name: np.asarray(rng.standard_normal(size)) for name, size in zip(GIVEN, sizes, strict=True)}


def recorded(i: int) -> dict[str, np.ndarray]:
    """Return the recorded inputs and answers of case i by their names."""
    arrays = np.load(RECORD)
    return {name: arrays[f"{i}.{name}"] for name in GIVEN + FOUND}


def autograd(given: dict[str, np.ndarray], case: Case) -> dict[str, np.ndarray]:
    """Return the outputs and the gradients of sum(q grad_q + k grad_k) + sum(v grad_v), by FOUND's names."""
    import torch

    t = {name: torch.tensor(x, dtype=torch.float64) for name, x in given.items()}
    leaves = [t[name].requires_grad_() for name in ("x", "weight", "qkv_scale")]
    qkv = t["x"] @ (t["qkv_scale"] * t["weight"]).T
    qkv.retain_grad()
    q, k, v = forward(qkv, t["factor1"], t["factor2"], case)
    sum((y * t[f"grad_{name}"]).sum() for name, y in (("q", q), ("k", k), ("v", v))).backward()
    found = (q, k, v, qkv, qkv.grad, *(leaf.grad for leaf in leaves))
    return {name: x.detach().numpy() for name, x in zip(FOUND, found, strict=True)}


def forward(qkv: Any, factor1: Any, factor2: Any, case: Case) -> tuple[Any, Any, Any]:
    """Return q, k and v of torch's qkv (tokens, width): the norm and the rotation by their definition."""
    import torch

    tokens, heads, d = case.tokens, case.heads, case.d
    packed, v = qkv.split((2 * heads * d, heads * case.v_dim), dim=1)
    x = packed.reshape(tokens, 2 * heads, d)
    normal = x / torch.sqrt((x * x).mean(dim=2, keepdim=True) + EPS)
    halves = [head % 2 if case.paired else 0 for head in range(heads)] * 2
    a, b = (torch.stack([f[:, h * d : (h + 1) * d] for h in halves], dim=1) for f in (factor1, factor2))
    swapped = torch.stack((normal[..., 1::2], normal[..., ::2]), dim=3).reshape(x.shape)
    y = a * normal + b * swapped
    q, k = y[:, :heads], y[:, heads:]
    if case.key_offset:
        still = torch.cat((k[:1, :, case.rotary_dim :], normal[:-1, heads:, case.rotary_dim :]))
        k = torch.cat((k[..., : case.rotary_dim], still), dim=2)
    if case.paired:
        q, k = (z.reshape(2 * tokens, heads // 2, d) for z in (q, k))
    return q, k, v.reshape(tokens, heads, case.v_dim)


def main() -> None:
    """Record the inputs and the answers of every case."""
    arrays = {}
    for i, case in enumerate(CASES):
        given = inputs(case)
        arrays |= {f"{i}.{name}": x for name, x in (given | autograd(given, case)).items()}
    np.savez_compressed(RECORD, **arrays)


if __name__ == "__main__":
    main()
