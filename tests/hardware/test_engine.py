"""A running engine on this GPU, driven through phases of load: every ratio that the product publishes, against an independent reading of
the GPU and the client's own counts. `LLM_ENGINE_URL=http://127.0.0.1:8000 make test-hardware ARGS="-k engine --log-cli-level=INFO"`.

What is held against what stands in judge.py.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

import pytest

from llm_serving_simulator.replay import Recording
from scripts.pack_recordings import DEFAULT_MEMBERS, pack
from tests.hardware.drive import record
from tests.hardware.judge import judge
from tests.hardware.witness import NoGpmError, NoGpuError, Witness
from tests.support.builders.h100 import open_run

pytestmark = pytest.mark.hardware

LOG = logging.getLogger(__name__)


def test_what_is_published_of_a_running_engine_is_what_its_gpu_and_its_client_count(tmp_path):
    url, config = os.environ.get("LLM_ENGINE_URL"), os.environ.get("LLM_ENGINE_CONFIG")
    if not url:
        pytest.skip("LLM_ENGINE_URL is not set: the address of a running engine, such as http://127.0.0.1:8000")
    try:
        witness = Witness(int(os.environ.get("LLM_ENGINE_GPU", "0")))
    except NoGpuError as error:
        pytest.fail(f"these tests need a real NVIDIA GPU: {error}")
    except NoGpmError as error:
        pytest.skip(str(error))
    with closing(witness):
        record(url, tmp_path / "engine", witness, config=Path(config) if config else None, said=LOG.info)
    packed = tmp_path / "engine.tar.xz"
    pack([tmp_path / "engine"], packed, DEFAULT_MEMBERS, None)
    found = judge(open_run(Recording.load(packed)))
    LOG.info("\n".join(found.lines))
    assert not found.faults, "\n".join(found.faults)
