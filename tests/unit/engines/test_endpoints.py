"""Every endpoint of every table: that it says what the table says of it, and that no answer takes a target down.

ANSWERS has for each what a server answers; fields as the tables' facts have them. Hostile ones are made from those.
"""

import json
import logging
import time
from collections.abc import Iterator
from math import inf, nan
from socketserver import StreamRequestHandler
from typing import Any

import pytest

from llm_serving_exporter.engines.json_answers import MOST_WHOLE
from llm_serving_exporter.engines.mapping import PageKind
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.record import name_fields
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import EXPORTED_FIELDS, ServerFacts
from tests.support.builders.recordings import page
from tests.support.paths import TESTS
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers.llamacpp import BUSY, MODELS, PROPS, slots
from tests.support.servers.replica import Routes, readings

MADE = TESTS / "made"
HUGE = int("9" * 400)
DEEP: Any = []
for _ in range(500):
    DEEP = [DEEP]
HOSTILE: dict[str, Any] = {
    "huge": HUGE, "most": MOST_WHOLE, "below": -HUGE, "nan": nan, "infinite": inf, "large": 1e308, "true": True, "false": False,
    "null": None, "word": "x", "long": "x" * 50_000, "surrogate": "\ud800\n", "list": [], "object": {}, "deep": DEEP,
}  # fmt: skip
# in place of every list
LISTS: dict[str, Any] = {
    "numbers": [0] * 100_000,
    "objects": [{}] * 100_000,
    "huge": [HUGE] * 1000,
    "deep": [DEEP] * 100,
}
# in place of the whole answer
BODIES = {
    "digits": "9" * 5000,  # more than Python reads
    "nested": "[" * 100_000 + "]" * 100_000,
    "cut": '{"data": [',
    "long": "[" + "0," * 400_000 + "0]",
    "objects": "[" + "{}," * 100_000 + "{}]",
    "empty": "",
    **{name: json.dumps(value) for name, value in HOSTILE.items()},
}

MODEL = {"id": "tiny", "object": "model"}
DEVICE = {"tp_size": 8, "dp_size": 2, "ep_size": 8, "pp_size": 2}
ARGUMENTS = {
    "version": "0.5.23", "model_path": "org/tiny", "served_model_name": "tiny", "dtype": "bfloat16", "quantization": "fp8",
    "kv_cache_dtype": "fp8_e4m3", "mamba_ssm_dtype": "float32", "context_length": 4096, "chunked_prefill_size": 2048,
    "max_prefill_tokens": 16384, "max_running_requests": 64, "tp_size": 4, "pp_size": 2, "dp_size": 2, "enable_dp_attention": True,
    "dcp_size": 2,
    "speculative_algorithm": "EAGLE", "internal_states": [{"effective_max_running_requests_per_dp": 32, "dtype": "bfloat16"}],
}  # fmt: skip
VLLM_CONFIG = {
    "parallel_config": {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "data_parallel_size": 2,
        "decode_context_parallel_size": 2,
        "prefill_context_parallel_size": 1,
        "is_moe_model": True,
    },
    "model_config": {
        "model": "org/tiny",
        "served_model_name": "tiny",
        "dtype": "torch.bfloat16",
        "quantization": "fp8",
    },
    "cache_config": {"cache_dtype": "fp8", "mamba_ssm_cache_dtype": "float32"},
    "scheduler_config": {"max_num_seqs": 256, "max_num_batched_tokens": 8192},
    "speculative_config": {"method": "eagle"},
}
INFINITY = {
    "data": [{"id": "m", "stats": {"queue_fraction": 0.1, "queue_absolute": 3, "results_pending": 1, "batch_size": 32}}]
}
RECORD = {
    "iter": 7, "iterLatencyMS": 20.5, "attentionDpRank": 0, "numNewActiveRequests": 1, "numActiveRequests": 2, "numQueuedRequests": 0,
    "numCompletedRequests": 1, "maxNumActiveRequests": 64,
    "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 25, "tokensPerBlock": 32, "reusedBlocks": 3, "missedBlocks": 7},
    "inflightBatchingStats": {
        "numScheduledRequests": 2, "numGenRequests": 1, "numCtxTokens": 100, "avgNumDecodedTokensPerIter": 1.0, "numGenKvTokens": 500,
    },
    "specDecodingStats": {"numDraftTokens": 4, "numAcceptedTokens": 2},
}  # fmt: skip
LOADED = {"name": "tiny", "size_vram": 10**9, "context_length": 4096, "details": {"quantization_level": "Q4_0"}}
TEI = {
    "model_id": "org/tiny", "served_model_name": "tiny", "model_dtype": "float16", "version": "1.9.3", "max_input_length": 512,
    "max_batch_tokens": 16384, "max_batch_requests": 32,
}  # fmt: skip
TGI = {
    "model_id": "org/tiny", "model_dtype": "torch.float16", "version": "2.2.0", "max_total_tokens": 4096, "max_batch_size": 32,
}  # fmt: skip
LLAMACPP_PROPS = {
    "build_info": "b11434", "total_slots": 4, "model_alias": "tiny", "model_path": "/m/tiny.gguf", "model_ftype": "F16",
    "default_generation_settings": {"n_ctx": 4096},
}  # fmt: skip
LLAMACPP_SLOTS = [
    {"n_ctx": 4096, "is_processing": True, "n_prompt_tokens": 100, "next_token": [{"n_decoded": 7}]},
    {"n_ctx": 4096, "is_processing": False},
]
LLAMACPP_SIZED = {"data": [{"id": "tiny", "meta": {"size": 10**9, "ftype": "F16"}}]}

