"""What the recording rules that alerts rest on make of what was scraped: each number worked out by hand beside it."""

from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.records.traffic import workers
from tests.pack.builders import Grows, as_model, as_target, buckets, counter, engine, held, of_model, rounded, target
from tests.pack.cases_ttft import slo_events
from tests.pack.promtool import Sampled

_TTFT = "time_to_first_token_seconds"
_QUANTILE = "model:llm_serving_time_to_first_token_seconds:quantile_rate5m"
_CHAT = as_model("chat")


def _tokens(identity: str, phase: str, by: float, samples: int = 60) -> dict[str, str]:
    return {f"llm_serving_{phase}_tokens_total{{{identity}}}": counter(Grows(samples, by))}


_TRAFFIC = Sampled(
    "tokens of engines add up to targets and models",
    {
        # two engines of one target and one of another: 10, 20 and 30 prompt tokens a second, and 5 decoded; another model beside them
        **_tokens(engine("chat", "chat-0", "0"), "prefill", 600),
        **_tokens(engine("chat", "chat-0", "1"), "prefill", 1200),
        **_tokens(engine("chat", "chat-1", "0"), "prefill", 1800),
        **_tokens(engine("chat", "chat-1", "0"), "decode", 300),
        **_tokens(engine("code"), "decode", 600),
        f"llm_serving_requests_waiting{{{engine('chat', 'chat-0', '0')}}}": held((61, 2)),
        f"llm_serving_requests_waiting{{{engine('chat', 'chat-0', '1')}}}": held((61, 3)),
    },
    "12m30s",
    {
        rounded('target:llm_serving_phase_tokens:rate5m{target="chat-0"}'): {as_target("chat-0", phase="prefill"): 30},
        rounded('model:llm_serving_phase_tokens:rate5m{model_name="chat",role="unified"}'): {
            as_model("chat", phase="prefill"): 60,
            as_model("chat", phase="decode"): 5,
        },
        rounded('model:llm_serving_tokens:rate5m{model_name="chat",role="unified"}'): {_CHAT: 65},
        "target:llm_serving_requests_waiting:sum * 1": {as_target("chat-0"): 5},
    },
)

_COARSE = ("1.0", "5.0", "+Inf")
_QUANTILES = Sampled(
    "quantiles over engines with different bucket edges",
    {
        # up to 0.5, 1, 2.5, 5 s: 30, 60, 90, 100 of 100; and up to 1, 5: 40, 90 of 100. Both have 1, 5 and +Inf: 100, 190 of 200
        **buckets(_TTFT, engine("chat", "chat-0"), (60, {"0.5": 30, "1.0": 30, "2.5": 30, "5.0": 10})),
        **buckets(_TTFT, engine("chat", "chat-1"), (60, {"1.0": 40, "5.0": 50, "+Inf": 10}), edges=_COARSE),
        # a model alone keeps all its edges
        **buckets(_TTFT, engine("code"), (60, {"0.5": 30, "1.0": 30, "2.5": 30, "5.0": 10})),
        **buckets(_TTFT, engine("idle"), (60, {})),
    },
    "12m30s",
    {
        # p50: 100th of 200 = 1 s; p90: 180th = 1 + 4 x 80/90; p99: beyond the top edge, so that edge
        rounded(f'{_QUANTILE}{{model_name="chat"}}'): {
            as_model("chat", rank="p50"): 1,
            as_model("chat", rank="p90"): 4.5556,
            as_model("chat", rank="p95"): 5,
            as_model("chat", rank="p99"): 5,
        },
        # 90th of 100 = 2.5 s
        rounded(f'{_QUANTILE}{{model_name="code",rank="p90"}}'): {as_model("code", rank="p90"): 2.5},
        # 10 of 200; none of 100; of nothing there is no share
        rounded("model:llm_serving_time_to_first_token_seconds:above_top_edge_ratio_rate5m"): {
            _CHAT: 0.05,
            as_model("code"): 0,
        },
    },
)

