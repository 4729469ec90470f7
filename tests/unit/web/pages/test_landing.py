"""The landing page: targets, their figures, what is missing and why, roofline, cost, GPUs; readiness and the JSON for operators."""

import json
import math
import re
from typing import Any

import pytest

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.cost import (
    EngineCost,
    EngineTotals,
    Method,
    Price,
    Rate,
    RateKind,
    TargetCost,
    WindowCost,
)
from llm_serving_exporter.model.derived import Cause, Latency, Limiter, Range, SloCount, Tail
from llm_serving_exporter.model.hardware import Hardware, Parallel, TargetGpus
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.numbers import Quantile
from llm_serving_exporter.model.reading import State, TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import (
    HttpSettings,
    PodFault,
    PodState,
    ReplicaPart,
    Role,
    Secret,
    Target,
    WaitingPod,
)
from llm_serving_exporter.render.sentences import CAUSES, LIMITERS, POD_FAULTS, what_to_do
from llm_serving_exporter.settings.config import Config, effective
from llm_serving_exporter.web.pages.debug import answer_debug_targets, answer_ready
from llm_serving_exporter.web.pages.engines import MOST_ENGINES, render_roofline
from llm_serving_exporter.web.pages.landing import MOST_CARDS
from tests.support.builders import views
from tests.support.builders.landingpage import Page, landing_bytes, page_of
from tests.support.builders.limited import DECODING, reading
from tests.support.builders.target_readings import change_reading, make_reading
from tests.support.models.roofs import H100, flat, shape
from tests.support.rows import check_rows

# --- a target that is well ----------------------------------------------------------------------------------------


def test_the_figures_of_one_engine_with_their_units():
    card = page_of(views.fleet()).card("chat-0")
    for figure in (
        "ready", "vllm 0.32.0", "meta-llama/Llama-3.3-70B-Instruct", "last page 2 s ago", "engine up for 2 d 4 h", "figures over 1 min",
        "2 GPUs, found by its processes",
        "Prefill 21.3k tok/s 10.7k tok/s per GPU", "Decode 6.28k tok/s 3.14k tok/s per GPU", "Requests 172 running 9 waiting",
        "Batch, mean 164 seqs", "Batch utilisation 67.1 % batch limit 256 (by its page)", "KV cache 74.3 % 306k of 412k tokens",
        "Prefix cache hits 41.2 %", "Context, mean 1.78k tokens", "Preemptions 0.05 per s",
        "Longest 1 % 13.1 % of all context; 8.2 % to 20.4 %", "Long requests that fit 3.4 to 6.8 p99 prompt 81.4k tokens",
    ):  # fmt: skip
        assert figure in card


def test_latencies_with_clipped_quantiles_and_good_shares():
    page = page_of(views.fleet())
    assert page.row("latency") == ["latency", "p50", "p95", "p99", "mean", "events", "good, since the engine started"]
    # 182113 of 183054 are good: 99.486 %
    assert page.row("time to first token") == [
        "time to first token", "184 ms", "1.62 s", "2.41 s", "902 ms", "640", "99.5 % of 183k within 2.5 s",
    ]  # fmt: skip
    assert page.row("inter-token latency")[1:4] == ["at most 10 ms", "31.2 ms", "48.7 ms"]
    assert page.row("end to end")[1:4] == ["6.2 s", "41.7 s", "at least 60 s"]
    assert page.row("finished without error")[-1] == "99.9933 % of 180k"


def test_few_events_have_a_mean_and_no_quantiles():
    few = Latency(3, 0.248, {0.5: Quantile(1.0, ""), 0.95: Quantile(1.0, "bottom"), 0.99: Quantile(1.0, "bottom")})
    wide = replace(few, events=500, bucket=(0.1, 1.0))
    page = page_of(views.view(views.reading("a", [views.engine("m", latency={"ttft": few, "e2e": wide})])))
    assert "First token, mean 248 ms" in page.card("a")
    assert page.row("time to first token")[1:6] == ["–", "–", "–", "248 ms", "3"]
    assert page.row("end to end")[1:6] == ["100 ms to 1 s"] * 3 + ["248 ms", "500"]


def test_a_long_context_tail_beyond_the_buckets_is_told_as_a_bound():
    tail = Tail(2000, 0.02, 30.0, Range(0.2, 0.3, 0.7), {"upper": 5.04}, Quantile(5000, "top"))
    card = page_of(views.view(views.reading("a", [views.engine("m", tail=tail)]))).card("a")
    assert "Long requests that fit at most 5.04 p99 prompt at least 5k tokens" in card


