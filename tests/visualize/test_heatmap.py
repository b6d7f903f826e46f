"""The heatmap: sectors by hand from records, and sums that are the counters."""

from __future__ import annotations

import numpy as np
import pytest

import cli
from gpusim.errors import BadOption
from gpusim.trace import Kind, pack
from visualize import heatmap
from visualize.heatmap import Touched, Touches, tensor

SETTINGS = {"seed": 0, "atomic_order": None, "regs": None, "counts_only": True, "engine": "auto",
            "max_steps": None, "strict_index": False}  # fmt: skip


def seen(*records):
    touches = Touches()
    touches.begin([])
    touches.wave(np.array(records, np.uint64), np.array([0, len(records)]), np.zeros(1, np.int32), iter(()))
    return touches


def test_each_sector_of_a_mask_is_counted_at_its_address():
    touches = seen(pack(2, 0b1001, Kind.LOAD), pack(2, 0b0001, Kind.LOAD_L2), pack(3, 0b0010, Kind.RED))
    assert touches.counts["reads"].tolist() == [0] * 8 + [2, 0, 0, 1]
    assert touches.counts["writes"].tolist() == [0] * 13 + [1]


def test_barriers_and_local_memory_are_not_counted():
    touches = seen(pack(1, 0b1, Kind.BARRIER), pack(1, 0b1, Kind.WARP), pack(1, 0b1111, Kind.LOCAL_LOAD))
    assert sum(int(n.sum()) for n in touches.counts.values()) == 0


def test_a_tensor_has_the_sectors_from_its_address_on():
    of = tensor(seen(pack(2, 0b1111, Kind.STORE), pack(3, 0b0001, Kind.STORE)), "x", 256, (3, 16), 4)
    assert of.writes.tolist() == [1, 1, 1, 1, 1, 0] and of.total("reads") == 0
    assert heatmap.tiles(of, "writes").tolist() == [[1, 1], [1, 1], [1, 0]]


def test_a_tile_is_the_mean_of_its_sectors():
    of = heatmap.Tensor("x", (64, 8), 4, np.arange(64), np.zeros(64, int))
    assert heatmap.tiles(of, "reads")[:, 0].tolist() == [2 * k + 0.5 for k in range(32)]


def test_a_row_a_head_is_folded_so_that_tokens_go_downwards():
    touched = np.repeat([3, 1], 2048)  # the first half of 512 x 64 floats, and the second
    cells = heatmap.tiles(heatmap.Tensor("K", (1, 512 * 64), 4, touched, touched), "reads")
    assert cells.shape == (32, 8) and (cells[:16] == 3).all() and (cells[16:] == 1).all()


SHIPPED = [("standard_attention", {"N": 40}), ("transpose", {"rows": 70})]


@pytest.mark.parametrize(("kernel", "options"), SHIPPED)
def test_the_sums_of_a_shipped_problem_are_its_counters(kernel, options):
    touches, places = Touches(), {}
    _, launches = cli.simulated_problem(kernel, "h200", "cold", SETTINGS | options, touches, places)
    tensors = [tensor(touches, n, a.address, a.shape, a.dtype.itemsize) for n, a in places.items()]
    assert sum(t.total("reads") for t in tensors) == sum(x.counters.global_load.sectors for x in launches)
    assert sum(t.total("writes") for t in tensors) == sum(x.counters.global_store.sectors for x in launches)


def test_the_panels_are_the_tiles(drawn):
    touches = seen(pack(0, 0b1111, Kind.LOAD), pack(0, 0b0011, Kind.LOAD), pack(2, 0b0001, Kind.STORE))
    tensors = (tensor(touches, "_a$", 0, (2, 16), 4), tensor(touches, "b", 256, (5,), 4),
               tensor(touches, "untouched", 512, (8,), 4))  # fmt: skip
    picture = drawn(heatmap.figure([Touched("k", tensors), Touched("again", tensors[:1])]))
    panel = next(a for a in picture.figure.findobj() if a.get_gid() == "_a$-reads")
    assert panel.images[0].get_array().tolist() == [[2, 2], [1, 1]]
    assert {"_a$\n2 x 16", "b\n5", "6 sectors", "1 sectors", "0 sectors"} <= set(picture.texts)
    assert "untouched\n8" not in picture.texts and picture.flaws == []


def test_only_the_busiest_tensors_are_drawn_and_the_title_says_so(drawn):
    touches = seen(*(pack(2 * k, 0b1111 if k else 0b1, Kind.LOAD) for k in range(9)))
    tensors = tuple(tensor(touches, f"t{k}", 256 * k, (32,), 4) for k in range(9))
    texts = drawn(heatmap.figure([Touched("k", tensors)])).texts
    assert "k\nThe 8 tensors with most traffic" in texts
    assert "t0\n32" not in texts and "t1\n32" in texts
    assert "k" in drawn(heatmap.figure([Touched("k", tensors[1:])])).texts


def test_warm_caches_do_not_count_twice(tmp_path, monkeypatch):
    found = {}
    monkeypatch.chdir(tmp_path)
    for l2 in ("cold", "warm"):
        noted = lambda shown, l2=l2: found.setdefault(l2, shown) and figure(shown)  # noqa: E731
        monkeypatch.setattr(heatmap, "figure", noted)
        assert cli.run(["plot", "heatmap", "vec_add", "--n", "1000", "--l2", l2]) == 0
    totals = {l2: [t.total("reads") for t in shown[0].tensors] for l2, shown in found.items()}
    assert totals["cold"] == totals["warm"] == [125, 125, 0]


figure = heatmap.figure


def test_nothing_to_draw_is_refused():
    with pytest.raises(BadOption, match="no access to an array was seen"):
        heatmap.figure([Touched("k", (tensor(Touches(), "x", 0, (8,), 4),))])