_TEN_MINUTES = Sampled(
    "quantiles over ten minutes from two fives",
    {
        # 60 events a minute up to 0.5 s, and from minute 15 on 120 between 2.5 and 5 s: 300 and 600 of ten minutes
        **buckets(_TTFT, engine("chat"), (15, {"0.5": 60}), (15, {"5.0": 120})),
        # there since minute 17: 180
        **{name: f"_x17 {text}" for name, text in buckets(_TTFT, engine("born"), (13, {"0.5": 60})).items()},
    },
    "20m30s",
    {
        # 450th of 900: 2.5 + 2.5 x 150/600
        rounded(f'{_QUANTILE.replace("5m", "10m")}{{model_name="chat",rank="p50"}}'): {
            as_model("chat", rank="p50"): 3.125
        },
        rounded(f'model:llm_serving_{_TTFT}_bucket:rate10m{{le="+Inf"}} * 600'): {
            as_model("chat", le="+Inf"): 900,
            as_model("born", le="+Inf"): 180,
        },
    },
)


def _within(expression: str, events: float) -> str:
    """1 where it is the number of events within 1 %."""
    return f"abs({expression} / {events:g} - 1) < bool 0.01"


_EVENTS, _BAD = "model:llm_serving_slo_events:increase", "model:llm_serving_slo_bad:increase"
_SLO = Sampled(
    "events of an objective over windows",
    {
        # two engines: 95 good and 5 bad, 190 and 10 a minute
        **slo_events(engine("chat", "chat-0"), "ttft", counter(Grows(75, 95)), counter(Grows(75, 5))),
        **slo_events(engine("chat", "chat-1"), "ttft", counter(Grows(75, 190)), counter(Grows(75, 10))),
        # a counter that is born at 0 in minute 40: 50 a minute
        **slo_events(engine("born"), "ttft", f"_x40 {counter(Grows(35, 50))}", f"_x40 {counter(Grows(35, 0))}"),
        # one that falls to 0 in minute 31 and goes on: 20 a minute
        **slo_events(engine("reborn"), "ttft", counter(Grows(30, 20), Grows(45, 20, True)), counter(Grows(75, 0))),
        # another threshold is another series, not a reset: 100 a minute until minute 33 and from 34 on
        **slo_events(engine("moved"), "ttft", counter(Grows(33, 100), start=5000) + " stale", threshold="1"),
        **slo_events(engine("moved"), "ttft", "_x34 " + counter(Grows(41, 100), start=8400)),
    },
    # the sums are over whole five minutes, the last one until minute 70
    "71m30s",
    {
        _within(f'{_EVENTS}5m{{model_name="chat"}}', 1500): {as_model("chat", slo="ttft"): 1},
        _within(f'{_EVENTS}1h{{model_name="chat"}}', 18_000): {as_model("chat", slo="ttft"): 1},
        _within(f'{_BAD}1h{{model_name="chat"}}', 900): {as_model("chat", slo="ttft"): 1},
        rounded('model:llm_serving_slo_bad:ratio_increase1h{model_name="chat"}'): {
            as_model("chat", slo="ttft"): 0.05
        },
        # minutes 40 to 70
        _within(f'{_EVENTS}1h{{model_name="born"}}', 1500): {as_model("born", slo="ttft"): 1},
        # the minute of the restart counts nothing
        _within(f'{_EVENTS}1h{{model_name="reborn"}}', 1180): {as_model("reborn", slo="ttft"): 1},
        # increase() makes up for the minute between the two
        _within(f'{_EVENTS}1h{{model_name="moved"}}', 6000): {as_model("moved", slo="ttft"): 1},
        # less than a window is all that there is
        _within(f'{_EVENTS}6h{{model_name="chat"}}', 21_000): {as_model("chat", slo="ttft"): 1},
    },
)  # fmt: skip


def _reference(identity: str) -> dict[str, str]:
    name = "llm_serving_phase_reference_seconds_per_token"
    return {
        f'{name}{{{identity},phase="prefill"}}': held((61, 0.001)),
        f'{name}{{{identity},phase="decode"}}': held((61, 0.005)),
    }