def test_a_tail_that_is_not_there_says_why():
    absent = {"long_context_kv_share_ratio": Absence.IDLE, "long_context_requests_fit": Absence.NOT_EXPORTED}
    card = page_of(views.view(views.reading("a", [views.engine("m", tail=Tail(12))], absent=absent))).card("a")
    assert "Longest 1 % – idle" in card
    assert "Long requests that fit – not exported" in card
    assert "Fewer than 100 requests have finished" in card


def test_a_threshold_between_edges_is_told_as_it_is_counted():
    one = views.engine("m", slo={"ttft": SloCount(90, 10, configured_seconds=2.5, counted_seconds=2.0)})
    row = page_of(views.view(views.reading("a", [one]))).row("time to first token")
    assert row[-1] == "90 % of 100 within 2 s (the bucket edge below 2.5 s)"


def test_what_is_absent_and_what_to_do_about_it():
    card = page_of(views.fleet()).card("moe-dp8")
    assert (
        "batch limit requests, batch utilization ratio: Set targets[].batch_limit_requests to the most requests that the engine runs "
        "at once; it does not say so itself (vLLM does with VLLM_SERVER_DEV_MODE=1, in /server_info)."
    ) in card
    unknown = "Which GPUs serve this target is not known, or not all of them are here: set targets[].gpus"
    assert f"phase tokens per second per GPU: {unknown}" in card


def test_what_somebody_can_act_on_comes_first():
    lines = page_of(views.fleet()).card("chat-0").partition("Not available")[2]
    assert lines.index("Set slo.itl") < lines.index("speculative") < lines.index("Last failures")


def test_what_is_to_be_read_with_care():
    quality = {
        "decode_tokens_total": Quality.SUSPECT,
        "request_prompt_tokens": Quality.LAGGING,
        "latency_e2e": Quality.CLIPPED,
        "batch_size_mean": Quality.APPROXIMATE,  # absent, so there is nothing to read
    }
    reading = views.reading("a", [views.engine("m")], absent={"batch_size_mean": Absence.IDLE})
    assert reading.page.derived is not None
    reading = change_reading(reading, derivation=replace(reading.page.derived, quality=quality))
    lines = page_of(views.view(reading)).card("a").partition("Read with care")[2]
    assert lines.split(".")[0].strip() == "decode tokens: Contradicts another reading: an input is wrong"
    assert "request prompt tokens: Counted when a request ends" in lines
    assert "batch size" not in lines
    assert "bucket edges" not in lines


def test_a_figure_that_is_not_there_is_a_dash_with_its_reason():
    one = views.engine("m", prefix_cache_hit_ratio=None, batch_size_mean=None, latency={})
    idle = {"prefix_cache_hit_ratio": Absence.IDLE, "batch_size_mean": Absence.WARMING_UP, "latency_itl": Absence.IDLE}
    page = page_of(views.view(views.reading("a", [one], absent=idle)))
    assert "Prefix cache hits – idle" in page.card("a")
    assert "Batch, mean – warming up" in page.card("a")
    assert page.row("inter-token latency")[1] == "idle"


def test_nothing_is_said_to_be_missing_where_nothing_is():
    page = page_of(views.view(views.reading("a", [views.engine("m")])))
    assert "Not available" not in page.text
    assert "Last failures" not in page.text


def test_role_and_group_and_restarts():
    reading = views.reading("a", [views.engine("m")], restarts_total=2)
    reading = replace(reading, target=Target("a", "http://a:1", role=Role.PREFILL, group="blue"))
    card = page_of(views.view(reading)).card("a")
    assert "role prefill group blue" in card
    assert "2 restarts seen" in card


# --- several engines ----------------------------------------------------------------------------------------------


def test_data_parallel_engines_have_a_row_each_and_a_sum():
    page = page_of(views.view(views.fleet().targets[2]))
    assert [row[0] for row in page.rows if row[0].isdigit()] == [str(rank) for rank in range(8)] * 2
    assert page.row("0")[:5] == ["0", "7.47k", "2.2k", "60", "0"]
    assert page.row("0")[11:] == ["13.1 %", "3.4 to 6.8"]
    total = page.row("all")
    # loads 0.35 to 0.91 sum up to 5.04; 5.04 x 21340 = 107554, 5.04 x 6281.4 = 31658
    assert total[1:3] == ["108k", "31.7k"]
    assert total[8] == "1.54M of 3.3M"


def test_a_sum_is_absent_where_a_part_is():
    first, (snapshot, derived) = views.engine("m", "0"), views.engine("m", "1")
    page = page_of(views.view(views.reading("a", [first, (replace(snapshot, requests_running=None), derived)])))
    assert page.row("all")[3] == "–"


