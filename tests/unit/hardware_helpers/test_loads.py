"""Known loads on a CUDA stub: cuBLAS, the driver API, what a load counts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial

import pytest

from tests.cuda_stub.stub import FIRST, MULTIPROCESSORS, SECOND
from tests.hardware import cublas, cuda
from tests.hardware.cublas import CublasMissingError, find, search_folders
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


# --- the ctypes side of the driver API, against a library whose prototypes are cuda.h's ---


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


# --- where cuBLAS is looked for, what is said where there is none, and the arguments of a product ---


def library(folder, major):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"libcublas.so.{major}"
    path.touch()
    return str(path)


def unknown(name):
    return False


def test_a_wheel_is_found_in_both_layouts_and_the_newest_that_the_driver_runs_is_taken(tmp_path):
    wheels = tmp_path / "nvidia"

    def look(driver):
        return find(driver, search_folders({}, [wheels], tmp_path / "none"), unknown)

    twelve = library(wheels / "cublas" / "lib", 12)
    assert look(13) == twelve
    thirteen = library(wheels / "cu13" / "lib", 13)
    assert (look(12), look(13), look(14)) == (twelve, thirteen, thirteen)


def test_a_toolkit_is_found_where_the_environment_says_or_in_its_usual_place(tmp_path):
    default = library(tmp_path / "default" / "lib64", 13)
    named = library(tmp_path / "named" / "targets" / "x86_64-linux" / "lib", 13)

    def look(environment):
        return find(13, search_folders(environment, (), tmp_path / "default"), unknown)

    assert look({}) == default
    assert look({"CUDA_HOME": ""}) == default
    assert look({"CUDA_PATH": str(tmp_path / "named")}) == named
    assert look({"CUDA_HOME": str(tmp_path / "named"), "CUDA_PATH": str(tmp_path / "default")}) == named


def test_what_the_loader_knows_by_name_comes_after_files_of_the_same_release(tmp_path):
    assert find(13, (), lambda name: name == "libcublas.so.12") == "libcublas.so.12"
    older = library(tmp_path, 12)
    assert find(13, [tmp_path], lambda name: True) == "libcublas.so.13"
    assert find(12, [tmp_path], lambda name: True) == older


@pytest.mark.parametrize(
    ("driver", "package", "releases", "soname"),
    [
        (12, "nvidia-cublas-cu12", "CUDA 12 is", "libcublas.so.12"),
        (13, "nvidia-cublas", "CUDA 13 or 12 is", "libcublas.so.13"),
        (14, "nvidia-cublas", "CUDA 13 or 12 is", "libcublas.so.13"),
    ],
)
def test_where_there_is_none_it_says_what_to_install(tmp_path, driver, package, releases, soname):
    if driver == 12:
        library(tmp_path, 13)  # newer than the driver: of no use
    with pytest.raises(CublasMissingError) as failure:
        find(driver, [tmp_path], unknown)
    said = str(failure.value)
    for part in (f"pip install {package}`", releases, soname, "LD_LIBRARY_PATH"):
        assert part in said


def test_a_driver_that_is_too_old_is_named():
    with pytest.raises(CublasMissingError, match="the driver runs CUDA 11, cuBLAS 12 needs a newer driver"):
        find(11, (), unknown)


def test_a_product_is_that_of_its_matrices_in_their_order(stub):
    # column by column: [[2, 1], [0, 1]] x [[1, 0], [1, 1]] = [[3, 1], [1, 1]]; the other way round it is [[2, 1], [2, 2]]
    nought, one, two, three = 0x0000, 0x3F80, 0x4000, 0x4040
    with cuda.opened(FIRST, stub.path) as gpu, cublas.opened(stub.path) as blas:
        left, right, result = gpu.allocate(8), gpu.allocate(8), gpu.allocate(8)
        for address, values in ((left, (two, nought, one, one)), (right, (one, one, nought, one))):
            for place, value in enumerate(values):
                gpu.fill(address + 2 * place, value, 1)
        gpu.fill(result, 0x7FC0, 4)  # NaN: nothing of what was there may stay
        blas.multiply(left, right, result, 2)
        gpu.wait()
        assert [gpu.word(result + 2 * place) for place in range(4)] == [three, one, one, one]


def test_memory_that_is_not_the_gpus_is_refused_with_the_call_and_its_code(stub):
    with cuda.opened(FIRST, stub.path) as gpu, cublas.opened(stub.path) as blas:
        matrix = gpu.allocate(8)
        with pytest.raises(CudaError, match="cublasGemmEx failed with code 7"):
            blas.multiply(matrix, matrix, matrix + 4, 2)


def test_without_a_context_there_is_no_handle(stub):
    with pytest.raises(CudaError, match="cublasCreate_v2 failed with code 1"), cublas.opened(stub.path):
        pass
