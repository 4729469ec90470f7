"""vLLM's token and prefix-cache rows: what version counts what under which name. Facts: `vllm/v1/metrics/loggers.py` and `stats.py` at
each release, of the V0 engine (default before 0.8, gone after 0.11.0) `vllm/engine/metrics.py`."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Reads, Row

LOGGERS = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/metrics/loggers.py"
_STATS = "https://github.com/vllm-project/vllm/blob/v0.32.0/vllm/v1/metrics/stats.py"
_BLOCKS_TO_TOKENS = "https://github.com/vllm-project/vllm/pull/15755"
V0 = "https://github.com/vllm-project/vllm/blob/v0.6.6/vllm/engine/metrics.py"
_V0_SCHEDULER = "https://github.com/vllm-project/vllm/blob/v0.6.6/vllm/core/scheduler.py"

CACHE_INFO = "vllm:cache_config_info"
_BLOCK_SIZE = (CACHE_INFO, "block_size")
# V1 wrote "None" into num_gpu_blocks until 0.9.0, the release that also moved the prefix counters from blocks to tokens
_BEFORE_0_9 = (CACHE_INFO, "num_gpu_blocks", "None")
_CACHING_OFF = (CACHE_INFO, "enable_prefix_caching", "False")

_AT_FIRST_OUTPUT = (
    "Booked in one lump with the request's first output token; a request aborted before that is never booked: "
    "use windows longer than the longest prefill."
)
_AT_ADMISSION = "Hits are booked at admission, prompts at the first token; requests aborted before it stay in the hits."
_COUNTED_ON = "Counted on by the exporter from 0, because the difference dips."
AT_FINISH = "Booked when a request finishes; aborted requests are missing."


def counter(field: str, *samples: str, **more: object) -> Row:
    """A row that reads values."""
    return Row(field, samples, **{"source": LOGGERS, **more})  # type: ignore[arg-type]  # keyword passthrough


def _prefix(field: str, *samples: str, **more: object) -> Row:
    return counter(field, *samples, unless=_CACHING_OFF, **more)


def histogram(field: str, sample: str, **more: object) -> Row:
    """A row that reads a histogram."""
    return Row(field, (sample,), reads=Reads.HISTOGRAM, **{"source": LOGGERS, **more})  # type: ignore[arg-type]  # keyword passthrough


TOKENS = (
    counter(
        "prompt_tokens_total",
        "vllm:prompt_tokens_total",
        versions=">=0.6,<0.8",
        guarded=True,
        quality=Quality.APPROXIMATE,
        source=_V0_SCHEDULER,
        caveat="V0 engine: booked as each chunk is scheduled; includes cached tokens, and once more those computed again after a preemption.",
    ),
    counter(
        "prompt_tokens_total",
        "vllm:prompt_tokens_total",
        caveat=f"Includes cached and transferred tokens, and each choice of an n>1 request. {_AT_FIRST_OUTPUT}",
    ),
    counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_by_source_total",
        where={"source": frozenset({"local_compute"})},
        versions=">=0.16",
        source=_STATS,
        caveat=f"Tokens recomputed after a preemption are not counted. {_AT_FIRST_OUTPUT}",
    ),
    counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        when=_CACHING_OFF,
        versions="<0.16",
        caveat=f"With prefix caching off every prompt token is computed. {_AT_FIRST_OUTPUT} The V0 engine books chunk by chunk.",
    ),
    counter(
        "prefill_tokens_total",
        "vllm:request_prefill_kv_computed_tokens_sum",
        versions=">=0.13,<0.16",
        quality=Quality.LAGGING,
        caveat=AT_FINISH,
    ),
    counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        minus=("vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total"),
        versions=">=0.9.2,<0.13",
        quality=Quality.APPROXIMATE,
        may_fall=True,
        caveat=f"Prompt tokens less prefix-cache hits. {_AT_ADMISSION} {_COUNTED_ON}",
    ),
    counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        minus=("vllm:gpu_prefix_cache_hits_total",),
        versions=">=0.9,<0.9.2",
        guarded=True,
        quality=Quality.APPROXIMATE,
        may_fall=True,
        caveat=f"Prompt tokens less prefix-cache hits. {_AT_ADMISSION} {_COUNTED_ON}",
    ),
    counter(
        "prefill_tokens_total",
        "vllm:prompt_tokens_total",
        minus=("vllm:gpu_prefix_cache_hits_total",),
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        quality=Quality.APPROXIMATE,
        may_fall=True,
        source=_BLOCKS_TO_TOKENS,
        caveat=f"Prompt tokens less hit blocks x block size. {_AT_ADMISSION} {_COUNTED_ON}",
    ),
    counter(
        "cached_prompt_tokens_total",
        "vllm:prompt_tokens_cached_total",
        versions=">=0.16",
        caveat=f"Local hits and tokens fetched by a KV connector. {_AT_FIRST_OUTPUT}",
    ),
    counter(
        "cached_prompt_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:external_prefix_cache_hits_total",
        versions=">=0.9.2,<0.16",
        caveat=_AT_ADMISSION,
    ),
    counter(
        "cached_prompt_tokens_total",
        "vllm:gpu_prefix_cache_hits_total",
        versions=">=0.9,<0.9.2",
        guarded=True,
        caveat=_AT_ADMISSION,
    ),
    counter(
        "cached_prompt_tokens_total",
        "vllm:gpu_prefix_cache_hits_total",
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        source=_BLOCKS_TO_TOKENS,
        caveat=f"Counted in blocks there; blocks x block size. {_AT_ADMISSION}",
    ),
    counter(
        "decode_tokens_total",
        "vllm:generation_tokens_total",
        caveat="Includes each answer's first token (made by prefill), tokens of aborted requests, and every accepted speculative token.",
    ),
)

PREFIX_CACHE = (
    _prefix(
        "prefix_cache_query_tokens_total",
        "vllm:prefix_cache_queries_total",
        versions=">=0.9.2",
        caveat="Booked at first admission; includes requests aborted while prefilling, and before 0.11.1 preempted ones again.",
    ),
    _prefix(
        "prefix_cache_query_tokens_total", "vllm:gpu_prefix_cache_queries_total", versions=">=0.9,<0.9.2", guarded=True
    ),
    _prefix(
        "prefix_cache_query_tokens_total",
        "vllm:gpu_prefix_cache_queries_total",
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        source=_BLOCKS_TO_TOKENS,
        caveat="Counted in blocks there; blocks x block size.",
    ),
    _prefix(
        "prefix_cache_hit_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:external_prefix_cache_hits_total",
        versions=">=0.9.2",
        caveat="Local hits plus the KV connector's: the connector is asked only for what the local cache lacks.",
    ),
    _prefix("prefix_cache_hit_tokens_total", "vllm:gpu_prefix_cache_hits_total", versions=">=0.9,<0.9.2", guarded=True),
    _prefix(
        "prefix_cache_hit_tokens_total",
        "vllm:gpu_prefix_cache_hits_total",
        times_label=_BLOCK_SIZE,
        versions=">=0.8,<0.9",
        guarded=True,
        proof=_BEFORE_0_9,
        source=_BLOCKS_TO_TOKENS,
        caveat="Counted in blocks there; blocks x block size.",
    ),
    # 0.9.2 to 0.10.2 have both names at once: the first row that matches is read, they are never added
    _prefix("prefix_cache_queries", "vllm:prefix_cache_queries_total", versions=">=0.9.2"),
    _prefix("prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total", versions=">=0.7.3,<0.9.2"),
    _prefix(
        "prefix_cache_hits", "vllm:prefix_cache_hits_total", "vllm:external_prefix_cache_hits_total", versions=">=0.9.2"
    ),
    _prefix("prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total", versions=">=0.7.3,<0.9.2"),
)
