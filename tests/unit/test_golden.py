"""Golden expositions: what the exporter publishes for recorded pages, compared whole.

Pages of a run go over real HTTP through the real pipeline, store and collector, with fixed clocks ten seconds apart; the
last scrape's text is the golden. `make golden` rewrites them; the diff is the review.
"""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.catalogue import PUBLISHED
from llm_serving_exporter.catalogue.spec import PREFIX
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.tenants import TENANT_FIELDS
from tests.support.builders.golden_cases import CASES, MAIN
from tests.support.builders.golden_pages import golden_registry
from tests.support.paths import TESTS

GOLDEN = TESTS / "golden"


def read_lines(page: bytes) -> list[tuple[str, float | str]]:
    """Lines in their order, the numbers of samples read as numbers."""
    cut = [line.rpartition(" ") for line in page.decode().splitlines()]
    return [(start, number if start.startswith("#") else float(number)) for start, _, number in cut]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, CollectorRegistry]:
    return request.param, golden_registry(request.param)


def test_exposition_equals_the_golden(case: tuple[str, CollectorRegistry], request: pytest.FixtureRequest) -> None:
    name, registry = case
    text = generate_latest(registry).decode()
    # what is served comes from an encoder of our own, which writes labels from text made ahead, and numbers in other digits
    assert read_lines(encode(registry, "text/plain")[0]) == read_lines(text.encode())
    assert read_lines(encode(registry, "application/openmetrics-text")[0]) == read_lines(generate_openmetrics(registry))
    golden = GOLDEN / f"{name}.prom"
    if request.config.getoption("--golden-update"):
        golden.write_text(text)
    assert text.splitlines() == golden.read_text().splitlines()

    in_openmetrics = {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in parse_openmetrics(generate_openmetrics(registry).decode())
        for sample in family.samples
    }
    in_text = {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert in_openmetrics == in_text


def test_target_labels_stand_on_every_series_of_the_target() -> None:
    page = encode(golden_registry("vllm-0.32-saturated", ("namespace", "workload", "team")), "text/plain")[0].decode()
    chosen = {"namespace": "prod", "workload": "chat", "team": "search"}
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    of_target = [sample for sample in found if "target" in sample.labels]
    assert len({sample.name for sample in of_target}) > 80
    assert all(chosen.items() <= sample.labels.items() for sample in of_target)


MOST_SERIES = 353


def test_a_target_has_at_most_so_many_series_where_everything_is_known_of_it() -> None:
    page = text_string_to_metric_families((GOLDEN / f"{MAIN}.prom").read_text())
    found = [sample for family in page for sample in family.samples if "target" in sample.labels]
    # model, GPUs and prices are known
    reasons = {sample.labels["reason"] for sample in found if sample.name == f"{PREFIX}signal_available"}
    assert reasons == {"not_exported", "not_configured", "no_ridge"}
    assert any(sample.name == f"{PREFIX}cost_usd_total" for sample in found)
    assert len(found) <= MOST_SERIES


# declared, but on no golden: each with its reason
NOT_IN_GOLDENS = {
    "implausible_values_total": "there where a value cannot be true; no recording has one: tests/unit/targets/test_host.py reads it",
    "target_replica_ranks": "there for targets that are a part of a replica: tests/unit/targets/test_replicas.py reads it",
    "device_exporter_up": "there where GPUs are read from AMD's or Intel's exporter: tests/unit/expose/test_device_exporter.py reads it",
    "target_fault_info": "there for targets that nobody reaches: tests/unit/expose/test_faults.py reads it",
    "model_gpu_memory_bytes": "of Ollama and Xinference's supervisor: tests/unit/engines/test_gpu_only.py and test_infinity.py read it",
    **dict.fromkeys(
        TENANT_FIELDS, "of gateways where tenants.by asks for it: tests/unit/targets/test_tenants.py reads it"
    ),
}


def test_every_family_of_the_catalogue_is_on_some_golden_and_nothing_else() -> None:
    seen = set()
    for name in CASES:
        for family in text_string_to_metric_families((GOLDEN / f"{name}.prom").read_text()):
            seen |= {sample.name.removeprefix(PREFIX) for sample in family.samples}
    seen = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in seen}
    declared = {metric.name for metric in PUBLISHED.values()}
    assert seen <= declared
    assert declared - seen <= set(NOT_IN_GOLDENS)


def test_every_series_has_the_labels_that_the_catalogue_declares_and_its_identity() -> None:
    """All that is read here is written by the collector: what forgets the identity of a target is found whatever part of it writes it."""
    for name in CASES:
        for family in text_string_to_metric_families((GOLDEN / f"{name}.prom").read_text()):
            metric = PUBLISHED[family.name + ("_total" if family.type == "counter" else "")]
            for sample in family.samples:
                own = {"team"} if metric.whole_identity else set()
                assert set(sample.labels) - {"le"} == {*metric.labels, *metric.identity_labels} | own, sample


def test_rates_per_gpu_of_a_data_parallel_server_divide_by_its_engines_only() -> None:
    # two engines on two GPUs: one each, although families without an engine label stand under engine=""
    text = (GOLDEN / "vllm-0.32-dp2.prom").read_text()
    values = {
        (sample.name, sample.labels["engine"], sample.labels["phase"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "phase" in sample.labels
    }
    for engine in ("0", "1"):
        for phase in ("prefill", "decode"):
            rate = values["llm_serving_phase_tokens_per_second", engine, phase]
            assert values["llm_serving_phase_tokens_per_second_per_gpu", engine, phase] == rate > 0
