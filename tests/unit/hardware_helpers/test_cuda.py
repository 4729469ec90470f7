"""The ctypes side of the driver API, against a library whose prototypes are cuda.h's."""

from __future__ import annotations

import threading

import pytest

from tests.cuda_stub.stub import FIRST, MULTIPROCESSORS, SECOND
from tests.hardware import cuda
from tests.hardware.cuda import CudaError


def test_a_gpu_is_found_by_its_bus_id_whatever_cuda_counts(stub):
    for bus_id in (FIRST, SECOND, SECOND.lower()):
        with cuda.opened(bus_id, stub.path) as gpu:
            assert (gpu.multiprocessors, gpu.cuda_major) == (MULTIPROCESSORS, 13)
    with (
        pytest.raises(CudaError, match=r"no GPU at 00000000:2C:00.0 \(CUDA_VISIBLE_DEVICES\?\)"),
        cuda.opened("00000000:2C:00.0", stub.path),
    ):
        pass


def test_words_are_written_copied_and_read_back(stub):
    with cuda.opened(FIRST, stub.path) as gpu:
        source, target = gpu.allocate(8), gpu.allocate(8)
        assert source != target
        # addresses here need more than 32 bits: passed as a C int they would not be found
        assert source > 1 << 32
        gpu.fill(source, 0xBEEF, 4)
        gpu.copy(target, source, 6)
        gpu.wait()
        assert [gpu.word(target + offset) for offset in (0, 2, 4, 6)] == [0xBEEF, 0xBEEF, 0xBEEF, 0]


def test_a_failed_call_names_itself_and_its_code_and_frees_what_was_there(stub):
    with cuda.opened(FIRST, stub.path) as gpu:
        gpu.allocate(8)
        with pytest.raises(CudaError, match="cuMemAlloc_v2 failed with code 2"):
            gpu.allocate(1 << 40)
        assert stub.left == 2  # the context and 8 bytes
    assert stub.left == 0


def test_a_context_is_of_the_thread_that_opened_it(stub):
    failures = []

    def elsewhere(gpu: cuda.Gpu) -> None:
        try:
            gpu.wait()
        except CudaError as error:
            failures.append(str(error))

    with cuda.opened(FIRST, stub.path) as gpu:
        thread = threading.Thread(target=elsewhere, args=(gpu,))
        thread.start()
        thread.join()
    assert failures == ["cuCtxSynchronize failed with code 201"]


def test_without_the_library_or_with_another_it_says_so(tmp_path):
    with (
        pytest.raises(CudaError, match=r"no-such-libcuda\.so cannot be used"),
        cuda.opened(FIRST, "no-such-libcuda.so"),
    ):
        pass
    with pytest.raises(CudaError, match=r"libc\.so\.6 cannot be used: .*cuInit"), cuda.opened(FIRST, "libc.so.6"):
        pass