# runtime -> its page
PAGES: dict[str, bytes | str] = {
    "vllm": page("vllm-0.32", 60),
    "sglang": page("sglang-0.5.23", 36),
    "tgi": (MADE / "tgi.prom").read_bytes(),
    "trtllm": page("trtllm-050f80de", 46),
    "trtllm-json": json.dumps([RECORD]),
    "llamacpp": BUSY,
    "lmdeploy": page("lmdeploy-0.18.0", 34),
    "tei": (MADE / "tei.prom").read_bytes(),
    "infinity": page("infinity-0.0.78", 84),
    "dynamo-frontend": page("dynamo-1.6.1-frontend", 52),
    "mistralrs": (MADE / "mistralrs.prom").read_bytes(),
    "lightllm": (MADE / "lightllm.prom").read_bytes(),
    "ollama": json.dumps({"models": [LOADED]}),
}
# runtime -> path -> answers
ANSWERS: dict[str, dict[str, list[Any]]] = {
    "vllm": {
        "/version": [{"version": "0.32.0"}],
        "/v1/models": [{"data": [{**MODEL, "max_model_len": 4096, "root": "org/tiny"}]}],
        "/server_info?config_format=json": [{"vllm_config": VLLM_CONFIG}],
    },
    "sglang": {
        "/get_server_info": [ARGUMENTS],
        "/server_info": [ARGUMENTS],
        "/v1/models": [{"data": [{**MODEL, "max_model_len": 4096}]}],
        "/v1/loads": [
            {"version": "0.5.23", "loads": [{"max_running_requests": 32}], "accelerator": "NVIDIA H100", "num_accelerators": 2}
        ],
    },
    "tgi": {"/info": [TGI]},
    "trtllm": {"/version": [{"version": "1.3.0"}], "/v1/models": [{"data": [MODEL]}]},
    "trtllm-json": {"/version": [{"version": "1.3.0"}], "/v1/models": [{"data": [MODEL]}]},
    "llamacpp": {
        "/props": [LLAMACPP_PROPS, json.loads(PROPS)],
        "/v1/models": [LLAMACPP_SIZED, json.loads(MODELS)],
        "/slots": [LLAMACPP_SLOTS, slots(60)],
    },
    "lmdeploy": {"/v1/models": [{"data": [MODEL]}], "/distserve/engine_info": [DEVICE, json.dumps(DEVICE)]},
    "tei": {"/info": [TEI]},
    "infinity": {"/models": [INFINITY], "/v1/models": [INFINITY]},
    "dynamo-frontend": {"/v1/models": [{"data": [{**MODEL, "context_window": 4096}]}]},
    "mistralrs": {"/v1/models": [{"data": [{"id": "default"}, MODEL]}]},
    "lightllm": {"/get_model_name": [{"model_name": "tiny"}], "/token_load": [{"current_load": [0.5, 0.25]}]},
    "ollama": {"/api/version": [{"version": "0.33.0"}], "/api/ps": [{"models": [LOADED]}]},
}  # fmt: skip
EACH = check_rows("name", ANSWERS)


