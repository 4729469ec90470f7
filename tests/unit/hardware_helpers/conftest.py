"""The CUDA stub, built and loaded once. After each test everything taken from it must have been given back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cuda_stub.stub import CudaStub


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> CudaStub:
    return CudaStub(tmp_path_factory.mktemp("cuda_stub"))


@pytest.fixture
def stub(built: CudaStub) -> Iterator[CudaStub]:
    yield built
    built.break_products(0)
    assert built.left == 0, "contexts, memory and handles that were not given back"
