"""The device and its context as scripts for numba.cuda ask about them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gpusim
from dsl import cuda
from gpusim.errors import BadOption, LaunchRefused, UnsupportedFeature


def test_the_current_device_is_the_gpu_of_the_session() -> None:
    with gpusim.profile(gpu="a100"):
        device = cuda.get_current_device()
        assert (device.name, device.compute_capability) == ("NVIDIA A100 SXM 80GB", (8, 0))
        assert (device.MULTIPROCESSOR_COUNT, device.WARP_SIZE) == (108, 32)
        assert device.MAX_THREADS_PER_BLOCK == 1024
        assert device.MAX_SHARED_MEMORY_PER_BLOCK == 49152
    with gpusim.profile(gpu="h200"):
        assert cuda.get_current_device().MULTIPROCESSOR_COUNT == 132
        assert cuda.get_current_device().MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == 232448


def test_a_device_says_which_narrow_floats_it_has() -> None:
    with gpusim.profile(gpu="a100"):
        assert cuda.is_float16_supported() and cuda.is_bfloat16_supported() and not cuda.is_fp8_supported()
    with gpusim.profile(gpu="h200"):
        assert cuda.is_fp8_supported()


def test_an_attribute_that_no_arch_holds_is_refused_by_name_and_hasattr_is_false() -> None:
    device = cuda.get_current_device()
    with pytest.raises(UnsupportedFeature, match=r"get_current_device\(\)\.PCI_BUS_ID is not in"):
        _ = device.PCI_BUS_ID
    assert not hasattr(device, "PCI_BUS_ID")


def test_there_is_one_device() -> None:
    assert len(cuda.gpus) == len(list(cuda.list_devices())) == 1
    assert cuda.gpus[0].id == cuda.gpus.current.id == cuda.select_device(0).device.id == 0
    with cuda.gpus[0] as device:
        assert device.id == 0
    with pytest.raises(BadOption, match="one simulated GPU, number 0; device 1"):
        cuda.select_device(1)


def test_free_memory_shrinks_by_what_is_allocated() -> None:
    with gpusim.profile():
        before = cuda.current_context().get_memory_info()
        _ = cuda.device_array(1000, np.float32)
        after = cuda.current_context().get_memory_info()
    assert (before.total, before.free - after.free) == (after.total, 4096)  # 4,000 bytes in units of 256


def test_devices_are_detected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cuda.detect()
    assert "id 0    NVIDIA H200 (simulated)" in capsys.readouterr().out


def test_blocks_that_pin_or_defer_do_nothing() -> None:
    with cuda.pinned(np.zeros(3)), cuda.defer_cleanup():
        cuda.close()


def test_an_argument_in_does_not_come_back_and_out_and_inout_do() -> None:
    @cuda.jit
    def one(x, y, z):
        x[0] = y[0] = z[0] = 1

    x, y, z = (np.zeros(1) for _ in range(3))
    one[1, 1](cuda.In(x), cuda.Out(y), cuda.InOut(z))
    assert (x[0], y[0], z[0]) == (0, 1, 1)


def test_the_time_between_events_is_nan_and_says_so_once() -> None:
    start, end = cuda.event(), cuda.event()
    with gpusim.profile() as session:
        start.record()
        end.record()
        assert session.remarks == []
        assert math.isnan(cuda.event_elapsed_time(start, end))
        assert math.isnan(start.elapsed_time(end))
    assert session.remarks == ["events: no clock; elapsed times are nan"]


def test_a_missing_name_is_refused_with_what_to_write() -> None:
    with pytest.raises(UnsupportedFeature, match="cuda.reduce is not in the simulated numba.cuda; write the"):
        _ = cuda.reduce
    with pytest.raises(UnsupportedFeature, match="^cuda.nosuch is not in the simulated numba.cuda$"):
        _ = cuda.nosuch


@pytest.mark.parametrize("shape", [-3, (2, -1), 1.5, (2, None), "3"])
def test_a_device_array_of_no_possible_shape_is_refused(shape: object) -> None:
    with pytest.raises(LaunchRefused, match="extents are whole numbers from 0 on"):
        cuda.device_array(shape)  # type: ignore[arg-type]
