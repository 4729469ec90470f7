"""cuBLAS through ctypes: where its library is, and one bf16 matrix product. Without PyTorch, whose wheels bring the same library."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, byref, c_float, c_int, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tests.hardware.cuda import CudaError, Library

# newest first; 12 is the first major release that knows Hopper's and Blackwell's tensor cores
MAJORS = (13, 12)

# library_types.h and cublas_api.h
CUDA_R_16BF = 14
CUBLAS_COMPUTE_32F = 68
CUBLAS_GEMM_DEFAULT = -1
CUBLAS_OP_N = 0

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasDestroy_v2": (c_void_p,),
    "cublasGemmEx": (
        c_void_p, c_int, c_int, c_int, c_int, c_int,  # handle, transa, transb, m, n, k
        POINTER(c_float),  # alpha: of the compute type
        c_uint64, c_int, c_int,  # A, Atype, lda: device memory
        c_uint64, c_int, c_int,  # B, Btype, ldb
        POINTER(c_float),  # beta
        c_uint64, c_int, c_int,  # C, Ctype, ldc
        c_int, c_int,  # computeType, algo
    ),
}  # fmt: skip


class CublasMissingError(CudaError):
    """There is no cuBLAS that fits the driver; the message says what to install."""


class Cublas:
    """A handle on the context that is current in this thread."""

    def __init__(self, library: Library, handle: c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._one, self._zero = c_float(1.0), c_float(0.0)

    def multiply(self, left: int, right: int, result: int, size: int) -> None:
        """Hand over result = left x right: square bf16 matrices of `size`, sums in FP32. 2 x size^3 FLOPs."""
        matrix = (CUDA_R_16BF, size)
        self._library.call(
            "cublasGemmEx", self._handle, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size,
            byref(self._one), left, *matrix, right, *matrix, byref(self._zero), result, *matrix,
            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip


@contextmanager
def opened(path: str) -> Iterator[Cublas]:
    """cuBLAS on this thread's context. Raises CudaError where it cannot be used."""
    lt = Path(path).with_name(Path(path).name.replace("libcublas.", "libcublasLt."))
    if lt.is_file():  # beside it, but not in the loader's path: loaded first it is found by its name
        ctypes.CDLL(str(lt), mode=ctypes.RTLD_GLOBAL)
    library = Library(path, SIGNATURES)
    handle = c_void_p()
    library.call("cublasCreate_v2", byref(handle))
    try:
        yield Cublas(library, handle)
    finally:
        library.call("cublasDestroy_v2", handle)


def find(cuda_major: int, folders: Iterable[Path] | None = None, by_name: Callable[[str], bool] | None = None) -> str:
    """The library to load on a driver that runs CUDA up to that major release: its path, or its name where the loader knows it.

    `folders`: where to look, this machine's usual ones if None; `by_name`: whether the loader finds a name. Raises CublasMissingError.
    """
    if cuda_major < min(MAJORS):
        raise CublasMissingError(f"the driver runs CUDA {cuda_major}, cuBLAS {min(MAJORS)} needs a newer driver")
    places = tuple(search_folders(os.environ, nvidia_packages()) if folders is None else folders)
    for major in MAJORS:
        name = f"libcublas.so.{major}"
        if major > cuda_major:
            continue
        for folder in places:
            if (folder / name).is_file():
                return str(folder / name)
        if (by_name or _loads)(name):
            return name
    newest = min(cuda_major, max(MAJORS))
    package = "nvidia-cublas" if newest > 12 else "nvidia-cublas-cu12"
    raise CublasMissingError(
        f"no cuBLAS for CUDA {' or '.join(str(major) for major in MAJORS if major <= cuda_major)} is found: "
        f"`python -m pip install {package}` into this environment (over 500 MB unpacked), install the CUDA toolkit, or put the folder "
        f"that holds libcublas.so.{newest} into LD_LIBRARY_PATH before the tests start"
    )


def search_folders(
    environment: Mapping[str, str], packages: Iterable[Path], default: Path = Path("/usr/local/cuda")
) -> Iterator[Path]:
    """Where cuBLAS may lie outside of the loader's path: NVIDIA's wheels, which PyTorch's bring along, and the CUDA toolkit.

    `environment`: CUDA_HOME, CUDA_PATH. `packages`: folders of the namespace package `nvidia`; its wheels keep the library in
    `cublas/lib` (CUDA 12) or `cu13/lib`. `default`: the toolkit where neither variable is set.
    """
    for package in packages:
        yield from sorted(package.glob("*/lib"), reverse=True)
    toolkits = [Path(environment[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)]
    for toolkit in toolkits or [default]:
        yield toolkit / "lib64"
        yield from sorted(toolkit.glob("targets/*/lib"))


def nvidia_packages() -> tuple[Path, ...]:
    """Folders of NVIDIA's wheels in this environment."""
    spec = importlib.util.find_spec("nvidia")
    return tuple(Path(place) for place in (spec.submodule_search_locations or ())) if spec else ()


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
