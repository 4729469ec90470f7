"""Routers and gateways as runtimes: what each counts, whose its times are, and that none is taken for an engine."""

import pytest

from llm_serving_exporter.engines.detect import detect, labels_needed
from llm_serving_exporter.engines.index import Index
from llm_serving_exporter.engines.mapping import FirstToken, selector
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.engines.rows import read_row
from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.target import Role
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import page_of, snapshot_of
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

MADE = TESTS / "made"
# made page -> its table
DOORS = {
    "litellm": "litellm",
    "envoy-ai-gateway": "envoy-ai-gateway",
    "gen-ai": "gen-ai",
    "llm-d-epp": "llm-d-epp",
    "smg": "sglang-gateway",
    "sglang-router": "sglang-router",
    "production-stack-router": "vllm-stack-router",
}


def text_of(page: str) -> str:
    return (MADE / f"{page}.prom").read_text()


def door(page: str) -> EngineSnapshot:
    """What is read of the page of the one model that it has."""
    found = snapshot_of(text_of(page), runtime=RUNTIMES[DOORS[page]])
    assert found.unmapped_families == ()
    return next(engine for engine in found.engines if engine.model_name == "llama")


@check_rows("page", DOORS)
def test_its_page_is_recognised_and_is_a_front_end(page: str) -> None:
    found = detect(PageParser(labels_needed()).parse(page_of(text_of(page))).layout)
    assert found.router is None
    assert [runtime.name for runtime in found.runtimes] == [DOORS[page]]
    assert RUNTIMES[DOORS[page]].role is Role.FRONTEND


@check_rows("page", DOORS)
def test_nothing_of_it_is_taken_for_an_engine(page: str) -> None:
    """Not in its snapshot, nor in what follows: no batch, no phase, no limiter, and no good or bad first token that is not the client's."""
    reading = readings([{"/metrics": text_of(page)}] * 3, seconds=10.0)[-1]
    assert reading.page.derived is not None
    assert reading.role is Role.FRONTEND
    assert reading.gpus.total is None
    assert all(engine.requests_running is None for engine in reading.page.snapshot.engines)


def test_litellm_adds_up_its_tenants_and_tells_mistakes_from_failures() -> None:
    found = door("litellm")
    assert found.prompt_tokens_total == 10000
    assert found.cached_prompt_tokens_total == 400
    assert found.decode_tokens_total == 2500
    assert found.requests_finished_total == {"success": 50, "error": 2}
    assert found.http_responses_total == {"2xx": 50, "4xx": 3, "5xx": 2}
    assert (found.e2e_request_latency_seconds.count, found.e2e_request_latency_seconds.sum) == (50, 75.0)


def test_envoys_gateway_is_known_under_the_name_that_it_sends_on() -> None:
    found = door("envoy-ai-gateway")
    assert (found.prompt_tokens_total, found.cached_prompt_tokens_total, found.decode_tokens_total) == (9000, 400, 2500)
    assert found.requests_finished_total == {"success": 48, "failed": 2}
    assert found.time_to_first_token_seconds.count == 30
    assert found.request_prompt_tokens.count == 50


def test_names_without_units_are_read_too() -> None:
    found = door("gen-ai")
    assert (found.prompt_tokens_total, found.decode_tokens_total) == (900, 250)
    assert found.requests_finished_total == {"success": 4, "timeout": 1}
    assert found.e2e_request_latency_seconds.count == 5


def test_llm_ds_two_names_of_one_count_are_read_once_and_its_first_tokens_are_those_of_streams() -> None:
    found = door("llm-d-epp")
    assert (found.prompt_tokens_total, found.decode_tokens_total) == (6000, 1800)
    assert found.requests_finished_total == {"answered": 12}
    assert found.http_responses_total == {"5xx": 1, "4xx": 2}
    assert found.requests_waiting == 3
    first = found.time_to_first_token_seconds
    # of answers that are not streamed it is the whole duration
    assert (first.count, first.sum) == (8, 2.0)


