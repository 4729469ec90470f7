"""Nodes with GPUs and a kubelet."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.nvml_stub.stub import StubState, loaded_stub
from tests.support.builders.recordings import page
from tests.support.servers.gpu_node import CARDS, Node
from tests.support.servers.kubelet import StubKubelet
from tests.support.servers.replica import Replica


@pytest.fixture
def server() -> Iterator[Replica]:
    with Replica({"/metrics": page("vllm-0.32", 50)}) as running:
        yield running


@pytest.fixture
def make_node(nvml_library: Path, tmp_path: Path, server: Replica) -> Iterator[Callable[..., Any]]:
    """Makes nodes, one after another: all share the one library of this process, whose state is the latest node's."""
    with ExitStack() as nodes:

        def make(name: str = "node-a", gpus: int = CARDS) -> Node:
            nodes.close()
            folder = tmp_path / name
            folder.mkdir()
            state = StubState(folder / "state", gpus=gpus)
            nodes.enter_context(loaded_stub(nvml_library, state.path))
            kubelet = nodes.enter_context(StubKubelet(folder / "kubelet.sock"))
            return Node(folder, state, kubelet, server, nodes)

        yield make


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    return make_node()