def test_engines_of_several_models_are_told_apart():
    page = page_of(views.view(views.reading("a", [views.engine("one"), views.engine("two")])))
    assert page.row("one / 0")
    assert page.row("two / 0")


def test_very_many_engines_are_cut_and_that_is_said():
    many = [views.engine("m", str(rank)) for rank in range(MOST_ENGINES + 6)]
    page = page_of(views.view(views.reading("a", many)))
    assert len([row for row in page.rows if row[0].isdigit()]) == 2 * MOST_ENGINES
    assert "6 more engines are not shown here." in page.text


# --- targets that are not well ------------------------------------------------------------------------------------


def test_a_target_that_is_down_shows_why_and_no_old_figures():
    page = page_of(views.view(views.down()))
    card = page.card("chat-1")
    assert "down" in card
    assert "connection refused; is the engine running? Nothing listens there: start the engine" in card
    assert "The last page is 2 min 34 s old; its figures are no longer shown." in card
    assert "connection refused , scrape, 3 s ago, 4 times since 18 s ago" in card
    assert "tok/s" not in card
    assert page.rows == []


def test_a_target_that_failed_just_now_keeps_its_figures_with_their_age():
    card = page_of(views.view(views.down(age=8.0))).card("chat-1")
    assert "connection refused" in card
    assert "last page 8 s ago" in card
    assert "21.3k tok/s" in card
    assert "withdrawn" not in card


def test_a_page_too_old_is_withdrawn_even_where_no_attempt_failed():
    card = page_of(views.view(views.reading("a", [views.engine("m")], age=16.0))).card("a")
    assert "The last page is 16 s old; its figures are no longer shown." in card
    assert "tok/s" not in card


@check_rows("state", list(State))
def test_each_state_is_a_badge(state):
    reading = views.reading("a", [views.engine("m")], state=state)
    assert f"1 {state.value}" in page_of(views.view(reading)).text


def test_a_sleeping_target_says_so():
    card = page_of(views.view(views.reading("a", [views.engine("m")], state=State.SLEEPING))).card("a")
    assert "it serves nothing until it is woken" in card


@check_rows("reason", list(FailureReason))
def test_each_failure_is_shown_with_advice(reason):
    failed = views.failure(reason, "what happened", 1.0)
    reading = make_reading(
        Target("a", "http://a:1"), state=State.UNKNOWN, up=False, last=failed, attempts_total=1, problem="what happened"
    )
    card = page_of(views.view(reading)).card("a")
    assert "no page was read yet" in card
    assert re.search(r"what happened \S.+\.", card)


def test_a_target_not_tried_yet():
    card = page_of(views.view(TargetReading(Target("a", "http://a:1")))).card("a")
    assert card == "a unknown http://a:1 no page was read yet"


@pytest.mark.parametrize("fault", PodFault)
def test_what_kubernetes_knows_comes_before_the_failed_attempt(fault):
    card = page_of(views.view(change_reading(views.down(), pod=PodState(fault=fault)))).card("chat-1")
    assert POD_FAULTS[fault] in card
    assert what_to_do(FailureReason.REFUSED) not in card


def test_a_lost_worker_is_told_beside_a_page_that_reads():
    reading = change_reading(views.down(), last=None, pod=PodState(was_ready=True, fault=PodFault.WORKER_LOST))
    assert "Another pod of its replica is gone" in page_of(views.view(reading)).card("chat-1")


def test_a_pod_that_loads_says_why_it_counts_as_loading():
    card = page_of(views.view(change_reading(views.down(), state=State.LOADING, pod=PodState()))).card("chat-1")
    assert "Its container has not been Ready since its start" in card
    assert what_to_do(FailureReason.REFUSED) not in card


@pytest.mark.parametrize(
    ("number", "said", "named"),
    [(1, "1 pod waits for a node", "chat/p0"), (12, "12 pods wait for a node", "chat/p8, chat/p9 and 2 more")],
)
def test_pods_that_wait_are_named(number, said, named):
    waiting = tuple(WaitingPod("chat", f"p{index}", "chat", "Deployment", "", "unified") for index in range(number))
    text = " ".join(page_of(views.view(waiting=waiting)).text.split())
    assert said in text
    assert named in text
    assert "p10" not in text


# --- the exporter itself ------------------------------------------------------------------------------------------


def test_a_failed_reload_and_broken_discovery_come_first():
    text = page_of(views.view(reload_ok=False, discovery_problems=("sd.json: line 3 is not JSON",))).text
    assert "The last reload of the configuration failed; the one loaded 1 h ago stays in use." in text
    assert "sd.json: line 3 is not JSON" in text


