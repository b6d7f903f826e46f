"""The attention kernels in numpy with the same tiles; how long each takes to simulate in its default size.

numpy's side computes and counts nothing. Its loops are over tiles, splits or partitions as the kernel's
blocks are, so small ones cost it calls where the simulator pays for lanes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.rows import SAME_ROWS
from dsl.host.device import Device
from kernels_sim import find
from kernels_sim.problem import Data, Problem
from kernels_sim.run import run_problem

MOST_SECONDS = 5.0
"""What a kernel in its default size may take to simulate with all counters."""


def numpy_backward(problem: Problem, options: Any) -> list[np.ndarray]:
    """Return dQ, dK and dV of one head by the tiles of flash_backward, float32."""
    Q, K, V, dO, L = (x[0].astype(np.float32, copy=False) for x in problem.steps[1].args[:5])
    q, k, v, do = (x.reshape(-1, options.d) for x in (Q, K, V, dO))
    o, scale = problem.steps[0].args[0][0].reshape(do.shape), np.float32(options.d**-0.5)
    o = o.astype(np.float32, copy=False)
    delta = (do * o).sum(axis=1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for j in range(0, len(k), options.Bc):
        keys = slice(j, j + options.Bc)
        for i in range(0, len(q), options.Br):
            rows = slice(i, i + options.Br)
            p = np.exp(q[rows] @ k[keys].T * scale - L[rows, None])
            dv[keys] += p.T @ do[rows]
            ds = p * (do[rows] @ v[keys].T - delta[rows, None]) * scale
            dq[rows] += ds @ k[keys]
            dk[keys] += ds.T @ q[rows]
    return [dq, dk, dv]


def numpy_decode(problem: Problem, options: Any) -> list[np.ndarray]:
    """Return O of each head by the splits of flash_decode, float32, and merging their states."""
    Q, K, V = problem.steps[0].args[:3]
    bounds = [round(options.Nk * s / options.splits) for s in range(options.splits + 1)]
    found = []
    for head in range(len(Q)):
        q, k, v = Q[head], K[head].reshape(-1, options.d), V[head].reshape(-1, options.d)
        states = []
        for begin, end in zip(bounds, bounds[1:], strict=False):
            scores = q @ k[begin:end].T * np.float32(options.d**-0.5)
            m = scores.max(axis=1, initial=-np.inf)
            p = np.exp(scores - m[:, None])
            states.append((m, p.sum(axis=1), p @ v[begin:end]))
        found.append(merged(states))
    return found


def numpy_paged(problem: Problem, options: Any) -> list[np.ndarray]:
    """Return O of each sequence and head: pages gathered by partition as in paged_attention_v2, float32."""
    Q, K, V, table, lens = problem.steps[0].args[:5]
    size, scale = options.block_size, np.float32(options.d**-0.5)
    found = []
    for seq, head in np.ndindex(*Q.shape[:2]):
        kv, states = head // (Q.shape[1] // K.shape[1]), []
        for start in range(0, int(lens[seq]), options.partition_size):
            end = min(start + options.partition_size, int(lens[seq]))
            pages = table[seq, start // size : -(-end // size)]
            k = K[pages, kv].transpose(0, 2, 1, 3).reshape(-1, options.d)[: end - start]
            v = V[pages, kv].transpose(0, 2, 1).reshape(-1, options.d)[: end - start]
            scores = k @ Q[seq, head] * scale
            m = scores.max(keepdims=True)
            p = np.exp(scores - m)
            states.append((m, p.sum(keepdims=True), (p @ v)[None]))
        found.append(merged(states) if states else np.zeros((1, options.d), np.float32))
    return found


def merged(states: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the output of some rows, (rows, d), from states m (rows,), l (rows,) and o (rows, d)."""
    top, total, o = (np.array(x) for x in zip(*states, strict=True))
    weights = np.exp(top - top.max(axis=0))
    return (weights[..., None] * o).sum(axis=0) / (weights * total).sum(axis=0)[:, None]


SAME_TILES: dict[str, Callable[[Problem, Any], list[np.ndarray]]] = {
    "flash_backward": numpy_backward,
    "flash_backward mma": numpy_backward,
    "flash_decode": numpy_decode,
    "paged_attention_v2": numpy_paged,
    **SAME_ROWS,
}
"""Kernel, or kernel and variant -> the same tiles in numpy, float32, for a problem of its default options."""


def timed(name: str, device: Device, interleaved: Callable[..., list[float]]) -> tuple[float, float, float]:
    """Return the seconds of a first run, which compiles, of later ones, and of numpy's same tiles."""
    kernel, *variant = name.split()
    spec = find(kernel)
    options = spec.options(**({"variant": variant[0]} if variant else {}))
    problem = spec.build(options, Data(0))
    problem.reference = None
    start = time.perf_counter()
    run_problem(problem, device)
    first = time.perf_counter() - start
    numpy_s, later = interleaved(
        lambda: SAME_TILES[name](problem, options), lambda: run_problem(problem, device)
    )
    return first, later, numpy_s