@pytest.fixture(autouse=True)
def _answers_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica sends headers and body apart; the body would wait 40 ms for the headers' acknowledgement, some 3000 times here."""
    monkeypatch.setattr(StreamRequestHandler, "disable_nagle_algorithm", True)


def test_every_endpoint_of_every_table_has_an_answer_here() -> None:
    asked = {
        name: {one.path for one in (*runtime.endpoints, *runtime.polls)}
        for name, runtime in RUNTIMES.items()
        if runtime.endpoints or runtime.polls
    }
    assert {name: set(answers) for name, answers in ANSWERS.items()} == asked
    assert set(PAGES) == asked.keys()
    assert {name for name, runtime in RUNTIMES.items() if runtime.kind is PageKind.JSON} <= asked.keys()


@EACH
def test_an_endpoint_says_what_its_table_says_that_it_says(name: str) -> None:
    fields = {*name_fields(ServerFacts)}
    for endpoint in RUNTIMES[name].endpoints:
        assert set(endpoint.says) <= {*fields, *EXPORTED_FIELDS}
        found = set()
        for answer in ANSWERS[name][endpoint.path]:
            facts, nothing = endpoint.read(answer, ServerFacts()), ServerFacts()
            found |= {field for field in fields if getattr(facts, field) != getattr(nothing, field)}
        assert found == set(endpoint.says), endpoint.path
        assert endpoint.summary == ", ".join(endpoint.says)


@EACH
def test_a_poll_has_samples(name: str) -> None:
    for poll in RUNTIMES[name].polls:
        assert all(poll.read(answer) for answer in ANSWERS[name][poll.path])


@EACH
@check_rows(
    "answer",
    [None, 7, [], "x", "{", {}, {"data": 3}, {"data": [3, {}, {"id": 4}]}, {"version": []}, {"models": 3}, {"current_load": "0.5"},
     {"loads": [[], {"max_running_requests": "9"}]}, [1], [{"is_processing": 1}], {"vllm_config": {"scheduler_config": []}},
     {"tp_size": True, "dp_size": "2"}, {"internal_states": [None, 3], "dp_size": 0, "max_running_requests": True},
     {"data": [5, {"id": "m", "parent": "base", "stats": {"queue_absolute": "many", "batch_size": True}}]}],
)  # fmt: skip
def test_an_answer_that_says_nothing_changes_nothing(name: str, answer: object) -> None:
    # SGLang's list of arguments says that one server speaks for all ranks, whatever is in it
    before = ServerFacts(version="1.3.0", model_names=("m",), all_ranks_shown=True)
    assert [endpoint.path for endpoint in RUNTIMES[name].endpoints if endpoint.read(answer, before) != before] == []
    assert [poll.path for poll in RUNTIMES[name].polls if poll.read(answer)] == []
    assert not any(is_its(answer) for _, is_its in RUNTIMES[name].shows if not isinstance(answer, dict))


Place = tuple[str | int, ...]