def test_no_target_at_all_says_how_to_add_one():
    assert "none is configured, and discovery has found none. Start with --target http://localhost:8000" in " ".join(
        page_of(views.view()).text.split()
    )


def test_links_to_the_other_pages():
    page = page_of(views.view(), telemetry_path="/m", links=(("Docs", "https://example.org/docs?a=1&b=2"),))
    assert page.links == {
        "Metrics": "/m",
        "Ready": "/-/ready",
        "Healthy": "/-/healthy",
        "Debug": "/debug/targets",
        "Docs": "https://example.org/docs?a=1&b=2",
    }


def test_many_targets_stand_in_one_table_and_only_troubled_ones_have_a_card():
    well = [views.reading(f"w{number:03}", [views.engine("m")]) for number in range(MOST_CARDS + 5)]
    page = page_of(views.view(*well, views.down("bad")))
    names = [row[0] for row in page.rows]
    assert names[0] == "target"
    assert names[1:] == [*(f"w{number:03}" for number in range(MOST_CARDS + 5)), "bad"]
    assert page.row("w000") == [
        "w000", "ready", "vllm 0.32.0", "m", "2 s ago", "21.3k", "6.28k", "172", "9", "74.3 %",
    ]  # fmt: skip
    assert page.row("bad")[5:] == ["–"] * 5
    assert [text.split()[0] for text in page.sections.values()] == ["Targets", "bad", "GPUs"]


def test_two_thousand_troubled_targets_stay_a_page():
    view = views.view(*(views.down(f"t{number}") for number in range(2000)))
    assert len(landing_bytes(view)) < 1_500_000


def test_beyond_the_most_cards_every_target_is_a_link_to_its_own() -> None:
    well = [views.reading(f"w/{number:03}", [views.engine("m")]) for number in range(MOST_CARDS + 5)]
    view = views.view(*well)
    assert page_of(view).links["w/003"] == "/?target=w%2F003"
    own = page_of(view, only="w/003")
    assert next(iter(own.sections.values())).startswith("w/003")
    assert "w/004" not in own.text
    # a name that nobody has shows all
    assert page_of(view, only="gone").rows[0][0] == "target"


def test_a_target_with_several_models_names_them() -> None:
    many = views.reading("many", [views.engine("a"), views.engine("b"), views.engine("c")])
    two = views.reading("two", [views.engine("a"), views.engine("b")])
    page = page_of(views.view(many, two))
    assert "a, b and 1 more" in page.card("many")
    assert "a, b " in page.card("two")


def test_ranks_that_are_not_read_are_said_to_be_assumed() -> None:
    """Experts are shared with ranks whose pages nobody reads here."""
    one = views.reading("a", [views.engine("m")])
    told = page_of(views.view(change_reading(one, replica_part=ReplicaPart("r1-0", 16, 2, 4)))).card("a")
    assert "2 of the 16 ranks of r1-0, which share their experts" in told
    assert (
        "12 of the 16 ranks that share its experts are on pages that this exporter does not read"
        in told.partition("Read with care")[2]
    )
    whole = page_of(views.view(change_reading(one, replica_part=ReplicaPart("r1-0", 4, 2, 4)))).card("a")
    assert "2 of the 4 ranks of r1-0" in whole
    assert "does not read" not in whole


# --- The roofline on the landing page: figures with their units, what limits, and what to think of what cannot be


ENCODER = flat(1e9, form=shape(encoder=True))


def card(target: TargetReading) -> str:
    return page_of(views.view(target)).card("chat-0")


def test_the_roofline_of_one_engine_with_its_units() -> None:
    """64 sequences of 100 tokens at 83 steps a second on an H100, 63 % of its bandwidth by GPM."""
    shown = card(reading(DECODING))
    for figure in (
        "Limited by memory bandwidth", "Memory bandwidth 63 % gpm 63 %, model 43.7 %", "Compute 9.54 % of the dense peak",
        "Ridge batch 295 of the weights; with KV 396; now 64",
        "Decode ceiling 13.5k tok/s reached 39.4 %", "Steps 83.3 per s counted by the engine",
        "weights 14 GiB", "Prefill's share", "Model m: 8.03G parameters, 7.5G read",
    ):  # fmt: skip
        assert figure in shown, shown


def test_a_figure_that_is_not_there_says_why() -> None:
    shown = card(reading(DECODING, hardware=Hardware(Absence.PEAK_UNKNOWN, Parallel(), 1.0)))
    assert "Memory bandwidth" not in shown
    prefill = card(reading({"prompts": 300.0, "prefill": 60_000.0, "steps": 300.0}, device=None))
    assert "Decode ceiling – idle" in prefill


