"""SGLang's labels that tell whose a series is: the role of a worker, and what no rank label merges."""

from __future__ import annotations

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.snapshot import Absence
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.rows import check_rows

SGLANG = RUNTIMES["sglang"]


@check_rows(("role", "computed"), [("unified", 500), ("prefill", 500), ("decode", None)])
@check_rows("hits", ["", "sglang:cached_tokens_total{{{labels}}} 0\n"])
def test_up_to_0_5_6_a_decode_worker_counts_prompts_that_it_does_not_compute(
    role: str, computed: int | None, hits: str
) -> None:
    # a worker whose cache has found nothing yet has no counter of hits, which is another row
    labels = f'engine_type="{role}",model_name="m"'
    text = f"sglang:num_running_reqs{{{labels}}} 1\nsglang:prompt_tokens_total{{{labels}}} 500\n"
    snapshot = snapshot_of(text + hits.format(labels=labels), "0.5.5", runtime=SGLANG)
    assert snapshot.engines[0].prefill_tokens_total == computed
    assert snapshot.absent.get("prefill_tokens_total") is (Absence.NOT_CONFIGURED if computed is None else None)


def test_shares_of_one_engine_are_never_added() -> None:
    # --extra-metric-labels (facts runtimes-vllm-sglang 2.1) may be any
    labels = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    text = "".join(
        f'sglang:token_usage{{{labels},zone="{zone}"}} {share}\n'
        for zone, share in (("a", 0.3), ("b", 0.4), ("c", 0.2))
    )
    assert engine_of(text, "0.5.23", runtime=SGLANG).kv_cache_usage_ratio == 0.4
