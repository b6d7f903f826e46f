"""Where machine code finds things: the words of the context, of a warp's frame, and the codes it returns.

What it models: nothing; it is the agreement between dsl/codegen/kernel.py (which writes code) and
dsl/engine/run.py (which calls it). Everything is an array of 64-bit words.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Ctx(IntEnum):
    """Number the words of the context that every call gets."""

    GLOBAL = 0
    """Host pointer of global address 0."""
    SHARED = 1
    TRACE = 2
    """Next free record."""
    TRACE_END = 3
    PARAMS = 4
    FRAMES = 5
    EXECS = 6
    """int64[blocks of the IR][3]: runs with 32 lanes, runs with fewer, lanes of those."""
    SITES = 7
    """int64[memory instructions][3]: sectors, wavefronts, ideal wavefronts found out at run time."""
    WRAPS = 8
    """int64[index checks]: lanes whose negative index was wrapped."""
    SCRATCH = 9
    """int64[4][32] addresses and numbers of the lanes, for calls."""
    NCTAID_X = 10
    NCTAID_Y = 11
    NCTAID_Z = 12
    CTAID_X = 13
    CTAID_Y = 14
    CTAID_Z = 15
    BLOCK = 16
    WARP = 17
    STEPS = 18
    """Parts of a step (ir.STEP_PARTS) that loops may take in each warp."""
    SHARED_BYTES = 19
    BARRIERS = 20
    """Barriers this block has passed."""
    PAST_END = 21
    """Threads of the block that have got to the end of the kernel, not out of it by a return before."""
    ERROR = 22
    ERROR_SITE = 23
    ERROR_MASK = 24
    ERROR_EXTENT = 25
    MARKED = 26
    """1 when this warp has a WARP mark in the trace of this region."""
    SHADOW = 27
    """Who is copying to each 4 bytes of shared memory (dsl/llvm/copies.py)."""
    ENDS = 28
    """int64 pointer: end of each block's records."""
    GATHERED = 29
    """Threads of the block whose predicate held at the barrier that warps are at now."""
    GATHERED_FROM = 30
    """Threads that have come to it."""
    BARRIER_HELD = 31
    """The two figures of the barrier just passed."""
    BARRIER_ARRIVED = 32
    ERROR_INDEX = 33
    """32 words: the lanes' indices, or what the error is about."""
    MOVES = 65
    """int64[ldmatrix and cp.async instructions][len(Moved)]."""
    GROUPS = 66
    """Groups of asynchronous copies of each thread (dsl/llvm/copies.py)."""
    STOP = 67
    """Parts of a step below which a loop stops: 0; the largest number once the host wants the code to end."""
    WORDS = 68


class Moved(IntEnum):
    """Number what is counted at run time of an ldmatrix (wavefronts) and of a cp.async."""

    SECTORS = 0
    WAVEFRONTS = 1
    IDEAL = 2
    REQUESTS = 3
    """With a lane that reads global memory."""
    LANES = 4
    """Lanes that read global memory, and what they read."""
    BYTES = 5


class Error(IntEnum):
    """Number what stopped a launch."""

    OUT_OF_BOUNDS = 1
    BARRIER = 2
    STEPS = 3
    TRACE_FULL = 4
    BARRIER_MIXED = 5
    WARP_MASK = 6
    """ERROR_INDEX holds the masks that the lanes named."""
    WARP_SOURCE = 7
    """ERROR_INDEX holds the lanes that the lanes read."""
    MISALIGNED = 8
    """ERROR_SITE is the memory instruction, ERROR_INDEX holds the lanes' addresses."""
    WARP_PARTIAL = 9
    """ERROR_MASK holds the lanes that came to an instruction of a whole warp, ERROR_SITE its number."""
    ROW_MISALIGNED = 10
    """A row of ldmatrix: ERROR_SITE is its number among moves, ERROR_INDEX holds the lanes' addresses."""
    SOURCE_MISALIGNED = 11
    TARGET_MISALIGNED = 12
    COPY_SIZE = 13
    """Of a cp.async, as before; ERROR_INDEX holds the bytes to take from global memory."""
    PENDING_COPY = 14
    """Bytes are touched that a copy is still filling: ERROR_MASK is the lane, ERROR_EXTENT the mark,
    ERROR_INDEX the address; ERROR_SITE is the number of a memory instruction, or MOVE_SITE + that of a move.
    """


class Frame(IntEnum):
    """Number the 64-bit words at the start of a warp's frame; pending masks and saved values follow."""

    LIVE = 0
    RESUME = 1
    STEPS = 2
    PENDING = 3


MOVE_SITE = 1 << 20
"""Added to the number of an ldmatrix or a cp.async, so that it differs from a memory instruction's."""
DONE = 0
FAILED = -1
SPLIT = -3
"""Some lanes of the warp wait at a barrier (ERROR_EXTENT counts them), others are elsewhere (ERROR_MASK).

The other warps still run on to the barrier.
"""
TRACE_SLACK_RECORDS = 136
"""Free records a request needs before it is written: marks, and at most 128 lines of one warp access (16
bytes a lane of local memory)."""
LANES_ALL = np.uint32(0xFFFFFFFF)
"""The mask of a full warp."""
