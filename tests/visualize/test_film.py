"""Frames on the clock of bytes: their sums are the counters of the report, to the byte."""

from __future__ import annotations

import numpy as np
import pytest

import cli
from gpusim.errors import UnsupportedFeature
from gpusim.launch import counter
from gpusim.trace import SECTOR_BYTES
from tests.visualize.film_support import FLASH, SETTINGS, STANDARD, film, level, watched
from visualize.film import films
from visualize.levels import PATHS

CASES = [FLASH, STANDARD, ("histogram", (("counts_only", False),)), ("vec_add", (("n", 5000),))]


@pytest.mark.parametrize("frames", [2, 7, 1000])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_summed_over_frames_are_the_counters_of_the_launches(case, frames):
    shown = film(*case, frames)
    for lv in shown.levels:
        unit = 1 if lv.box == "DRAM" else SECTOR_BYTES
        counted = sum(counter(x.counters, path) for x in shown.run.launches for path in PATHS[lv.key])
        assert (lv.key, int(lv.nbytes.sum())) == (lv.key, unit * counted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sectors_of_tiles_summed_over_frames_are_all_that_is_asked_for(case):
    shown = film(*case)
    assert shown.others == 0
    assert SECTOR_BYTES * sum(t.touched for t in shown.tensors) == shown.clock[-1]


def test_arrays_have_the_names_of_the_problem_and_of_one_name_are_one():
    shown = film(*STANDARD)
    assert [t.name for t in shown.tensors] == ["Q", "K", "S", "P", "L", "V", "O"]
    S = next(t for t in shown.tensors if t.name == "S")
    assert int(S.writes.sum()) == 64 * 64 // 8
    assert int(S.reads.sum()) == 3 * 64 * 64 // 8  # the softmax takes three passes


def test_q_is_read_at_the_start_and_o_written_at_the_end():
    shown = film(*FLASH)
    tensors = {t.name: t for t in shown.tensors}
    assert not tensors["Q"].reads[shown.frames // 2 :].any()
    assert not tensors["O"].writes[: shown.frames // 2].any() and tensors["O"].writes[-3:].any()


def test_films_share_a_clock_and_the_shorter_one_is_done_earlier():
    long, short = films([watched(*STANDARD), watched("vec_add", (("n", 1000),))], 10)
    assert long.frames == short.frames == 10 and long.frame_bytes == short.frame_bytes
    assert (long.clock[-1], short.clock[-1]) == (long.frame_bytes * 10, 3 * 125 * 32)
    assert short.ends < long.ends and not short.resident[short.ends + 1 :].any()
    assert (np.diff(long.clock) >= 0).all()


def test_a_frame_ends_at_most_one_step_before_its_place_on_the_clock():
    shown = film(*FLASH, frames=8)
    due = shown.frame_bytes * np.arange(1, 9)
    steps = watched(*FLASH)[1].launches[0].steps
    step = max(int(s.asked.sum()) for s in steps) * SECTOR_BYTES
    assert (shown.clock <= due + 1e-6).all() and (due - shown.clock < step).all()


def test_the_launches_lie_one_after_another_on_the_clock():
    shown = film(*STANDARD)
    assert [s.name for s in shown.sections] == ["scores", "softmax", "output"]
    assert [s.start_bytes for s in shown.sections[1:]] == [s.end_bytes for s in shown.sections[:-1]]
    assert shown.sections[-1].end_bytes == shown.clock[-1]
    assert (shown.section[0], shown.section[-1]) == (0, 2)


def test_closed_forms_are_those_of_all_launches_and_none_where_one_has_none():
    shown = film(*STANDARD)
    assert level(shown, "L1-load").closed_form == int(level(shown, "L1-load").nbytes.sum())
    assert level(shown, "L2-read").closed_form is None


def test_resident_blocks_hold_their_own_shared_memory_and_not_the_drivers():
    shown = film(*FLASH)
    assert shown.resident[0].sum() == 4 and shown.resident.max() == 1
    assert shown.shared_bytes[0] == 4 * 2 * 32 * 32 * 4  # K and V tiles
    assert not film("vec_add", (("n", 5000),)).shared_bytes.any()  # which has none


def test_a_warm_up_launch_is_not_in_the_film():
    cold, warm = film("vec_add", (("n", 1000),)), film("vec_add", (("n", 1000),), l2="warm")
    assert cold.clock[-1] == warm.clock[-1] and int(level(warm, "DRAM-read").nbytes.sum()) == 0


def test_a_run_that_nobody_watched_is_refused():
    run, log, names = watched(*FLASH)
    with pytest.raises(UnsupportedFeature, match="there is no animation of flash_forward: no trace"):
        films([(run, type(log)(132), names)], 5)


def test_a_launch_that_is_watched_counts_what_the_report_counts():
    (plain,) = cli.simulated(FLASH[0], "h200", "cold", SETTINGS | dict(FLASH[1]))
    assert watched(*FLASH)[0].launches[0].counters == plain.counters