def test_before_llm_d_the_picker_had_the_older_names() -> None:
    old = "\n".join(line for line in [*text_of("llm-d-epp").splitlines(), ""] if "llm_d_epp" not in line)
    oldest = old.replace("inference_objective_", "inference_model_")
    for page in (old, oldest):
        found = snapshot_of(page, runtime=RUNTIMES["llm-d-epp"])
        engine = found.engines[0]
        assert (engine.model_name, engine.prompt_tokens_total, engine.decode_tokens_total) == ("llama", 6000, 1800)
        assert engine.requests_finished_total == {"answered": 12}


def test_sglangs_gateway_counts_answers_and_not_health_checks() -> None:
    found = snapshot_of(text_of("smg"), runtime=RUNTIMES["sglang-gateway"])
    # its answers name no model: those of one model are that model's
    engine = found.engines[0]
    assert engine.requests_finished_total == {"success": 12, "abort": 3, "error": 2}
    assert (engine.model_name, engine.decode_tokens_total) == ("llama", 250)
    assert engine.time_to_first_token_seconds is not None


def test_sglangs_router_without_a_path_counts_no_health_check_either() -> None:
    """sglang-router 0.3 counts all answers together, and beside them what it routed."""
    page = """# TYPE smg_http_responses_total counter
smg_http_responses_total{status_code="200",error_code=""} 512
smg_http_responses_total{status_code="503",error_code="no_available_workers"} 2
smg_http_responses_total{status_code="400",error_code=""} 1
"""
    routed = """# TYPE smg_router_request_duration_seconds histogram
smg_router_request_duration_seconds_bucket{model="llama",endpoint="chat",le="+Inf"} 12
smg_router_request_duration_seconds_sum{model="llama",endpoint="chat"} 3
smg_router_request_duration_seconds_count{model="llama",endpoint="chat"} 12
"""
    (engine,) = snapshot_of(page + routed, runtime=RUNTIMES["sglang-gateway"]).engines
    assert (engine.model_name, engine.requests_finished_total) == ("llama", {"success": 12, "error": 2})
    assert engine.http_responses_total == {"2xx": 12, "4xx": 1, "5xx": 2}
    # before the first request it is idle, however often it was asked whether it lives
    (idle,) = readings([{"/metrics": page.splitlines()[0] + "\n" + page.splitlines()[1] + "\n"}])
    assert (idle.page.up, idle.server.runtime) == (True, "sglang-gateway")


def test_a_time_without_buckets_is_none() -> None:
    """The exporter of sglang-router 0.3 writes a summary where it was given no buckets."""
    page = """# TYPE smg_router_ttft_seconds summary
smg_router_ttft_seconds{model="llama",quantile="0.5"} 0.1
smg_router_ttft_seconds_sum{model="llama"} 0.9
smg_router_ttft_seconds_count{model="llama"} 12
# TYPE smg_http_responses_total counter
smg_http_responses_total{status_code="200",error_code=""} 500
# TYPE smg_router_request_duration_seconds summary
smg_router_request_duration_seconds_sum{model="llama",endpoint="chat"} 3
smg_router_request_duration_seconds_count{model="llama",endpoint="chat"} 5
"""
    found = snapshot_of(page, runtime=RUNTIMES["sglang-gateway"])
    assert all(engine.time_to_first_token_seconds is None for engine in found.engines)
    assert found.engines[0].requests_finished_total == {"success": 5}


def test_the_production_stacks_router_is_no_vllm() -> None:
    found = door("production-stack-router")
    assert found.requests_finished_total == {"success": 10, "failed": 2}
    assert found.prompt_tokens_total is None
    assert found.requests_running is None