def leaves(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where the answer has values that are no containers."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield at
        return
    for key, one in items:
        yield from leaves(one, (*at, key))


def put(answer: Any, at: Place, value: Any) -> Any:
    """The answer with another value there."""
    if not at:
        return value
    if isinstance(answer, dict):
        return {key: put(one, at[1:], value) if key == at[0] else one for key, one in answer.items()}
    return [put(one, at[1:], value) if place == at[0] else one for place, one in enumerate(answer)]


def every(answer: Any, value: Any) -> Any:
    """The answer with another value at each of its leaves but names of models, without which nothing is looked at."""
    for at in list(leaves(answer)):
        if at[-1:] not in (("id",), ("name",)):
            answer = put(answer, at, value)
    return answer


def lists(answer: Any, value: Any) -> Any:
    """The answer with another value for each list that it has."""
    if isinstance(answer, list):
        return value
    return {key: lists(one, value) for key, one in answer.items()} if isinstance(answer, dict) else answer


@EACH
def test_any_value_anywhere_is_borne_and_no_fact_is_beyond_its_bounds(name: str) -> None:
    for endpoint in RUNTIMES[name].endpoints:
        for answer in ANSWERS[name][endpoint.path]:
            for at in leaves(answer):
                for value in HOSTILE.values():
                    facts = endpoint.read(put(answer, at, value), ServerFacts())
                    for figure in (*vars_of(facts), *facts.context_limit_tokens.values()):
                        assert figure is None or isinstance(figure, bool) or 0 < figure <= MOST_WHOLE
    for poll in RUNTIMES[name].polls:
        for answer in ANSWERS[name][poll.path]:
            for at in leaves(answer):
                for value in HOSTILE.values():
                    for _, figure in poll.read(put(answer, at, value)):
                        assert abs(figure) <= 1e18


def vars_of(facts: ServerFacts) -> list[int | None]:
    """The figures among the facts."""
    found = (getattr(facts, name) for name in name_fields(facts))
    return [one for one in found if isinstance(one, int | None)]


def routes(name: str, bodies: dict[str, str]) -> Routes:
    """A server whose endpoints answer these bodies beside its page, or instead of it where an endpoint is the page."""
    beside = {path: (200, "application/json", body.encode()) for path, body in bodies.items()}
    return {RUNTIMES[name].paths[0]: PAGES[name], **beside}


def bear(name: str, bodies: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Two ticks, endpoints asked in between: the target is up, nothing was a bug, and nothing took long."""
    caplog.clear()
    began = time.process_time()
    with caplog.at_level(logging.ERROR):
        first, second = readings([routes(name, bodies)] * 2, runtime=name)
    assert time.process_time() - began < 5.0
    assert [record.getMessage() for record in caplog.records] == []
    for one in (first, second):
        assert one.page.last.reason is not FailureReason.INTERNAL
        page_is_hostile = RUNTIMES[name].paths[0] in bodies
        assert one.page.up or page_is_hostile, one.page.problem


# of each runtime
QUICK = ("huge", "nan", "null", "word", "deep", "numbers", "digits", "cut", "objects")


@EACH
@check_rows("kind", keep_quick(HOSTILE, lambda kind: kind in QUICK))
def test_a_value_at_every_leaf_takes_no_target_down(name: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    answers = {path: every(found[0], HOSTILE[kind]) for path, found in ANSWERS[name].items()}
    bear(name, {path: json.dumps(answer) for path, answer in answers.items()}, caplog)


@EACH
def test_a_huge_number_at_any_one_leaf_takes_no_target_down(name: str, caplog: pytest.LogCaptureFixture) -> None:
    places = {path: list(leaves(found[0])) for path, found in ANSWERS[name].items()}
    for number in range(max(map(len, places.values()))):
        bodies = {path: put(ANSWERS[name][path][0], at[number % len(at)], HUGE) for path, at in places.items()}
        bear(name, {path: json.dumps(answer) for path, answer in bodies.items()}, caplog)


@EACH
@check_rows("kind", keep_quick(LISTS, lambda kind: kind in QUICK))
def test_a_list_without_end_takes_no_target_down(name: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    answers = {path: lists(found[0], LISTS[kind]) for path, found in ANSWERS[name].items()}
    bear(name, {path: json.dumps(answer) for path, answer in answers.items()}, caplog)


@EACH
@check_rows("kind", keep_quick(BODIES, lambda kind: kind in QUICK))
def test_an_answer_of_any_kind_takes_no_target_down(name: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    bear(name, dict.fromkeys(ANSWERS[name], BODIES[kind]), caplog)


@check_rows("name", [name for name, runtime in RUNTIMES.items() if runtime.kind is PageKind.JSON])
def test_a_page_of_json_is_borne_whatever_it_is(name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = RUNTIMES[name].paths[0]
    sound = json.loads(PAGES[name])
    for value in HOSTILE.values():
        bear(name, {path: json.dumps(every(sound, value))}, caplog)
    for value in LISTS.values():
        bear(name, {path: json.dumps(lists(sound, value))}, caplog)
    for body in BODIES.values():
        bear(name, {path: body}, caplog)
