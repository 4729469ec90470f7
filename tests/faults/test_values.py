"""Values that cannot be true: they are left out and counted, wherever they stand, and nobody else's figures suffer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.engines.apply import wanted_by
from tests.support.builders.golden_cases import CASES
from tests.support.builders.lying_pages import LIES, Server, change_samples, find_faults, list_names, read_case
from tests.support.builders.recordings import page as recorded_page
from tests.support.quick import keep_quick
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.driven_exporter import DrivenExporter
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.faultserver import Exchange, FaultServer
from tests.support.servers.replica import Replica
from tests.support.waiting import PATIENCE_SECONDS

BEFORE, AFTER = recorded_page("vllm-0.32", 50), recorded_page("vllm-0.32", 60)


def lie(page: bytes, **values: float | str) -> bytes:
    """The page with other values of samples whose names are given without `vllm:`."""
    for name, value in values.items():
        page = change_samples(page, f"vllm:{name}", lambda _, value=value: value)
    return page


# what the page says -> the signals that are left out, which no other signal's absence explains
LYING = {
    "usage of 1e308": (lie(AFTER, kv_cache_usage_perc="1e308"), {"kv_cache_usage_ratio"}),
    "usage of 1e15": (lie(AFTER, kv_cache_usage_perc="1e15"), {"kv_cache_usage_ratio"}),
    "infinite tokens": (lie(AFTER, generation_tokens_total="+Inf"), {"decode_tokens_total"}),
    "more tokens than there are": (lie(AFTER, generation_tokens_total="1e308"), {"decode_tokens_total"}),
    "a bucket that is no number": (lie(AFTER, request_prompt_tokens_bucket="NaN"), {"request_prompt_tokens"}),
    "a sum beyond its events": (lie(AFTER, request_prompt_tokens_sum="1e308"), {"request_prompt_tokens"}),
    "infinite events": (
        lie(
            AFTER,
            time_to_first_token_seconds_bucket="+Inf",
            time_to_first_token_seconds_count="+Inf",
            time_to_first_token_seconds_sum="+Inf",
        ),
        {"time_to_first_token_seconds"},
    ),
    "more events than there are": (
        lie(AFTER, time_to_first_token_seconds_bucket="1e308", time_to_first_token_seconds_count="1e308"),
        {"time_to_first_token_seconds"},
    ),
    "a sum that falls": (lie(AFTER, time_to_first_token_seconds_sum=0.01), {"time_to_first_token_seconds"}),
    "hits at 287 times the queries": (
        lie(AFTER, prefix_cache_queries_total=1e6, prefix_cache_hits_total=287e6),
        {"prefix_cache_hit_ratio"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[FaultServer, str, Exporter]]:
    """A server that lies, the name of another that does not, and an exporter that watches both."""
    with (
        FaultServer({"/metrics": fault.page(BEFORE)}) as liar,
        FaultServer({"/metrics": fault.page(AFTER)}) as honest,
        Exporter("--target", liar.url, "--target", honest.url, "--scrape.interval", "300ms") as exporter,
    ):
        name = next(
            dict(labels)["target"]
            for labels in exporter.until(lambda page: page.total("target_up") == 2, "both up").series("target_up")
            if dict(labels)["target"].endswith(honest.url.rpartition(":")[2])
        )
        yield liar, name, exporter


@pytest.mark.process
@pytest.mark.parametrize("name", LYING)
def test_a_lie_is_left_out_counted_and_nobody_elses_matter(
    watched: tuple[FaultServer, str, Exporter], name: str
) -> None:
    server, honest, exporter = watched
    page, signals = LYING[name]
    # an outage in between lets every counter begin anew
    server.behave("/metrics", fault.status(500, b"no"))
    exporter.until(lambda page: page.total("target_up") == 1, "the server away")
    server.behave("/metrics", fault.page(BEFORE))
    exporter.until(lambda page: page.total("target_up") == 2, "the server back")
    exporter.after_ticks(3)

    def counted(page: Scraped) -> dict[str, float]:
        return {dict(key)["signal"]: value for key, value in page.series("implausible_values_total").items()}

    before = counted(exporter.scrape())
    server.behave("/metrics", fault.page(page))
    found = exporter.until(
        lambda page: all(counted(page).get(signal, 0.0) > before.get(signal, 0.0) for signal in signals),
        f"{signals} counted",
    )
    assert not found.series("implausible_values_total", target=honest)
    assert all(0 <= value < 1e13 for (series, _), value in found.samples.items() if "llm_serving" in series)
    assert found.value("decode_tokens_total", target=honest) > 0
    landing = exporter.get("/")
    assert (landing.status_code, "could not be shown" in landing.text) == (200, False)
    assert landing.text.count('<section class="card"><div class="title">') >= 2
    debug = exporter.get("/debug/targets").json()
    assert [one["up"] for one in debug["targets"]] == [True, True]
    assert "Traceback" not in "\n".join(exporter.log)


def test_a_lie_has_its_reason_until_the_page_is_true_again() -> None:
    with Replica({"/metrics": BEFORE}) as server, DrivenExporter(server.url) as exporter:
        exporter.tick()
        server.show({"/metrics": lie(AFTER, kv_cache_usage_perc="1e15")})
        exporter.tick()
        page = exporter.scrape()
        for signal in ("kv_cache_usage_ratio", "kv_cache_used_tokens"):
            assert page.value("signal_available", signal=signal, reason="implausible") == 0
        assert not page.series("kv_cache_usage_ratio")
        assert page.value("implausible_values_total", signal="kv_cache_usage_ratio") == 1
        assert "it cannot be true" not in exporter.landing()
        assert "The value cannot be true" in exporter.landing()
        server.show({"/metrics": AFTER})
        exporter.tick()
        page = exporter.scrape()
        assert not page.series("signal_available", signal="kv_cache_usage_ratio")
        assert page.series("kv_cache_usage_ratio")


def test_a_counter_that_falls_by_itself_begins_anew_and_the_others_go_on() -> None:
    """256 tokens in 100 requests more each tick; the sum of the latencies falls once."""

    def page(tick: int, total: float) -> bytes:
        return lie(
            AFTER,
            generation_tokens_total=20_000 + 256 * tick,
            time_to_first_token_seconds_count=1000 + 10 * tick,
            time_to_first_token_seconds_sum=total,
        )

    totals = [500.0, 520.0, 540.0, 3.0, 23.0, 43.0, *(63.0 + 20 * more for more in range(10))]
    seen, reasons = [], []
    with Replica({"/metrics": page(0, 500.0)}) as server, DrivenExporter(server.url) as exporter:
        for tick, total in enumerate(totals):
            server.show({"/metrics": page(tick, total)})
            (reading,) = exporter.tick()
            assert reading.server.restarts_total == 0
            if tick:  # what did not fall has its rate at every page
                assert exporter.scrape().value("phase_tokens_per_second", phase="decode") == 25.6
            latency = reading.page.derived.engines[0].latency.get("ttft")
            seen.append(None if latency is None else latency.mean_seconds)
            assert (latency is not None) is bool(exporter.scrape().series("window_latency_seconds", latency="ttft"))
            reasons.append(reading.page.derived.signals["latency_ttft"].value)
        page_now = exporter.scrape()
    assert page_now.value("implausible_values_total", signal="time_to_first_token_seconds") == 1
    # before the fall, at it, while the window warms up, and after; never across it
    assert seen[1:3] == [2.0, 2.0]
    assert (seen[3], reasons[3]) == (None, "implausible")
    assert (seen[4], reasons[4]) == (None, "warming_up")
    assert set(reasons[4:]) == {"warming_up", ""}
    assert seen[-1] == 2.0
    assert all(one in (None, 2.0) for one in seen)


def test_counters_that_fall_with_their_engine_pass() -> None:
    with Replica({"/metrics": AFTER}) as server, DrivenExporter(server.url) as exporter:
        exporter.tick()
        young = AFTER
        for name in list_names(AFTER):
            if not name.endswith(("_seconds", "_perc", "_info", "_created")) or "_total" in name:
                young = change_samples(young, name, lambda value: value // 4)
        server.show({"/metrics": young})
        (reading,) = exporter.tick()
        assert reading.server.restarts_total == 1
        assert reading.page.implausible_total == {}
        assert exporter.scrape().value("decode_tokens_total") > 0


@pytest.mark.parametrize("name", [name for name in list_names(AFTER) if name.endswith(("_total", "_count", "_sum"))])
def test_no_counter_that_falls_by_itself_is_a_restart_or_a_figure(name: str) -> None:
    server = Server({"/metrics": BEFORE})
    with DrivenExporter("http://lying", connect=server.connect) as exporter:
        for page in (BEFORE, AFTER, change_samples(AFTER, name, lambda value: value / 2), AFTER):
            server.routes = {"/metrics": page}
            found = exporter.tick()
            assert list(find_faults(exporter, found)) == []
        assert found[0].server.restarts_total == 0


# one run of each engine, where it works hardest
WORKING = (
    "vllm-0.32-saturated", "vllm-0.32-spec", "vllm-0.32-dp2", "vllm-0.8.5-v0", "ray-vllm", "trtllm-050f80de-saturated", "triton-trtllm",
    "triton-vllm", "nim", "tgi", "tei", "lightllm", "mistralrs", "xinference", "sglang-0.5.23-saturated", "dynamo-1.6.1-frontend-overload",
    "dynamo-1.6.1-worker-overload", "llamacpp-b11434-overload", "lmdeploy-0.18.0-saturated", "infinity-0.0.78-overload",
)  # fmt: skip
# all of them in every field of one engine; of the others one in each field, in turn
EVERYWHERE = "vllm-0.32-saturated"


# pages with a hundred fields to lie in
LARGE = (
    EVERYWHERE, "vllm-0.32-spec", "vllm-0.32-dp2", "vllm-0.8.5-v0", "sglang-0.5.23-saturated", "lmdeploy-0.18.0-saturated",
)  # fmt: skip


@pytest.mark.parametrize("name", keep_quick(WORKING, lambda name: name not in LARGE))
def test_no_lie_in_any_field_of_any_runtime_gets_out(name: str) -> None:
    server, exporter, page = read_case(CASES[name])
    truth, lies = dict(server.routes), cycle(LIES)
    with exporter:
        runtime = next(iter(exporter.host.targets.values())).runtime
        assert runtime is not None
        read = [sample for sample in list_names(page) if wanted_by(runtime)(sample)]
        for sample in read:
            for value in LIES if name == EVERYWHERE else islice(lies, 1):
                server.routes = {**truth, CASES[name].path: change_samples(page, sample, lambda _, value=value: value)}
                found = list(find_faults(exporter, exporter.tick()))
                assert found == [], f"{sample} {value}"
                server.routes = truth
                (reading,) = exporter.tick()
                assert reading.page.up
        assert list(find_faults(exporter, [reading])) == []
    assert read
    assert reading.page.implausible_total


@pytest.mark.parametrize("name", LYING)
def test_once_shows_every_target_and_its_json_is_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page, _ = LYING[name]
    with Replica({"/metrics": page}) as liar, Replica({"/metrics": AFTER}) as honest:
        words = ["once", "--no-gpu.enabled", "--target", liar.url, "--target", honest.url, "--wait", "100ms"]
        assert main(words) == 0
        table = capsys.readouterr().out
        assert main([*words, "--json"]) == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    documents = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert [one["state"] for one in documents] == ["ready", "ready"]
    assert documents[1]["engines"][0]["decode_tokens_total"] > 0
    assert table.count("not available:") == 2


def test_once_reads_its_targets_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    """No server answers its first request before all twenty have one: read one after another, each would fail by its timeout."""
    together, met = threading.Barrier(20), threading.Event()
    good = fault.page(AFTER)

    def wait_for_all(exchange: Exchange) -> bool:
        if not met.is_set():
            together.wait(PATIENCE_SECONDS)
            met.set()
        return good(exchange)

    with ExitStack() as stack:
        servers = [stack.enter_context(FaultServer({"/metrics": wait_for_all})) for _ in range(20)]
        targets = [word for server in servers for word in ("--target", server.url)]
        patient = ["--scrape.timeout", "20s", "--scrape.interval", "30s"]
        status = main(["once", "--no-gpu.enabled", "--wait", "100ms", "--json", *patient, *targets])
    documents = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [one["target"].rpartition(":")[2] for one in documents] == [one.url.rpartition(":")[2] for one in servers]