_OLD, _YOUNG = engine("chat", "chat-0"), engine("chat", "chat-1")
_WORK = Sampled(
    "work per replica that has settled",
    {
        **target("chat", "chat-0"),
        **target("chat", "chat-1"),
        # the clock of these tests starts at 0: one replica started two hours before, the other five minutes after
        'llm_serving_target_start_time_seconds{target="chat-0"}': held((61, -7200)),
        'llm_serving_target_start_time_seconds{target="chat-1"}': held((61, 300)),
        **_reference(_OLD),
        **_reference(_YOUNG),
        # 100 x 0.001 + 100 x 0.005 = 0.6 seconds of work a second, and half of it
        **_tokens(_OLD, "prefill", 6000), **_tokens(_OLD, "decode", 6000),
        **_tokens(_YOUNG, "prefill", 3000), **_tokens(_YOUNG, "decode", 3000),
        f"llm_serving_requests_waiting{{{_OLD}}}": held((61, 1)),
    },
    "12m30s",
    {
        rounded("target:llm_serving_reference_work:rate5m"): {
            as_target("chat-0"): 0.6,
            as_target("chat-1"): 0.3,
        },
        rounded("model:llm_serving_reference_work_per_replica:rate5m"): {_CHAT: 0.6},
        rounded("model:llm_serving_reference_work_per_replica:rate5m_waiting"): {_CHAT: 0.6},
    },
)  # fmt: skip
_SETTLED = Sampled(
    "half an hour later both have settled", _WORK.series, "38m30s",
    {rounded("model:llm_serving_reference_work_per_replica:rate5m"): {_CHAT: 0.45}}, doubled=False,
)  # fmt: skip

_H100 = 'gpu_name="NVIDIA H100 80GB HBM3"'


def _gpus(name: str, count: float, gpu: str = _H100) -> dict[str, str]:
    return {f'llm_serving_target_gpus{{target="{name}",{gpu}}}': held((61, count))}


def _moves(identity: str, source: str, terabytes: float) -> dict[str, str]:
    name = "llm_serving_achieved_bandwidth_bytes_per_second"
    return {f'{name}{{{identity},source="{source}"}}': held((61, terabytes * 1e12))}


def _peak(name: str) -> dict[str, str]:
    return {f"llm_serving_bandwidth_ceiling_bytes_per_second{{{engine('chat', name)}}}": held((61, 6e12))}


_BANDWIDTH = Sampled(
    "the best source that is not suspect, by kind of GPU",
    {
        **target("chat", "chat-0"), **target("chat", "chat-1"), **target("chat", "chat-2"),
        **_gpus("chat-0", 2), **_gpus("chat-1", 2), **_gpus("chat-2", 2),
        **_peak("chat-0"), **_peak("chat-1"), **_peak("chat-2"),
        # measured before worked out; the runtime's own estimate never
        **_moves(engine("chat", "chat-0"), "gpm", 3), **_moves(engine("chat", "chat-0"), "model", 5),
        **_moves(engine("chat", "chat-1"), "gpm", 9), **_moves(engine("chat", "chat-1"), "model", 2),
        **_moves(engine("chat", "chat-2"), "runtime", 4),
        'llm_serving_signal_suspect{target="chat-1",signal="bandwidth_ceiling_ratio_gpm",cause="gpus_wrong"}': held((61, 1)),
    },
    "12m30s",
    {
        # 3 of 6 by gpm; gpm of the second is suspect: 2 of 6 by model
        rounded("model_gpu:llm_serving_bandwidth_ceiling:ratio"): {
            f'{{model_name="chat", role="unified", {_H100}, source="gpm"}}': 0.5,
            f'{{model_name="chat", role="unified", {_H100}, source="model"}}': 0.3333,
        },
    },
)  # fmt: skip

_TARGETS = Sampled(
    "replicas, as two exporters see them",
    {
        **target("chat", "chat-0"),
        **target("chat", "chat-1", (61, "down")),
        **target("chat", "chat-2", (61, "loading")),
        **target("chat", "router", role="frontend"),
        # one exporter cannot reach what the other reads
        **{key.replace("{", '{instance="a",'): text for key, text in target("chat", "chat-3", (61, "down")).items()},
        **{key.replace("{", '{instance="b",'): text for key, text in target("chat", "chat-3").items()},
        'llm_serving_expected_replicas{model_name="chat",role="unified"}': held((61, 5)),
    },
    "12m30s",
    {
        "model:llm_serving_targets:count * 1": {_CHAT: 4},
        "model:llm_serving_ready_replicas:sum * 1": {_CHAT: 2},
        "model:llm_serving_desired_replicas:max * 1": {_CHAT: 5},
        "target:llm_serving_down:min * 1 == 1": {as_target("chat-1"): 1},
    },
    doubled=False,
)


def _limited(target: str, held_state: str) -> dict[str, str]:
    labels = f'target="{target}",model_name="chat",role="unified"'
    return {
        f'llm_serving_limiter{{{labels},state="{state}"}}': held((13, float(state == held_state)))
        for state in ("bandwidth", "overhead", "starved")
    }