def fleet(folder: str, number: int) -> EngineSnapshot:
    """A page of the recorded router or of a server behind it: groundtruth.json of the captures has what the clients counted."""
    runtime = "vllm-router" if folder == "vllm-router-0.1.17" else "llamacpp"
    run = recording("vllm-router-0.1.17-fleet").open_folder(folder)
    return snapshot_of(run.pages[number].decode(), runtime=RUNTIMES[runtime]).engines[0]


def test_the_recorded_router_counts_what_its_clients_sent() -> None:
    """227 streams, 111 chats, 196 streams under overload, and four that began before the page was read."""
    first, later = (fleet("vllm-router-0.1.17", number).requests_finished_total for number in (0, 30))
    assert first == {"answered": 1}
    assert later == {"answered": 1 + 227 + 111 + 196 + 4}


def test_the_recorded_router_measures_no_time_of_its_clients() -> None:
    """Its one duration's mean is 5 ms over the 227 streams, whose first token took the clients 22 ms and whose last 192."""
    page = recording("vllm-router-0.1.17-fleet").open_folder("vllm-router-0.1.17").pages[12].decode()
    named = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("vllm_router_generate_duration"))
    mean = float(named["vllm_router_generate_duration_seconds_sum"]) / float(
        named["vllm_router_generate_duration_seconds_count"]
    )
    assert 0.004 < mean < 0.006
    found = snapshot_of(page, runtime=RUNTIMES["vllm-router"])
    engine = found.engines[0]
    assert (engine.time_to_first_token_seconds, engine.e2e_request_latency_seconds) == (None, None)


def test_the_servers_behind_it_have_the_clients_tokens_and_it_has_none() -> None:
    """8,887 + 2,664 + 9,408 generated tokens by the end of the overload, and what the next four streams had by then."""
    engines = [fleet(folder, 30).decode_tokens_total or 0.0 for folder in ("llama1", "llama2")]
    assert sum(engines) == pytest.approx(8887 + 2664 + 9408, rel=0.006)
    assert fleet("vllm-router-0.1.17", 30).decode_tokens_total is None


@check_rows(
    ("name", "clock"),
    [
        ("dynamo-frontend", FirstToken.CLIENT),
        ("llm-d-epp", FirstToken.CLIENT_OF_STREAMS),
        ("envoy-ai-gateway", FirstToken.CLIENT_OF_STREAMS),
        ("litellm", FirstToken.UPSTREAM_OF_STREAMS),
        ("sglang-gateway", FirstToken.UPSTREAM_OF_STREAMS),
        ("gen-ai", None),
        ("vllm-router", None),
    ],
)
def test_each_says_whose_its_first_token_is(name: str, clock: FirstToken | None) -> None:
    assert RUNTIMES[name].first_token is clock


def test_only_what_reads_a_first_token_says_whose_it_is() -> None:
    for runtime in RUNTIMES.values():
        reads = any(row.field == "time_to_first_token_seconds" for row in runtime.rows)
        assert runtime.first_token is None or (reads and runtime.role is Role.FRONTEND), runtime.name


@check_rows(("page", "counted"), [("envoy-ai-gateway", True), ("llm-d-epp", True), ("litellm", False), ("smg", False)])
def test_objectives_count_first_tokens_of_the_clients_clock_only(page: str, counted: bool) -> None:
    reading = readings([{"/metrics": text_of(page)}] * 3, seconds=10.0)[-1]
    found = [engine.slo["ttft"] for engine in reading.page.derived.engines if "ttft" in engine.slo]
    assert bool(found) is counted


def test_workers_that_share_no_counters_are_found_and_the_remedy_is_said() -> None:
    """Two of LiteLLM's workers, which gunicorn lets answer in turn: counters fall, and return to where they were and more."""

    def grown(by: float) -> str:
        lines = []
        for line in text_of("litellm").splitlines():
            series, _, value = line.rpartition(" ")
            lines.append(line if line.startswith("#") else f"{series} {float(value) * by}")
        return "\n".join([*lines, ""])

    # of one worker, of the other, which has worked a third as much, and so on
    pages = [grown(share * (1 + 0.01 * tick)) for tick in range(5) for share in (3.0, 1.0)]
    found = readings([{"/metrics": page} for page in pages], seconds=10.0)
    last = found[-1].page.last
    assert last.reason is FailureReason.SEVERAL_SERVERS
    assert last.detail.startswith(
        "several workers answer here in turn, each with counters of its own: set PROMETHEUS_MULTIPROC_DIR"
    )
    assert found[-1].page.up is False