def test_steps_that_were_worked_out_say_so() -> None:
    assert "from inter-token latency" in card(reading({**DECODING, "steps": None} | {"seconds_per_token": 0.02}))


def test_several_engines_have_a_row_each_and_a_bound() -> None:
    page = page_of(views.view(reading(*[DECODING] * 3, hardware=Hardware(H100, Parallel(), 1.0))))
    (header,) = [place for place, row in enumerate(page.rows) if row[1:3] == ["bandwidth", "compute"]]
    assert [row[0] for row in page.rows[header + 1 : header + 4]] == ["0", "1", "2"]
    assert page.rows[header + 3][1] == "63 %"
    many = reading(*[DECODING] * (MOST_ENGINES + 5))
    assert len(Page(f"<section>{render_roofline(many)}</section>").rows) == MOST_ENGINES + 1


def test_an_embedding_server_whose_gpu_is_not_the_bottleneck() -> None:
    busy = {"prompts": 300.0, "prefill": 60_000.0, "steps": 300.0}
    shown = card(reading(busy, model=ENCODER))
    assert "The GPU is not the bottleneck" in shown
    assert "Decode ceiling – no decode" in shown
    # 30 million tokens of 2 GFLOP in a minute are all that an H100 can do
    saturated = card(reading({**busy, "prefill": 2e7}, model=ENCODER))
    assert "The GPU is not the bottleneck" not in saturated


def test_an_embedding_server_without_work_is_not_told_to_look_at_its_clients() -> None:
    idle = {"prompts": 3.0, "prefill": 600.0, "steps": 3.0, "requests_running": 0.0}
    shown = card(reading(idle, model=ENCODER))
    assert "The GPU is not the bottleneck" not in shown
    assert "Limited by nothing" in shown


def test_what_cannot_be_is_shown_as_it_is_with_the_likely_reason() -> None:
    shown = card(reading({**DECODING, "decoded": 32e6, "steps": 500_000.0}))
    assert "Values that are impossible:" in shown
    assert CAUSES[Cause.INPUTS] in shown
    # believed is what was measured
    assert "Memory bandwidth 63 %" in shown


def test_a_model_that_is_not_known_says_why_and_is_escaped() -> None:
    target = change_reading(
        reading(DECODING), models={"<b>m": FactsError(Absence.ARCHITECTURE_UNKNOWN, "no formula for <i>this</i>")}
    )
    assert "Model <b>m: no formula for <i>this</i>" in card(target)
    assert "&lt;b&gt;m" in render_roofline(target)


def test_nothing_is_said_of_a_target_without_a_page() -> None:
    assert render_roofline(change_reading(reading(DECODING), snapshot=None)) == ""
    assert render_roofline(change_reading(reading(DECODING), derivation=None)) == ""


@check_rows("state", Limiter)
def test_each_state_has_its_words(state: Limiter) -> None:
    assert LIMITERS[state]


@check_rows("cause", Cause)
def test_each_cause_has_its_sentence(cause: Cause) -> None:
    assert CAUSES[cause].endswith(".")


# --- What the landing page says of a target's cost


RESERVED = Rate("reserved", RateKind.RESERVED)
SPENT = {
    ("prefill", "reserved", "roofline"): 10.0,
    ("decode", "reserved", "roofline"): 60.0,
    ("idle", "reserved", "roofline"): 20.0,
    ("down", "reserved", "roofline"): 4.0,
    ("idle", "spot", "roofline"): 5.0,
    ("unattributed", "reserved", "roofline"): 1.0,
}
WINDOW = WindowCost(
    {
        ("prefill", "busy"): 0.05,
        ("prefill", "allocated"): 0.0714,
        ("decode", "allocated"): 0.62,
        ("blended", "allocated"): 0.161,
    },
    tokens_per_usd=6.2e6,
    usd_per_request=0.000119,
)


def costing(reading: TargetReading, **changes: object) -> TargetReading:
    engine = EngineCost(
        "meta-llama/Llama-3.3-70B-Instruct", "0", "unified", EngineTotals({}, SPENT), Later(lambda: WINDOW)
    )
    found = TargetCost((engine,), Price(2.49, RESERVED), Method.ROOFLINE, "model facts", Later(dict))
    return change_reading(reading, total=TargetGpus(2, "H100 SXM 80GB"), cost=replace(found, **changes))


def test_busy_time_that_is_not_split_is_not_said_to_be() -> None:
    chat = views.fleet().targets[0]
    engine = EngineCost(
        "m", "0", "unified", EngineTotals({}, {("unattributed", "reserved", "roofline"): 2.0}), Later(lambda: WINDOW)
    )
    text = page_of(views.view(costing(chat, engines=(engine,)))).text
    assert "busy time is not split: what the method roofline needs is not known" in text
    assert "1 GPU at" in page_of(views.view(change_reading(costing(chat), total=TargetGpus(1, "H100 SXM 80GB")))).text