_LIMITED = Sampled(
    "replicas by what limits them",
    {**_limited("chat-0", "bandwidth"), **_limited("chat-1", "bandwidth"), **_limited("chat-2", "overhead")},
    "12m",
    {
        "model:llm_serving_limiter:count * 1": {
            as_model("chat", state="bandwidth"): 2,
            as_model("chat", state="overhead"): 1,
            as_model("chat", state="starved"): 0,
        }
    },
)


def _requests(model: str, number: int, running: str, waiting: str, *tokens: Grows) -> dict[str, str]:
    of = engine(model, f"{model}-{number}")
    return {
        f"llm_serving_requests_running{{{of}}}": running,
        f"llm_serving_requests_waiting{{{of}}}": waiting,
        f"llm_serving_decode_tokens_total{{{of}}}": counter(*tokens),
    }


# one stands still, and is restarted after 20 minutes: what waited there waits at the others for three minutes, at one of them ten for good
_HANDED_ON = Sampled(
    "what waits at a sick replica is no demand, and what its restart hands on neither",
    {
        **_requests("chat", 0, held((41, 4)), held((20, 0), (21, 10)), Grows(40, 600)),
        **_requests("chat", 1, held((41, 4)), held((20, 0), (3, 10), (18, 0)), Grows(40, 600)),
        **_requests("chat", 2, held((20, 8), (21, 0)), held((20, 14), (21, 0)), Grows(20, 0), Grows(20, 600)),
        **_requests("code", 0, held((41, 4)), held((41, 10)), Grows(40, 600)),
    },
    "35m",
    {
        # 22 were there
        "model:llm_serving_requests_in_system:sum offset 20m": {
            'model:llm_serving_requests_in_system:sum{model_name="chat", role="unified"}': 16,
            'model:llm_serving_requests_in_system:sum{model_name="code", role="unified"}': 14,
        },
        'model:llm_serving_requests_in_system:sum{model_name="chat"} offset 14m': {
            'model:llm_serving_requests_in_system:sum{model_name="chat", role="unified"}': 8
        },
        # ten minutes later whoever waits waits for room
        'model:llm_serving_requests_in_system:sum{model_name="chat"}': {
            'model:llm_serving_requests_in_system:sum{model_name="chat", role="unified"}': 18
        },
    },
)

_ONE, _OTHER = engine("chat", "chat-0"), engine("chat", "chat-1")
_GPU = 'gpu="GPU-1",gpu_name="H100",node="n1"'
_PROMPTS = "request_prompt_tokens"
_LAST_FAILURE = "llm_serving_target_last_failure_timestamp_seconds"


def _source(identity: str, name: str, value: float) -> dict[str, str]:
    return {f'llm_serving_{name}{{{identity},source="gpm"}}': held((13, value))}


