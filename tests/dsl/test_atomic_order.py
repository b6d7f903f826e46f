"""Other orders of a wave's blocks: atomics give other old values, and every counter stays."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import H200
from gpusim.scheduler import shuffled


@cuda.jit
def take_numbers(counter, number):
    """Let the first thread of each block draw a number."""
    if cuda.threadIdx.x == 0:
        number[cuda.blockIdx.x] = cuda.atomic.add(counter, 0, 1)


def drawn(seed, engine, blocks=10):
    """Return the number that each block drew, and the counters."""
    counter, number = np.zeros(1, np.int32), np.full(blocks, -1, np.int32)
    device = Device(H200, atomic_order=seed)
    counted = launch(take_numbers, blocks, 32, (counter, number), device, engine=engine).counters
    assert counter[0] == blocks
    return number, asdict(counted)


def test_without_a_seed_blocks_draw_in_the_order_of_their_numbers():
    assert drawn(None, "compiled")[0].tolist() == list(range(10))


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_a_seed_gives_every_engine_the_same_order_of_blocks(engine):
    order = shuffled(3, 0, 10)
    assert order.tolist() != list(range(10))
    number, _ = drawn(3, engine)
    assert number[order].tolist() == list(range(10))


@pytest.mark.parametrize("engine", ["compiled", "ir"])
def test_the_order_changes_no_counter(engine):
    assert drawn(3, engine)[1] == drawn(None, engine)[1]


def test_blocks_of_a_later_wave_come_after_those_of_an_earlier_one():
    wave = 132 * 32  # 132 SMs hold 32 blocks of a warp each
    number, _ = drawn(1, "compiled", wave + 100)
    assert number[:wave].max() < number[wave:].min()