def test_a_target_with_a_price() -> None:
    chat = views.fleet().targets[0]
    page = page_of(views.view(costing(chat)))
    assert page.row("cost")[:5] == ["cost", "prefill, $/M", "decode, $/M", "blended, $/M", "$/request"]
    assert page.row("meta-llama/Llama-3.3-70B-Instruct") == [
        "meta-llama/Llama-3.3-70B-Instruct", "$0.0714", "$0.62", "$0.16", "$0.000119", "$100.00", "10 %", "60 %", "25 %", "4 %", "1 %",
    ]  # fmt: skip
    assert "2 GPUs at $2.49 an hour (rate reserved); per million tokens and per request over 1 min" in page.text
    assert "busy time split by roofline: model facts" in page.text


def test_a_price_of_pools_is_before_commitments() -> None:
    chat = views.fleet().targets[0]
    page = page_of(views.view(costing(chat, price=Price(4.0, Rate("pool", RateKind.POOL)))))
    assert "2 GPUs at $4.00 an hour (rate pool, before commitments); per million tokens" in page.text


def test_one_that_is_down_still_shows_what_it_has_cost() -> None:
    page = page_of(views.view(costing(views.down())))
    row = page.row("meta-llama/Llama-3.3-70B-Instruct")
    assert row[1:6] == ["–", "–", "–", "–", "$100.00"]


def test_without_a_price_there_is_no_table_but_the_reason() -> None:
    chat = views.fleet().targets[0]
    bare = EngineCost("m", "0", "unified", EngineTotals({("busy", ""): 5.0}))
    unpriced = costing(chat, engines=(bare,), price=None, reasons=Later(lambda: {"cost_usd_total": Absence.NO_PRICE}))
    page = page_of(views.view(unpriced))
    assert "blended, $/M" not in page.text
    assert "cost USD" in page.text
    assert "The price file states no price for its GPUs that has begun" in page.text
    unset = costing(
        chat, engines=(bare,), price=None, reasons=Later(lambda: {"cost_usd_total": Absence.NOT_CONFIGURED})
    )
    assert "Set cost.price_file" in page_of(views.view(unset)).text


def test_a_shared_gpu_says_its_share() -> None:
    chat = views.fleet().targets[0]
    shared = replace(chat, target=Target("chat-0", "http://chat-0:8000", gpu_share=0.5))
    assert "2 GPUs x share 0.5 at $2.49 an hour" in page_of(views.view(costing(shared))).text
    # or as it is known: instances of cards
    slices = change_reading(chat, total=TargetGpus(2, "H100 SXM 80GB MIG 1g.10gb", 1 / 7))
    assert (
        "2 GPUs x share 0.143 at $2.49 an hour"
        in page_of(views.view(change_reading(costing(chat), total=slices.gpus.total))).text
    )


# --- GPUs ---------------------------------------------------------------------------------------------------------


def test_gpus_with_units_and_what_slows_them():
    page = page_of(views.fleet())
    assert page.row("1 NVIDIA H100 80GB HBM3 GPU-1b1d5c9e chat-0") == [
        "1 NVIDIA H100 80GB HBM3 GPU-1b1d5c9e chat-0", "94 %", "58.4 %", "31 %", "698 of 700 W", "71.8 GiB of 79.6 GiB",
        "61 °C memory 74 °C", "power cap heat (hardware)",
    ]  # fmt: skip
    assert page.row("0 NVIDIA H100 80GB HBM3 GPU-0b1d5c9e chat-0")[-1] == "nothing"
    assert "driver 570.86.15 read 1 s ago" in page.card("GPUs")


def test_readings_that_a_gpu_does_not_have_are_dashes():
    bare = views.gpu(
        0, busy_ratio=None, dram_bandwidth_ratio=None, tensor_activity_ratio=None, power_watts=None, temperature_celsius={},
        memory_used_bytes=None, slowdown=None, absent={"power_watts": "not_supported"},
    )  # fmt: skip
    page = page_of(views.view(gpu_readings=views.gpus(bare)))
    assert page.row("0 NVIDIA H100 80GB HBM3 GPU-0b1d5c9e")[1:] == ["–"] * 7


def test_without_nvml_the_page_says_what_still_works_and_what_to_set():
    absent = views.gpus(reason=FailureReason.NO_LIBRARY, detail="libnvidia-ml.so.1 is not found")
    said = page_of(views.view(views.reading("chat-0", [views.engine("m")]), gpu_readings=absent)).card("GPUs")
    assert "NVML: libnvidia-ml.so.1 is not found" in said
    assert "everything that the engines' pages say is still here" in said
    assert "set gpu_model and gpu_count of chat-0." in said
    assert "device_exporter.url" in said
    assert "is still here" not in page_of(views.view(gpu_readings=views.gpus(views.gpu(0)))).text