_VIEWS = Sampled(
    "what dashboards read by replica, engine and GPU",
    {
        'llm_serving_target_state{target="chat-0",state="ready"}': held((13, 1)),
        'llm_serving_target_state{target="chat-0",state="down"}': held((13, 0)),
        # two exporters, of which the second meets what the first does not; it failed last
        'llm_serving_scrape_failures_total{instance="a",target="chat-0",stage="scrape"}': counter(Grows(12, 1)),
        'llm_serving_scrape_failures_total{instance="b",target="chat-0",stage="scrape"}': counter(Grows(12, 2)),
        'llm_serving_scrape_failures_total{instance="b",target="chat-0",stage="parse"}': counter(Grows(12, 3)),
        'llm_serving_scrape_failures_total{instance="b",target="chat-0",stage="normalise"}': held((13, 4)),
        f'{_LAST_FAILURE}{{instance="a",target="chat-0",stage="scrape",reason="timeout"}}': held((13, 700)),
        f'{_LAST_FAILURE}{{instance="b",target="chat-0",stage="scrape",reason="tls"}}': held((13, 710)),
        # one of an older version counts by reason
        'llm_serving_scrape_failures_total{target="chat-1",stage="scrape",reason="timeout"}': counter(Grows(12, 2)),
        'llm_serving_scrape_failures_total{target="chat-1",stage="scrape",reason="dns"}': counter(Grows(12, 1)),
        'llm_serving_scrape_failures_total{target="chat-1",stage="scrape",reason="tls"}': held((13, 4)),
        f'llm_serving_gpu_slowdown{{{_GPU},reason="hw_thermal_slowdown"}}': held((13, 1)),
        f'llm_serving_gpu_slowdown{{{_GPU},reason="sw_power_cap"}}': held((13, 0)),
        f"llm_serving_gpu_up{{{_GPU}}}": held((13, 1)),
        f"llm_serving_gpu_memory_used_bytes{{{_GPU}}}": held((13, 20)),
        f"llm_serving_gpu_memory_total_bytes{{{_GPU}}}": held((13, 80)),
        f'llm_serving_gpu_memory_bytes_estimate{{{_ONE},part="kv"}}': held((13, 30)),
        f'llm_serving_gpu_memory_bytes_estimate{{{_OTHER},part="kv"}}': held((13, 12)),
        **_source(_ONE, "bandwidth_ceiling_ratio", 0.5),
        **_source(_ONE, "achieved_bandwidth_bytes_per_second", 1e12),
        f'llm_serving_step_bytes_mean{{{_ONE},part="weights"}}': held((13, 10)),
        f'llm_serving_step_bytes_mean{{{_OTHER},part="weights"}}': held((13, 20)),
        # a minute: 60 up to 0.5, 120 up to 1 and 5; and 60 up to 1, 5
        **buckets(_PROMPTS, _ONE, (12, {"0.5": 60, "1.0": 60})),
        **buckets(_PROMPTS, _OTHER, (12, {"1.0": 60}), edges=_COARSE),
    },
    "12m",
    {
        "target:llm_serving_state:max * 1": {'{target="chat-0", state="ready"}': 1},
        rounded('target:llm_serving_scrape_failures:increase5m{reason!=""}'): {
            '{target="chat-0", stage="scrape", reason="tls"}': 10
        },
        'sum by (target, stage) (round(target:llm_serving_scrape_failures:increase5m{reason=""}))': {
            '{target="chat-0", stage="parse"}': 15,
            '{target="chat-1", stage="scrape"}': 15,
        },
        "gpu:llm_serving_gpu_slowdown:max * 1": {
            '{gpu="GPU-1", gpu_name="H100", node="n1", reason="hw_thermal_slowdown"}': 1
        },
        "gpu:llm_serving_gpu_memory_used:ratio * 1": {'{gpu="GPU-1", gpu_name="H100", node="n1"}': 0.25},
        "model:llm_serving_gpu_memory_bytes_estimate:sum * 1": {as_model("chat", part="kv"): 42},
        "engine:llm_serving_bandwidth_ceiling_ratio:max * 1": {
            '{target="chat-0", model_name="chat", engine="0", role="unified", source="gpm"}': 0.5
        },
        "engine:llm_serving_achieved_bandwidth_bytes_per_second:max / 1e9": {
            '{target="chat-0", model_name="chat", engine="0", role="unified", source="gpm"}': 1000
        },
        "model:llm_serving_step_bytes_mean:avg * 1": {as_model("chat", part="weights"): 15},
        # the edges that both have
        rounded("model:llm_serving_request_prompt_tokens_bucket:rate5m"): {
            as_model("chat", le="1.0"): 3,
            as_model("chat", le="5.0"): 3,
            as_model("chat", le="+Inf"): 3,
        },
    },
)

# two recorded llama.cpp servers behind vllm-router 0.1.17, whose clients had 534 answers with 20,959 tokens, and four more by then:
# what each page had counted in half a minute, again each minute (tests/captures/vllm-router-0.1.17-fleet, page 30)
_ROUTER = engine("tiny", "router", "0", "frontend")
_ROUTED = Sampled(
    "a fleet behind a recorded router is counted once",
    {
        **_tokens(engine("tiny", "llama-1"), "decode", 10637),
        **_tokens(engine("tiny", "llama-2"), "decode", 10427),
        # what a front door counts as well: the tokens of both
        **_tokens(_ROUTER, "decode", 21064),
        f'llm_serving_requests_finished_total{{{_ROUTER},reason="answered"}}': counter(Grows(60, 538)),
        f"llm_serving_requests_waiting{{{engine('tiny', 'llama-1')}}}": held((61, 2)),
        f"llm_serving_requests_waiting{{{_ROUTER}}}": held((61, 7)),
        **target("tiny", "llama-1", runtime="llamacpp"),
        **target("tiny", "llama-2", runtime="llamacpp"),
        **target("tiny", "router", role="frontend", runtime="vllm-router"),
    },
    "12m30s",
    {
        rounded('model:llm_serving_phase_tokens:rate5m{model_name="tiny"}'): {
            as_model("tiny", phase="decode"): 351.0667,
            '{model_name="tiny", role="frontend", phase="decode"}': 351.0667,
        },
        rounded(workers(Dialect(), "model:llm_serving_phase_tokens:rate5m")): {
            as_model("tiny", phase="decode"): 351.0667
        },
        "model:llm_serving_ready_replicas:sum * 1": {as_model("tiny"): 2},
        "model:llm_serving_requests_waiting:sum * 1": {as_model("tiny"): 2, '{model_name="tiny", role="frontend"}': 7},
    },
)

