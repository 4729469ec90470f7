"""The landing page: targets, their figures, and what is missing and why."""

import re

import pytest

from llm_serving_exporter.model.derived import Latency, Range, SloCount, Tail
from llm_serving_exporter.model.numbers import Quantile
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import PodFault, PodState, ReplicaPart, Role, Target, WaitingPod
from llm_serving_exporter.render.sentences import POD_FAULTS, what_to_do
from llm_serving_exporter.web.pages.engines import MOST_ENGINES
from llm_serving_exporter.web.pages.landing import MOST_CARDS
from tests.support.builders import views
from tests.support.builders.landingpage import landing_bytes, page_of
from tests.support.builders.target_readings import change_reading, make_reading
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