def test_a_device_exporter_is_named_where_it_fails():
    failed = replace(views.gpus(reason=FailureReason.REFUSED, detail="connection refused"), source="device_exporter")
    page = page_of(views.view(gpu_readings=failed))
    assert "device exporter (device_exporter): connection refused" in page.card("GPUs")
    assert "device exporter failed" in page.text
    assert "NVML" not in page.card("GPUs")


def test_a_lost_gpu():
    page = page_of(views.view(gpu_readings=views.gpus(views.gpu(0, lost=True))))
    assert page.row("0 NVIDIA H100 80GB HBM3 GPU-0b1d5c9e")[1:] == ["lost", *["–"] * 6]
    assert "1 GPU lost" in page.text


def test_nvml_that_fails_says_what_to_do():
    failed = views.gpus(reason=FailureReason.NO_LIBRARY, detail="NVML Shared Library Not Found")
    card = page_of(views.view(gpu_readings=failed)).card("GPUs")
    assert "NVML: NVML Shared Library Not Found libnvidia-ml.so.1 is not there" in card


def test_no_gpu_and_gpus_off():
    assert "no GPU is visible" in page_of(views.view(gpu_readings=views.gpus())).card("GPUs")
    assert "gpu.enabled is off" in page_of(views.view()).card("GPUs")


def test_simulated_gpus_are_named_so():
    assert "simulated" in page_of(views.view(gpu_readings=replace(views.gpus(views.gpu(0)), source="simulated"))).card(
        "GPUs"
    )


def test_a_container_that_sees_some_of_the_nodes_gpus_says_so():
    seen = views.gpus(views.gpu(0))
    assert "seen by this container: 1 of the node's 8 GPUs" in page_of(views.view(gpu_readings=seen, node_gpus=8)).card(
        "GPUs"
    )
    for all_of_them in (1, None):
        assert "seen by this container" not in page_of(views.view(gpu_readings=seen, node_gpus=all_of_them)).text


def test_a_kubelet_that_does_not_answer_says_what_to_do():
    failed = Attempt(Stage.GPU, FailureReason.NO_PERMISSION, "<kubelet.sock>: run it with UID 0", views.NOW_UNIX, 0.0)
    card = page_of(views.view(gpu_readings=views.gpus(views.gpu(0)), kubelet=failed)).card("GPUs")
    assert "kubelet: <kubelet.sock>: run it with UID 0 The exporter may not read it" in card


def test_a_target_whose_gpus_are_not_known_says_why():
    page = page_of(views.fleet())
    assert "GPUs not known: the target's URL does not name this host" in page.card("moe-dp8")
    (parallel,) = (one for one in views.fleet().targets if one.target.name == "moe-dp8")
    for known in (
        change_reading(parallel, total=TargetGpus(8, "H200 SXM 141GB")),
        change_reading(parallel, page_role=Role.FRONTEND),
    ):
        assert "GPUs not known" not in page_of(views.view(known)).text


# --- what comes from outside --------------------------------------------------------------------------------------


def test_text_from_outside_is_text_and_bounded():
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    snapshot, derived = views.engine("m")
    engines = [
        (replace(snapshot, model_name=f"{evil}{n}"), replace(derived, model_name=f"{evil}{n}")) for n in range(2)
    ]
    failed = views.failure(FailureReason.STATUS, evil * 1000, 1.0)
    reading = views.reading(
        evil, engines, metrics_url=f"http://x/{evil}", runtime=evil, model_name=evil, problem=evil * 1000,
        last=failed, recent_failures=(failed, failed), uuids=(evil,), origin=evil,
    )  # fmt: skip
    bad_gpu = views.gpu(0)
    bad_gpu = replace(bad_gpu, identity=replace(bad_gpu.identity, name=evil, uuid=evil), slowdown={evil: True})
    view = views.view(
        reading, gpu_readings=replace(views.gpus(bad_gpu), driver_version=evil), discovery_problems=(evil,)
    )
    page = page_of(view, version=evil, telemetry_path=f"/{evil}", links=((evil, evil),))
    assert not page.tags & {"script", "img"}
    assert len(page.text) < 20_000


def test_the_page_loads_nothing_and_runs_nothing():
    html = landing_bytes(views.fleet()).decode()
    assert not re.search(r'\b(src|srcset|action)=|<script|<iframe|@import|url\(|<link [^>]*href="http', html)
    assert 'http-equiv="refresh" content="10"' in html


