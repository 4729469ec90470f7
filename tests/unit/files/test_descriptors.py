"""Open files: a process of its own, because a limit that was lowered cannot be raised again."""

from __future__ import annotations

import http.client
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.process

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from llm_serving_exporter.files.descriptors import raise_descriptor_limit
from llm_serving_exporter.web.crowd import Limits, fit_connections
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


SERVER = """
import os, resource, sys, time
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.exchange import Response
from llm_serving_exporter.web.server import WebServer
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
server = WebServer(WebConfig(listen_addresses=("127.0.0.1:0",)), {"/": {"GET": lambda _request: Response(200, "text/plain", b"ok")}})
server.start()
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    print(server.url, flush=True)
while not server.refusals.counts()["descriptors"]:
    time.sleep(0.01)
for one in taken:
    os.close(one)
sys.stdin.readline()
server.stop()
"""


def test_a_client_that_comes_while_no_file_can_be_opened_is_answered_when_one_can() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = urlsplit(server.stdout.readline().strip())
        client = http.client.HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE_SECONDS)
        client.request("GET", "/")
        assert client.getresponse().read() == b"ok"
        client.close()
        said, log = server.communicate("end\n", timeout=PATIENCE_SECONDS)
    assert said == ""
    assert log.count("\n") <= 1