def test_a_worker_alone_restarts_and_is_not_suspected() -> None:
    pages = [text_of("litellm"), text_of("litellm"), text_of("litellm").replace("9000.0", "10.0")]
    assert all(reading.page.up for reading in readings([{"/metrics": page} for page in pages], seconds=10.0))


def test_litellms_own_collector_is_read_as_it_was_driven() -> None:
    """Version 1.110.2's PrometheusLogger, called as the proxy calls it: 40 answers of two teams, 30 of them streamed, and five failures."""
    run = recording("litellm-1.110.2")
    truth = run.json("client/truth.json")
    pages = [snapshot_of(run.pages[number].decode(), runtime=RUNTIMES["litellm"]) for number in run.pages]
    assert all(page.unmapped_families == () for page in pages)
    assert pages[0].absent["decode_tokens_total"] is Absence.IDLE
    (found,) = pages[-1].engines
    assert found.model_name == "llama"
    assert found.prompt_tokens_total == truth["prompt"]
    assert found.cached_prompt_tokens_total == truth["cached"]
    assert found.decode_tokens_total == truth["generated"]
    assert found.requests_finished_total == {"success": truth["succeeded"], "error": truth["failed"]}
    assert found.http_responses_total == {"2xx": truth["succeeded"], "4xx": truth["too_many"], "5xx": truth["failed"]}
    first, whole = found.time_to_first_token_seconds, found.e2e_request_latency_seconds
    # the proxy's 50 ms before the call are not in the first token's time, and its queue's 20 are in the whole
    assert (first.count, first.sum) == (truth["streams"], pytest.approx(sum(truth["ttft"])))
    assert (whole.count, whole.sum) == (truth["succeeded"], pytest.approx(sum(truth["e2e"])))


FIELD = TESTS / "field"


def test_litellms_refusals_of_our_own_questions_are_nobodys_failures() -> None:
    """60 answers with 200 of a client that counted them; the two refusals are of the exporter's GET /v1/models and /models."""
    page = (FIELD / "F3-own-questions" / "page.prom").read_text()
    reading = readings([{"/metrics": page}] * 3, seconds=10.0)[-1]
    (engine,) = reading.page.snapshot.engines
    assert (engine.model_name, engine.requests_finished_total) == ("chat-prod", {"success": 60})
    assert engine.http_responses_total == {"2xx": 60}
    (figures,) = reading.page.derived.engines
    assert (figures.slo["errors"].good, figures.slo["errors"].bad) == (60, 0)


def failed(**labels: str) -> str:
    """A page of LiteLLM with three answers and one failure, which has these labels."""
    common = {"route": "/v1/chat/completions", "requested_model": "llama", "user_agent": "Python/3.11"}
    good = ",".join(f'{name}="{value}"' for name, value in {**common, "status_code": "200"}.items())
    bad = ",".join(f'{name}="{value}"' for name, value in {**common, "exception_status": "500", **labels}.items())
    return f"""# TYPE litellm_proxy_total_requests_metric_total counter
litellm_proxy_total_requests_metric_total{{{good}}} 3
# TYPE litellm_proxy_failed_requests_metric_total counter
litellm_proxy_failed_requests_metric_total{{{bad}}} 1
"""