def test_text_that_is_no_unicode_does_not_break_the_page():
    assert "a\N{REPLACEMENT CHARACTER}" in page_of(views.view(views.reading("a\udcff", [views.engine("m")]))).text


def test_figures_that_are_no_numbers_are_dashes():
    nan = float("nan")
    one = views.engine("m", batch_utilization_ratio=nan, phase_tokens_per_second={"prefill": nan})
    card = page_of(views.view(views.reading("a", [one]))).card("a")
    assert "Prefill –" in card
    assert "nan" not in card


# --- Readiness and the JSON for operators


def document(view: View, config: dict[str, object] | None = None) -> Any:
    response = answer_debug_targets(view, config or {})
    assert (response.status, response.content_type) == (200, "application/json")
    parsed = json.loads(response.body)
    assert isinstance(parsed, dict)
    return parsed


def test_ready_without_targets():
    assert answer_ready(views.view()).status == 200


def test_ready_once_each_target_was_tried_whatever_came_of_it():
    response = answer_ready(views.fleet())  # one of them is down, one is loading
    assert (response.status, response.body) == (200, b"llm-serving-exporter is ready.\n")


def test_not_ready_names_who_is_missing():
    waiting = tuple(TargetReading(Target(f"t{number:02}", "http://x")) for number in range(22))
    response = answer_ready(views.view(views.down(), *waiting))
    assert response.status == 503
    assert response.body.startswith(b"Not ready: 22 of 23 targets were not tried yet: t00, t01, ")
    assert response.body.endswith(b"t19 and 2 more.\n")


def test_a_failed_target_with_its_attempts_and_advice():
    down = document(views.view(views.down()))["targets"][0]
    assert (down["name"], down["state"], down["up"]) == ("chat-1", "down", False)
    assert down["last_attempt"]["reason"] == "connection_refused"
    assert down["last_attempt"]["what_to_do"].startswith("Nothing listens there")
    newest_first = [attempt["at_unix_seconds"] for attempt in down["recent_failures"]]
    assert newest_first == sorted(newest_first, reverse=True)
    assert down["failures_total"] == [{"stage": "scrape", "reason": "connection_refused", "count": 30}]


def test_facts_absent_signals_and_gpus_of_a_target():
    found = document(views.fleet())
    chat = found["targets"][0]
    assert chat["facts"]["batch_limit_requests"] == 256
    assert chat["facts"]["pipeline_parallel_size"] is None
    absent = {entry["signal"]: entry for entry in chat["absent_signals"]}
    assert absent["slo_itl"]["reason"] == "not_configured"
    assert absent["slo_itl"]["why"].startswith("Set slo.itl")
    assert len(chat["gpus"]["uuids"]) == 2
    assert [gpu["index"] for gpu in found["gpus"]["gpus"]] == [0, 1]


def test_a_target_that_was_never_tried():
    fresh = document(views.view(TargetReading(Target("new", "http://new:8000"))))["targets"][0]
    assert fresh["state"] == "unknown"
    assert fresh["last_attempt"] is None
    assert fresh["last_page"] is None


def test_nvml_and_discovery_and_reload():
    failed = views.gpus(reason=FailureReason.NO_DRIVER, detail="Driver Not Loaded")
    found = document(
        views.view(
            gpu_readings=failed,
            nvml_failures_total={FailureReason.NO_DRIVER: 3},
            discovery_problems=("sd.json: not there",),
            discovery_failures_total=7,
            targets_elsewhere=6,
            targets_left_out=5,
            reload_ok=False,
        )
    )
    assert found["gpus"]["failures_total"] == {"driver_not_loaded": 3}
    assert found["discovery"] == {
        "problems": ["sd.json: not there"],
        "failures_total": 7,
        "targets_elsewhere": 6,
        "targets_left_out": 5,
    }
    assert found["reload"]["ok"] is False
    assert document(views.view())["gpus"] is None


def test_the_effective_configuration_shows_where_a_secret_is_never_what_it_is(monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    target = Target("a", "http://a:8000", http=HttpSettings(bearer_token=Secret(env="TOKEN")))
    found = document(views.view(), effective(Config((target,))))
    assert found["config"]["targets"][0]["http"]["bearer_token"] == {"env": "TOKEN"}
    assert "s3cret" not in json.dumps(found)


def test_what_json_cannot_say_is_null_or_replaced():
    odd = views.reading("odd\udcff", [], start_unix_seconds=math.nan)
    target = document(views.view(odd))["targets"][0]
    assert target["start_unix_seconds"] is None
    assert target["name"] == "odd?"
