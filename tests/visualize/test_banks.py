"""The banks: words of a warp by hand, and cells that agree with the counted wavefronts."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.errors import BadOption
from gpusim.launch import LineAccess
from visualize import banks
from visualize.run import Run


def access(step, kind="shared_load", requests=10, taken=10, line=1, **more):
    width = more.pop("element_bytes", 4)
    return LineAccess("dir/f.py", line, kind, "_t$", width, requests, 32 * requests, taken,
                      ideal_wavefronts=requests, step_bytes=step, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("step", "more", "cells"),
    [
        (4, {}, dict.fromkeys(range(32), 1)),
        (0, {}, {0: 1}),
        (128, {}, {0: 32}),
        (132, {}, dict.fromkeys(range(32), 1)),
        (8, {}, dict.fromkeys(range(0, 32, 2), 2)),
        (8, {"element_bytes": 8}, dict.fromkeys(range(32), 2)),
        (2, {"element_bytes": 2}, dict.fromkeys(range(16), 1)),
        (4, {"run_lanes": 16, "jump_bytes": 128}, dict.fromkeys(range(16), 2)),
        (4, {"run_lanes": 16, "jump_bytes": 64}, dict.fromkeys(range(32), 1)),
    ],
)
def test_a_bank_takes_a_pass_for_each_word_that_it_is_asked_for(step, more, cells):
    found = banks.words(access(step, **more))
    assert {bank: n for bank, n in enumerate(found) if n} == cells


def test_a_line_without_one_distance_between_lanes_has_no_cells():
    assert banks.words(access(None)) is None
    assert banks.words(access(4, kind="shared_atom")) is None


def test_the_cells_and_the_costs_are_drawn(make_launch, drawn):
    launch = make_launch(accesses=(access(4), access(128, taken=320, line=2), access(None, line=3)))
    figure = banks.figure([launch, Run("b", (launch,))])
    cells = np.ma.filled(figure.axes[0].images[0].get_array(), 0)
    assert cells.sum(axis=1).tolist() == [32, 32, 0] and cells[1, 0] == 32
    picture = drawn(figure)
    for text in ("f.py:1 _t$ load", " 10 wavefronts, no conflicts", " 320 wavefronts, 310 by conflicts",
                 "n/a: no one distance between lanes"):  # fmt: skip
        assert text in picture.texts
    assert picture.flaws == []


def test_equal_accesses_of_two_launches_are_one_row(make_launch):
    launch = make_launch(accesses=(access(4), access(0)))
    found = banks.rows(Run("a", (launch, launch)))
    assert [(a.step_bytes, a.taken) for a in found] == [(4, 20), (0, 20)]


def test_only_the_costliest_lines_are_drawn_and_the_title_says_so(make_launch, drawn):
    launch = make_launch(accesses=tuple(access(4, taken=10 + n, line=n) for n in range(18)))
    picture = drawn(banks.figure([launch]))
    assert "k\n16 of 18 accesses, those with most wavefronts" in picture.texts
    assert "f.py:1 _t$ load" not in picture.texts and "f.py:2 _t$ load" in picture.texts


def test_what_cannot_be_drawn_is_refused(make_launch):
    with pytest.raises(BadOption, match="does not tell accesses apart"):
        banks.figure([make_launch(engine="oracle")])
    with pytest.raises(BadOption, match="k does not use shared memory"):
        banks.figure([make_launch(accesses=(access(4, kind="global_load"),))])


@pytest.mark.parametrize("variant", ["tiled", "padded"])
def test_the_fullest_bank_times_requests_is_what_was_counted(variant):
    import cli

    settings = {"seed": 0, "atomic_order": None, "regs": None, "counts_only": True, "engine": "auto",
                "max_steps": None, "strict_index": False}  # fmt: skip
    options = {"rows": 64, "cols": 64, "variant": variant}
    (launch,) = cli.simulated("transpose", "h200", "cold", settings | options)
    shared = [a for a in launch.accesses if a.kind in banks.LANE_STEPS]
    assert [banks.words(a).max() * a.requests for a in shared] == [a.taken for a in shared]
    assert sum(a.taken for a in shared) == launch.counters.shared_load.wavefronts + (
        launch.counters.shared_store.wavefronts)  # fmt: skip