@check_rows(
    ("labels", "counts"),
    [
        ({}, True),
        ({"requested_model": ""}, True),
        ({"route": "/v1/messages", "requested_model": "None"}, True),
        ({"route": "/v1/embeddings", "requested_model": ""}, True),
        ({"route": "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "requested_model": ""}, True),
        ({"route": "/bedrock/model/x/converse", "requested_model": ""}, True),
        ({"route": "/openai/deployments/{model}/chat/completions", "requested_model": ""}, True),
        ({"route": "/v1/responses/{response_id}", "requested_model": ""}, True),
        ({"route": "/a-route-of-its-own", "requested_model": "llama"}, True),
        ({"route": "", "requested_model": ""}, True),
        ({"user_agent": "llm-serving-exporter/0.1.0"}, False),
        ({"user_agent": "llm-serving-exporter/2.3.0rc1", "route": "/v1/models", "requested_model": ""}, False),
        ({"user_agent": "my-llm-serving-exporter/1"}, True),
        # other askers of what serves no tokens
        ({"route": "/v1/models", "requested_model": "", "user_agent": "curl/8.5.0"}, False),
        ({"route": "/v1/models/{model_id}", "requested_model": ""}, False),
        ({"route": "/metrics", "requested_model": "None", "user_agent": "Prometheus/3.5.0"}, False),
        ({"route": "/health/readiness", "requested_model": ""}, False),
        ({"route": "/key/generate", "requested_model": ""}, False),
        ({"route": "/model/info", "requested_model": ""}, False),
        ({"route": "/", "requested_model": ""}, False),
    ],
)
def test_litellm_counts_what_users_asked_for_and_nothing_else(labels: dict[str, str], counts: bool) -> None:
    (engine,) = snapshot_of(failed(**labels), runtime=RUNTIMES["litellm"]).engines
    assert engine.requests_finished_total == ({"error": 1} if counts else None)


def test_a_proxy_that_nobody_has_asked_anything_is_idle() -> None:
    """Several workers of LiteLLM show a few gauges until the first request; which depends on what is switched on."""
    page = (FIELD / "F4-litellm-idle" / "page.prom").read_text()
    fewer = '# TYPE litellm_remaining_team_budget_metric gauge\nlitellm_remaining_team_budget_metric{team="a"} 5\n'
    for idle in (page, fewer):
        before, after = readings([{"/metrics": idle}, {"/metrics": failed()}], seconds=10.0)
        assert (before.server.state, before.server.runtime, before.page.problem) == (State.READY, "litellm", "")
        assert before.page.derived.signals["requests_finished_total"] is Absence.IDLE
        # its first requests are counted from 0
        (figures,) = after.page.derived.engines
        assert figures.slo["errors"].bad == 1


@check_rows(
    "name",
    [name for name, one in RUNTIMES.items() if any(row.field == "http_responses_total" and row.by for row in one.rows)],
)
def test_no_table_publishes_a_status_that_is_none(name: str) -> None:
    for row in RUNTIMES[name].rows:
        if row.field != "http_responses_total":
            continue
        where = {label: min(values) for label, values in {**selector(row.samples[0]).where, **row.where}.items()}
        labels = ",".join(f'{label}="{value}"' for label, value in {**where, row.by: "None"}.items())
        index = Index(
            RUNTIMES[name],
            PageParser(lambda _name: True).parse(page_of(f"{selector(row.samples[0]).name}{{{labels}}} 1\n")).layout,
        )
        found = read_row(replace(row, named={}, samples=row.samples[:1]), index)
        assert isinstance(found, Absence) or all(not reader((1.0,)) for reader in found.values()), row


def test_a_front_door_of_several_models_is_none_of_them() -> None:
    one = failed()
    two = (
        one
        + 'litellm_proxy_total_requests_metric_total{route="/v1/chat/completions",requested_model="qwen",status_code="200"} 1\n'
    )
    names = [reading.server.model_name for reading in readings([{"/metrics": one}, {"/metrics": two}], seconds=10.0)]
    assert names == ["llama", ""]
    (said,) = readings([{"/metrics": two}], model_name="all")
    assert said.server.model_name == "all"
