"""An SGLang page of several ranks, made from a recorded page of one (facts runtimes-vllm-sglang 2.4, "Duplicate series per rank").

The whole page of eight ranks is about 575 KB: it is made when it is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.builders.recordings import page as recorded

_SAMPLE = re.compile(r"(sglang:[a-z_A-Z0-9]+)\{(.*)\} (\S+)\Z")
# written only where attn_tp_rank = 0: log_stats gauges, live token counters, prefill passes
_BY_EVERY_RANK = (
    "sglang:max_total_num_tokens", "sglang:weight_", "sglang:kv_cache_memory", "sglang:graph_memory", "sglang:page_size",
    "sglang:num_pages", "sglang:context_len", "sglang:startup_", "sglang:queue_time_seconds", "sglang:per_stage_",
    "sglang:num_retracted_requests", "sglang:num_retracted_input", "sglang:num_retracted_output", "sglang:scheduler_",
    "sglang:eviction_", "sglang:evicted_",
)  # fmt: skip


def page(ranks: int, dp: bool, number: int = 46) -> bytes:
    """The recorded page `number` (46: saturated) as a server of `ranks` GPUs shows it.

    `dp`: data-parallel attention: each rank is an engine, whose tp_rank counts on over the ranks, with all series of its own. Without it
    the ranks are one tensor-parallel engine, and what every rank writes stands there once a rank. Request series stay one.
    """
    lines = []
    for line in recorded("sglang-0.5.23", number).decode().splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is None or 'tp_rank="0"' not in line:
            lines.append(line)
            continue
        name, labels, value = sample.groups()
        every = name.startswith(_BY_EVERY_RANK) or 'mode="decode_' in labels
        for rank in range(ranks if dp or every else 1):
            own = re.sub(r'pid="\d+"', f'pid="{30309 + rank}"', labels.replace('tp_rank="0"', f'tp_rank="{rank}"'))
            if dp:
                own = re.sub(r'dp_rank="\d+",', "", own) + f',dp_rank="{rank}"'
            lines.append(f"{name}{{{own}}} {value}")
    lines += _never_used_here(lines, ranks if dp else 1)
    return ("\n".join(lines) + "\n").encode()


def _never_used_here(lines: list[str], ranks: int) -> list[str]:
    """Gauges and counters that 0.5.23 declares and the recorded server did not use, a series a rank, at 0: more features, a larger page."""
    there = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    found = []
    for line in (Path(__file__).parent / "sglang-declared.types").read_text().splitlines():
        _, _, family, kind = line.split() if line.startswith("# TYPE ") else ("", "", "", "")
        if kind not in ("gauge", "counter") or family in there:
            continue
        found.append(line)
        for rank in range(ranks):
            labels = f'engine_type="unified",model_name="tiny-llama",moe_ep_rank="0",pp_rank="0",tp_rank="{rank}",dp_rank="{rank}"'
            found.append(f"{family}{'_total' if kind == 'counter' else ''}{{{labels}}} 0.0")
    return found
