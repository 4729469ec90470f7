"""Open files: a process of its own, because a limit that was lowered cannot be raised again."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from llm_serving_exporter.files.descriptors import raise_descriptor_limit
from llm_serving_exporter.web.limits import Limits, fit_connections
most = raise_descriptor_limit()
print(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0], fit_connections(Limits(), most))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "said"), [(1024, 4096, "4096 4096 512"), (4096, 4096, "4096 4096 512"), (256, 1024, "1024 1024 256")]
)  # fmt: skip
def test_as_many_files_as_the_hard_limit_allows_and_clients_have_a_quarter_of_them(
    soft: int, hard: int, said: str
) -> None:
    words = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    assert subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.strip() == said
