"""Every code has its sentence, and the sentences are ones to act on."""

from __future__ import annotations

from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.derive.kv import LONG_CONTEXT_ROWS
from llm_serving_exporter.derive.signals import PASSED_THROUGH
from llm_serving_exporter.model.gpu import GpuAbsence
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.target import PodFault
from llm_serving_exporter.model.window import Window
from llm_serving_exporter.render.sentences import (
    ABSENCES,
    FAILURES,
    GPU_ABSENCES,
    POD_FAULTS,
    QUALITIES,
    STATES,
    title,
    what_to_do,
    why_absent,
    why_gpu_absent,
)
from tests.support.rows import check_rows


@check_rows(
    ("codes", "sentences"),
    [
        (Absence, ABSENCES),
        (FailureReason, FAILURES),
        (State, STATES),
        (Quality, QUALITIES),
        (GpuAbsence, GPU_ABSENCES),
        (PodFault, POD_FAULTS),
    ],
    ids=["absence", "failure", "state", "quality", "gpu", "pod fault"],
)
def test_each_code_has_one_whole_sentence_of_its_own(codes, sentences):
    assert set(sentences) == set(codes)
    told = [sentence for code, sentence in sentences.items() if code is not Absence.AVAILABLE]
    assert len(set(told)) == len(told)
    for sentence in told:
        assert sentence[0].isupper() or sentence.startswith(("libnvidia", "slo"))
        assert sentence.endswith(".")
        assert "  " not in sentence
    assert ABSENCES[Absence.AVAILABLE] == ""


def test_an_unknown_code_of_a_gpu_reading_reads_as_an_error():
    assert why_gpu_absent("brand_new") == GPU_ABSENCES[GpuAbsence.ERROR]
    assert why_gpu_absent("no_window") == GPU_ABSENCES[GpuAbsence.NO_WINDOW]


def signals() -> list[str]:
    """Every name that derive reports on, from a real run of it."""
    snapshot = Snapshot((EngineSnapshot("m", "0"),), "vllm", 0.0, 0.0)
    return list(derive(Window((snapshot,)), DeriveSettings(), None).signals)


@check_rows("absence", [absence for absence in Absence if absence])
def test_each_signal_that_derive_reports_has_a_sentence_for_each_reason(absence):
    assert set(PASSED_THROUGH) < set(signals())
    for signal in signals():
        assert why_absent(signal, absence).endswith(".")


def test_a_missing_setting_is_named():
    snapshot = Snapshot((EngineSnapshot("m", "0"),), "vllm", 0.0, 0.0)
    reasons = derive(Window((snapshot,)), DeriveSettings(slo_errors=False), None).signals
    unset = [signal for signal, absence in reasons.items() if absence is Absence.NOT_CONFIGURED]
    assert set(unset) == {
        "batch_limit_requests", "batch_utilization_ratio", "context_limit_tokens", "slo_ttft", "slo_itl", "slo_e2e", "slo_errors",
    }  # fmt: skip
    for signal in unset:
        assert why_absent(signal, Absence.NOT_CONFIGURED).startswith("Set ")


def test_the_batch_limit_says_how_vllm_tells_it():
    sentence = why_absent("batch_limit_requests", Absence.NOT_CONFIGURED)
    assert "targets[].batch_limit_requests" in sentence
    assert "VLLM_SERVER_DEV_MODE=1" in sentence


def test_the_long_context_tail_says_what_it_waits_for():
    for signal in (row.name for row in LONG_CONTEXT_ROWS):
        assert "100 requests" in why_absent(signal, Absence.IDLE)
        assert "contradicts its buckets" in why_absent(signal, Absence.INPUT_MISSING)


def test_advice_for_a_failure():
    assert what_to_do(FailureReason.REFUSED).startswith("Nothing listens there")


@check_rows(
    ("name", "words"),
    [
        ("slo_ttft", "SLO time to first token"),
        ("slo_errors", "SLO errors"),
        ("latency_queue", "latency time in the queue"),
        ("kv_cache_used_tokens", "KV cache used tokens"),
        ("e2e_request_latency_seconds", "end-to-end request latency seconds"),
        ("preemptions_total", "preemptions"),
        ("ttft", "time to first token"),
    ],
)
def test_names_for_people(name, words):
    assert title(name) == words


def test_what_a_runtime_never_says_is_told_in_its_own_words() -> None:
    missing = {"time_to_first_token_seconds": "its page has no latencies"}
    sentence = "This runtime does not say it: its page has no latencies."
    for signal in ("time_to_first_token_seconds", "latency_ttft", "slo_ttft"):
        assert why_absent(signal, Absence.NOT_EXPORTED, missing) == sentence
    no_lengths = {"request_prompt_tokens": "prompt lengths are not observed"}
    for signal in (row.name for row in LONG_CONTEXT_ROWS):
        told = why_absent(signal, Absence.NOT_EXPORTED, no_lengths)
        assert told == "This runtime does not say it: prompt lengths are not observed."
    # a reason that says more than the table stands
    assert why_absent("slo_ttft", Absence.NOT_CONFIGURED, missing).startswith("Set slo.ttft")
    assert why_absent("latency_itl", Absence.NOT_EXPORTED, missing) == ABSENCES[Absence.NOT_EXPORTED]
