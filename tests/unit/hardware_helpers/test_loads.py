"""The loads count what they do, run until told to stop, and say what went wrong."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial

import pytest

from tests.cuda_stub.stub import FIRST, MULTIPROCESSORS
from tests.hardware.cuda import CudaError
from tests.hardware.loads import Device, Load, Progress, Ready, bf16, copying, multiplying, running

KIB = 1024


def test_a_copy_counts_every_byte_twice(stub):
    with copying(FIRST, library=stub.path, size=64 * KIB, batch=3) as ready:
        assert ready.batch() == 2 * 64 * KIB * 3
        assert ready.device.multiprocessors == MULTIPROCESSORS


def test_a_product_counts_two_flops_for_each_of_size_cubed(stub):
    with multiplying(FIRST, library=stub.path, blas=stub.path, size=16, batch=2) as ready:
        before = stub.products
        assert ready.batch() == 2 * 16**3 * 2
        assert stub.products - before == 2


def test_a_product_that_comes_out_wrong_is_not_counted(stub):
    stub.break_products(2)
    with (
        pytest.raises(CudaError, match="element 255 of the product is 0x0000, not 16 in bf16"),
        multiplying(FIRST, library=stub.path, blas=stub.path, size=16, batch=2),
    ):
        pass


def test_bf16_bits_of_powers_of_two():
    # the upper half of the float32: 1.0 is 3F800000, 8192.0 is 46000000
    assert (bf16(1), bf16(2), bf16(8192)) == (0x3F80, 0x4000, 0x4600)
    with pytest.raises(ValueError, match="3 is not a power of two"):
        bf16(3)


def test_a_running_load_is_measured_amid_its_run_and_gives_everything_back(stub):
    load = Load("copy", "bytes", partial(copying, library=stub.path, size=64 * KIB, batch=4))
    with running(load, FIRST) as progress:
        progress.wait_until(progress.marks[0][0] + 0.05)
        (begun, _), ended = progress.marks[0], progress.marks[-1][0]
        assert progress.per_second(begun, ended) > 0
        assert progress.device == Device(MULTIPROCESSORS)
    assert all(
        later[1] - earlier[1] == 2 * 64 * KIB * 4
        for earlier, later in zip(progress.marks, progress.marks[1:], strict=False)
    )
    assert not [thread for thread in threading.enumerate() if thread.name == "load-copy"]


def test_a_load_that_cannot_begin_says_why(stub):
    with (
        pytest.raises(CudaError, match="no-such-library"),
        running(Load("copy", "bytes", partial(copying, library="no-such-library")), FIRST),
    ):
        pass


def counting(per_batch, fail_after=None):
    """A load of this process: counts, and fails after some batches."""

    @contextmanager
    def opened(pci_bus_id):
        done = 0

        def batch():
            nonlocal done
            done += 1
            if fail_after is not None and done > fail_after:
                raise CudaError("cuCtxSynchronize failed with code 719")
            return per_batch

        yield Ready(batch, Device(1))

    return Load("count", "units", opened)


def test_a_load_that_breaks_off_fails_the_measurement():
    with pytest.raises(CudaError, match="code 719"), running(counting(7, fail_after=3), FIRST) as progress:
        progress.wait_until(progress.marks[0][0] + 60)
    broken = Progress(Device(1), [(0.0, 0), (2.0, 100)], CudaError("code 719"))
    with pytest.raises(CudaError, match="code 719"):
        broken.per_second(0.0, 2.0)


def test_a_load_ends_by_itself_where_nobody_stops_it():
    moments = iter(range(1000))
    load = counting(5)
    with (
        running(load, FIRST, longest_seconds=10, clock=lambda: float(next(moments))) as progress,
        pytest.raises(CudaError, match="no batch ended within 0 s"),
    ):
        progress.wait_until(500.0, timeout_seconds=0.2)
    # one look at the clock before each batch and one after
    assert progress.marks[-1] == (10.0, 25)


def test_work_within_a_batch_is_taken_as_steady():
    progress = Progress(Device(1), [(0.0, 0), (2.0, 100), (4.0, 400)])
    assert progress.per_second(0.0, 4.0) == 100.0
    assert progress.per_second(0.0, 2.0) == 50.0
    assert progress.per_second(1.0, 3.0) == (250.0 - 50.0) / 2.0
    assert progress.per_second(3.0, 4.0) == 150.0
    for start, end in ((-1.0, 2.0), (1.0, 4.5), (3.0, 3.0)):
        with pytest.raises(ValueError, match="did not run"):
            progress.per_second(start, end)
