"""A page of many targets: kept compressed, the same text as if it had been written whole."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import (
    LARGEST_WHOLE,
    PART_BYTES,
    Spool,
    combine_crc,
    encode,
    join_text,
    write_page,
)
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import WebConfig
from llm_serving_exporter.web.server import Request, Response, WebServer
from tests.support.builders.recordings import page
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.target_readings import change_reading
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.waiting import wait_until

TARGETS = 200
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def make_store() -> Store:
    store, snapshot = Store(), snapshot_of(page("vllm-0.32", 60).decode(), at=100.0)
    for number in range(TARGETS):
        target = Target(f"replica-{number:04}", f"http://127.0.0.1:{number + 1}")
        store.put_target(change_reading(store.add_target(target), snapshot=snapshot))
    return store


def make_registry(store: Store) -> CollectorRegistry:
    registry, setup = CollectorRegistry(), Setup(15.0, 20.0, "node")
    registry.register(ViewCollector(store.view, lambda: setup, lambda: 101.0))
    return registry


@pytest.fixture(scope="module")
def registry() -> CollectorRegistry:
    return make_registry(make_store())


def spooled(registry: CollectorRegistry, accept: str = "") -> Spool:
    found = write_page(registry, accept)[0]
    assert isinstance(found, Spool)
    assert len(found.parts) > 20
    return found


def text_of(spool: Spool) -> str:
    return b"".join(spool.read()).decode()


def test_what_is_sent_is_what_the_library_writes(registry: CollectorRegistry) -> None:
    assert text_of(spooled(registry)) == generate_latest(registry).decode()
    assert text_of(spooled(registry, OPENMETRICS)) == generate_openmetrics(registry).decode()


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_it_is_one_gzip_member_of_the_length_that_is_said(registry: CollectorRegistry, accept: str) -> None:
    found = spooled(registry, accept)
    sent = b"".join(found.read_gzip())
    assert len(sent) == found.gzip_bytes
    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
    text = reader.decompress(sent)
    assert (reader.eof, reader.unused_data) == (True, b"")
    assert len(text) == len(found) > 20 * len(sent)
    assert text == b"".join(found.read())


@pytest.mark.process
def test_all_samples_of_a_family_stand_together_and_promtool_is_silent(registry: CollectorRegistry) -> None:
    text = text_of(spooled(registry))
    types = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)) > 30
    # a strict reader, which refuses families that are told of twice
    samples = [
        sample for family in parse_openmetrics(text_of(spooled(registry, OPENMETRICS))) for sample in family.samples
    ]
    ups = {sample.labels["target"] for sample in samples if sample.name == "llm_serving_requests_running"}
    assert len(ups) == TARGETS
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing; `make test` installs it"
    checked = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.mark.process
def test_prometheus_stores_every_target_of_it(registry: CollectorRegistry, tmp_path: Path) -> None:
    def answer(request: Request) -> Response:
        body, content_type = write_page(registry, request.headers["accept"])
        assert isinstance(body, Spool)
        return Response(200, content_type, body)

    server = WebServer(WebConfig(listen_addresses=("127.0.0.1:0",)), {"/metrics": {"GET": answer}})
    server.start()
    try:
        job = f"{{job_name: page, scrape_interval: 1s, static_configs: [{{targets: ['{server.url.removeprefix('http://')}']}}]}}"
        with PrometheusServer(tmp_path, f"scrape_configs: [{job}]\n") as prometheus:
            wait_until(lambda: bool(prometheus.query("up == 1")), "a scrape")
            (count,) = prometheus.query("count(llm_serving_requests_running)")
            assert float(count["value"][1]) == TARGETS
            (samples,) = prometheus.query("scrape_samples_scraped")
            lines = text_of(spooled(registry)).splitlines()
            assert float(samples["value"][1]) == sum(not line.startswith("#") for line in lines)
    finally:
        server.stop()


def test_it_is_never_in_memory_as_text(registry: CollectorRegistry) -> None:
    """Not on its way either: what is pending is bounded by the number of families, not of targets."""
    size = len(spooled(registry))
    tracemalloc.start()
    try:
        found = spooled(registry)
        for _ in found.read():
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    families = text_of(found).count("# TYPE ")
    assert peak < 1.5 * families * PART_BYTES < size
    assert found.kept_bytes < size / 20


def test_a_target_that_fails_in_the_middle_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole, add = make_registry(make_store()), serving.add_serving
    expected = [
        line for line in encode(whole, "")[0].decode().splitlines() if "running" not in line or "0101" not in line
    ]

    def broken(families: object, reading: object) -> None:
        if reading.target.name == "replica-0101":
            raise RuntimeError("bug")
        add(families, reading)

    monkeypatch.setattr(serving, "add_serving", broken)
    found = text_of(spooled(whole)).splitlines()
    assert caplog.text.count("series of target replica-0101 could not be rendered") == 1
    assert 'target="replica-0101"' in "\n".join(found)  # its health
    assert {line for line in expected if "0101" not in line} == {line for line in found if "0101" not in line}


def test_a_page_shows_one_instant_whatever_happens_while_it_is_sent() -> None:
    store = make_store()
    registry = make_registry(store)
    found = spooled(registry)
    pieces = found.read()
    first = next(pieces)
    for number in range(TARGETS):
        store.remove_target(f"replica-{number:04}")
    text = (first + b"".join(pieces)).decode()
    assert text.count("\nllm_serving_requests_running{") == TARGETS
    assert b"replica-" not in encode(registry, "")[0]


def test_a_small_page_is_as_it_is() -> None:
    store = make_store()
    for number in range(4, TARGETS):
        store.remove_target(f"replica-{number:04}")
    found = write_page(make_registry(store), "")[0]
    assert isinstance(found, bytes)
    assert len(found) < LARGEST_WHOLE


SIZES = st.integers(0, 3 * PART_BYTES)


@given(st.lists(st.tuples(st.booleans(), SIZES), max_size=6), SIZES)
@example([(False, PART_BYTES), (True, 1), (False, 0)], 0)
@example([(True, 0), (True, PART_BYTES + 1), (False, PART_BYTES - 1), (False, 1)], 0)
@example([(False, 0)], 0)
def test_pieces_of_any_size_are_joined(pieces: list[tuple[bool, int]], largest: int) -> None:
    """Of text, and of what is compressed already."""
    given_pieces: list[str | Spool] = []
    whole = ""
    for number, (is_spool, size) in enumerate(pieces):
        text = (f"é{number}" * size)[:size]
        whole += text
        if is_spool:
            spool = Spool()
            spool.add_parts(text)
            given_pieces.append(spool)
        else:
            given_pieces.append(text)
    found = join_text(given_pieces, largest)
    if isinstance(found, bytes):
        assert found == whole.encode()
        assert len(whole) <= largest
    else:
        assert gzip.decompress(b"".join(found.read_gzip())) == b"".join(found.read()) == whole.encode()
        assert len(found) == len(whole.encode())


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_crc_of_two_texts(first: bytes, second: bytes) -> None:
    assert combine_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_the_crc_of_a_long_text() -> None:
    first, second = b"x" * 70_000, b"yz" * 3_000_000
    assert combine_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