OF_MINUTES = (
    _ROUTED, _TRAFFIC, _QUANTILES, _TEN_MINUTES, _SLO, _WORK, _SETTLED, _BANDWIDTH, _LIMITED, _HANDED_ON, _TARGETS,
    _VIEWS,
)  # fmt: skip


# --- baselines: a sample every five minutes, a day is 288 ---------------------------------------------------------------------------------


def _days(*each: float | str) -> str:
    return held(*((288, value) for value in each))


def _hourly(model: str, *each: float | None) -> dict[str, str]:
    """Means over an hour, of each day the one from 11:30 to 12:30, which is there at 12:30; 1 at every other hour. None: a day before."""
    days = [held((150, 1), (1, value), (137, 1)) if value is not None else "_x288" for value in each]
    return {f"model:llm_serving_tokens:rate1h{{{of_model(model)}}}": " ".join(days)}


# looked at on the eighth day at noon
_SAME_HOUR = Sampled(
    "the same hour of other days",
    {
        # a week ago 70, then 10 to 60: the median of the seven is 40
        **_hourly("chat", 70, 10, 20, 30, 40, 50, 60, 0),
        # three days are a median, and no week; two days are none
        **_hourly("three", None, None, None, None, 40, 60, 50, 0),
        **_hourly("two", None, None, None, None, None, 60, 50, 0),
    },
    "180h2m",
    {
        "model:llm_serving_tokens:same_hour_median7d * 1": {_CHAT: 40, as_model("three"): 50},
        "model:llm_serving_tokens:same_hour_week_ago * 1": {_CHAT: 70},
    },
    interval="5m",
    doubled=False,
)


def _history(model: str, work: str, seen: str, bandwidth: str = "_") -> dict[str, str]:
    return {
        f"model:llm_serving_reference_work_per_replica:rate5m_waiting{{{of_model(model)}}}": work,
        f"model:llm_serving_targets:count{{{of_model(model)}}}": seen,
        f'model_gpu:llm_serving_bandwidth_ceiling:ratio{{{of_model(model)},{_H100},source="gpm"}}': bandwidth,
        f"model:llm_serving_prefix_cache_hit:ratio_increase30m{{{of_model(model)}}}": bandwidth,
    }


# looked at after four days
_WEEK = Sampled(
    "usual values, once there is history enough",
    {
        # a day under a queue at 0.8, three at 0.4: the upper tenth of all moments is 0.8; a share of 0.6 on three days of four
        **_history("chat", _days(0.8, 0.4, 0.4, 0.4, 0.4), _days(2, 2, 2, 2, 2), _days(0.6, 0.6, 0.6, 0.1, 0.1)),
        # as much of it, by a model that was first seen two days ago
        **_history("young", _days("_", "_", 0.8, 0.4, 0.4), _days("_", "_", 2, 2, 2), _days("_", "_", 0.6, 0.6, 0.6)),
        # 19 moments with a queue, and 21
        **_history("rarely", f"_x300 {held((19, 0.8))}", _days(2, 2, 2, 2, 2)),
        **_history("enough", f"_x300 {held((21, 0.8))}", _days(2, 2, 2, 2, 2)),
    },
    "96h2m",
    {
        rounded("model:llm_serving_reference_work_per_replica:p90_7d"): {_CHAT: 0.8, as_model("enough"): 0.8},
        rounded("model_gpu:llm_serving_bandwidth_ceiling:median7d"): {
            f'{{model_name="chat", role="unified", {_H100}, source="gpm"}}': 0.6
        },
        rounded("model:llm_serving_prefix_cache_hit:median7d"): {_CHAT: 0.6},
    },
    interval="5m",
    doubled=False,
)

OF_DAYS = (_SAME_HOUR, _WEEK)
