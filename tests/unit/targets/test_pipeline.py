"""One target over time: side endpoints that hang, several servers behind one address, a path prefix."""

from contextlib import closing

from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import HttpSettings, Target
from llm_serving_exporter.targets.pipeline import TargetPipeline
from tests.support.builders.pipelines import make_pipeline
from tests.support.builders.recordings import page, recording
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import FaultServer

PAGE = page("vllm-0.32", 60)
MODELS = fault.page(b'{"data":[{"id":"tiny-llama","max_model_len":2048}]}', "application/json")
VERSION = fault.page(b'{"version":"0.32.0"}', "application/json")


def pipeline_of(url: str, path: str | None = None, now: list[float] | None = None) -> TargetPipeline:
    target = Target("a", url, metrics_path=path, interval_seconds=1.0, http=HttpSettings(timeout_seconds=0.7))
    return make_pipeline(target, now)


def test_a_side_endpoint_that_hangs_costs_no_page_and_is_asked_again_later() -> None:
    routes = {
        "/metrics": fault.page(PAGE),
        "/version": VERSION,
        "/v1/models": fault.silent(),
        "/server_info": fault.silent(),
    }
    with FaultServer(routes) as server, closing(pipeline_of(server.url)) as pipeline:
        assert pipeline.tick().page.up is True
        looked_for = ["/prometheus/metrics", "/metrics"]
        assert [request.path for request in server.requests] == looked_for
        pipeline.refresh_facts()
        # the first that hangs ends the round: the rest would cost the next page
        assert [request.path for request in server.requests] == [*looked_for, "/version", "/v1/models"]
        pipeline.refresh_facts()
        assert len(server.requests) == 4
        assert pipeline.tick().server.facts.version == "0.32.0"


def test_side_endpoints_stand_below_the_same_prefix_as_the_page() -> None:
    with (
        FaultServer({"/vllm/metrics": fault.page(PAGE), "/vllm/version": VERSION, "/vllm/v1/models": MODELS}) as server,
        closing(pipeline_of(server.url, "/vllm/metrics")) as pipeline,
    ):
        pipeline.tick()
        pipeline.refresh_facts()
        reading = pipeline.tick()
    assert (reading.server.facts.version, reading.server.facts.context_limit_tokens) == ("0.32.0", {"tiny-llama": 2048})


def test_an_endpoint_that_fails_once_is_asked_again_and_nothing_known_is_lost() -> None:
    now = [0.0]
    routes = {
        "/metrics": fault.page(PAGE),
        "/version": VERSION,
        "/v1/models": fault.status(500),
        "/server_info": fault.status(404),
    }
    with FaultServer(routes) as server, closing(pipeline_of(server.url, now=now)) as pipeline:
        pipeline.tick()
        pipeline.refresh_facts()
        server.behave("/v1/models", MODELS)
        server.behave("/version", fault.status(500))
        # beside other work an answer may come too late once more, and is then asked for later still
        for _ in range(1000):
            now[0] += 1.0
            reading = pipeline.tick()
            pipeline.refresh_facts()
            if reading.server.facts.context_limit_tokens:
                break
    assert (reading.server.facts.version, reading.server.facts.context_limit_tokens) == ("0.32.0", {"tiny-llama": 2048})


def test_several_replicas_behind_one_address_are_refused_not_mixed() -> None:
    now = [0.0]
    other = recording("vllm-0.32-spec").pages[40]
    with FaultServer({"/metrics": fault.page(PAGE)}) as server, closing(pipeline_of(server.url, now=now)) as pipeline:
        states = []
        for turn in range(8):
            server.behave("/metrics", fault.page(PAGE if turn % 2 else other))
            now[0] += 1.0
            states.append(pipeline.tick())
        last = states[-1]
        assert (last.page.up, last.server.state) == (False, State.UNKNOWN)
        assert last.page.last.reason is FailureReason.SEVERAL_SERVERS
        assert "list each replica" in last.page.problem
        # one server alone again: after a while it is believed
        for _ in range(30):
            now[0] += 1.0
            last = pipeline.tick()
        assert last.page.up is True


def test_one_failover_is_only_a_restart() -> None:
    now = [0.0]
    with FaultServer({"/metrics": fault.page(PAGE)}) as server, closing(pipeline_of(server.url, now=now)) as pipeline:
        for body in (recording("vllm-0.32-spec").pages[40], PAGE, PAGE):
            server.behave("/metrics", fault.page(body))
            now[0] += 1.0
            reading = pipeline.tick()
    assert (reading.page.up, reading.server.restarts_total) == (True, 1)
