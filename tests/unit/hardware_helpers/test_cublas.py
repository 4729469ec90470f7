"""Where cuBLAS is looked for, what is said where there is none, and the arguments of a product."""

from __future__ import annotations

import pytest

from tests.cuda_stub.stub import FIRST
from tests.hardware import cublas, cuda
from tests.hardware.cublas import CublasMissingError, find, search_folders
from tests.hardware.cuda import CudaError


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
