"""The rules of one warp access, written with sets: trace records, sectors and shared-memory wavefronts.

What it models: the same as gpusim/coalescer.py, gpusim/atomics.py and gpusim/shared.py, which are fast;
this is what they are compared with. Facts 1, 8, 17 and 18 of the H200 notes. What it leaves out: time and
arbitration. Checked by `l1tex__t_requests_*`, `l1tex__t_sectors_*` and
`l1tex__data_pipe_lsu_wavefronts_mem_shared_op_*`.

`lanes` maps a lane to the byte address of its element; lanes that are off are not in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from gpusim import trace

BANKS, WORD_BYTES, ROW_BYTES = 32, 4, 16


def _pieces(address: int, size: int) -> list[tuple[int, int]]:
    """List the (line, sector in the line) that an element of `size` bytes touches."""
    first, last = address // trace.SECTOR_BYTES, (address + size - 1) // trace.SECTOR_BYTES
    per_line = trace.LINE_BYTES // trace.SECTOR_BYTES
    return [(sector // per_line, sector % per_line) for sector in range(first, last + 1)]


def records(
    lanes: Mapping[int, int] | list[tuple[int, int]], size: int, kind: trace.Kind, site: int
) -> list[int]:
    """Return the trace records of a load or store, lines ordered by the lowest lane that touches them.

    A list of (lane, address) may name a lane twice: an 8-byte local element is two words 128 bytes apart.
    """
    masks: dict[int, int] = {}
    for _, address in sorted(lanes.items() if isinstance(lanes, Mapping) else lanes):
        for line, sector in _pieces(address, size):
            masks[line] = masks.get(line, 0) | 1 << sector
    return [trace.pack(line, mask, kind, site, first=i == 0) for i, (line, mask) in enumerate(masks.items())]


def local_words(lanes: Mapping[int, int], size: int, base: int = 0) -> list[tuple[int, int]]:
    """Return the (lane, address) of each word that lanes touch in local memory, from offsets in their frames.

    Word w of the 32 lanes of a warp is 128 consecutive bytes from base + 128 w; an 8-byte element is two
    words.
    """
    return [
        (lane, base + o // 4 * 128 + lane * 4 + o % 4)
        for lane, first in lanes.items()
        for o in range(first, first + size, 4)
    ]


def atomic_records(lanes: Mapping[int, int], size: int, kind: trace.Kind, site: int) -> list[int]:
    """Return the records of a RED or ATOM: a line's k-th holds the sectors with an address of k lanes."""
    sharing: dict[int, dict[int, int]] = {}
    for lane in sorted(lanes):
        addresses = sharing.setdefault(lanes[lane] // trace.LINE_BYTES, defaultdict(int))
        addresses[lanes[lane]] += 1
    out: list[int] = []
    for line, addresses in sharing.items():
        for k in range(1, max(addresses.values()) + 1):
            sectors = {
                sector for address, n in addresses.items() if n >= k for _, sector in _pieces(address, size)
            }
            out.append(trace.pack(line, sum(1 << s for s in sectors), kind, site, first=not out))
    return out


def sectors(requests: list[int]) -> int:
    """Return the sectors of some records."""
    return sum((record & 15).bit_count() for record in requests)


def _passes(lanes: Mapping[int, int], size: int) -> int:
    """Return the largest number of different words that lanes want of one bank."""
    words_of_bank: dict[int, set[int]] = defaultdict(set)
    for address in lanes.values():
        for word in range(address // WORD_BYTES, (address + size - 1) // WORD_BYTES + 1):
            words_of_bank[word % BANKS].add(word)
    return max((len(words) for words in words_of_bank.values()), default=0)


def _agree(lanes: Mapping[int, int], distance: int) -> bool:
    """Say whether each lane and its partner read the same element; a lane that is off agrees with any."""
    return all(lanes.get(lane ^ distance, address) == address for lane, address in lanes.items())


def _part(lanes: Mapping[int, int], first: int, count: int) -> dict[int, int]:
    return {lane: address for lane, address in lanes.items() if first <= lane < first + count}


def wavefronts(lanes: Mapping[int, int], size: int, is_load: bool) -> int:
    """Return the wavefronts of one shared access of `size` bytes a lane (1 to 16).

    Up to 4 bytes: the whole warp at once. 8 bytes: two halves; 16: four quarters. Two neighbouring halves
    (quarters) of a load go as one where lanes l and l^1, or l and l^2, of them read the same element.
    """
    group = 32 * WORD_BYTES // max(size, WORD_BYTES)
    if group == 32:
        return _passes(lanes, size)
    total = 0
    for first in range(0, 32, 2 * group):
        pair = _part(lanes, first, 2 * group)
        if is_load and (_agree(pair, 1) or _agree(pair, 2)):
            total += _passes(pair, size)
        else:
            total += _passes(_part(pair, first, group), size) + _passes(
                _part(pair, first + group, group), size
            )
    return total


def ideal_wavefronts(lanes: Mapping[int, int], size: int) -> int:
    """Return the wavefronts of the same lanes side by side: halves or quarters with an active lane."""
    group = 32 * WORD_BYTES // max(size, WORD_BYTES)
    return len({lane // group for lane in lanes})


def matrix_wavefronts(rows: Mapping[int, int], matrices: int) -> int:
    """Return the wavefronts of one ldmatrix: those of the 8 rows of 16 bytes of each matrix, apart."""
    return sum(_passes(_part(rows, 8 * matrix, 8), ROW_BYTES) for matrix in range(matrices))


def copy_sectors(source: Mapping[int, int], target: Mapping[int, int]) -> int:
    """Return the sectors of a cp.async past L1: pairs of a source line and a destination sector (fact 37)."""
    pairs = {(source[k] // trace.LINE_BYTES, target[k] // trace.SECTOR_BYTES) for k in source}
    return len(pairs)


def copy_wavefronts(
    source: Mapping[int, int], target: Mapping[int, int], size: int, cache: str
) -> tuple[int, int]:
    """Return (wavefronts, ideal ones) of the shared memory that a cp.async writes (fact 37).

    None past L1 (cg). Else each half or quarter of the warp takes as many as lanes meet in a bank, where they
    read or where they write; lanes with equal addresses meet as well.
    """
    if cache == "cg":
        return 0, 0
    group = 32 * WORD_BYTES // max(size, WORD_BYTES)
    taken = sum(
        max(_crowd(_part(places, first, group), size) for places in (source, target))
        for first in range(0, 32, group)
    )
    return taken, min(taken, ideal_wavefronts(target, size))


def _crowd(lanes: Mapping[int, int], size: int) -> int:
    """Return the largest number of lanes whose elements begin in one bank."""
    banks = Counter(address // size * size // WORD_BYTES % BANKS for address in lanes.values())
    return max(banks.values(), default=0)
