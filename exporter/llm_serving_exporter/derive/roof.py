"""What one engine's hardware allows: ceilings of decode, the ridge, floors of prefill (facts model-math D.3, design section 6).

An engine is a data-parallel rank of a replica; `planning` has the replica, and what nothing real is above. Pure functions of a `Roof`;
None where something they need is not known. The bytes and FLOPs they rest on are in `work`. Live derivation, command line, cost and
simulator ask these two modules.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import cast

from llm_serving_exporter.derive.work import (
    Band,
    Roof,
    choose_rate,
    compute_seconds,
    estimate_touched_experts,
    kv_read_bytes,
    kv_token_bytes,
    prefill_flops,
    routed_flops,
    token_flops,
    weight_read_bytes,
)
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import Precision
from llm_serving_exporter.model.snapshot import Absence

# --- The roof.


# what attention reads of a shared prefix a second time comes from the chip's cache: fitted to prefixes of 1k, 4k and 48k tokens on an H100
ON_CHIP_BYTES_PER_SECOND = 5.5e12
# halvings of the search for a ridge among experts: far below the last digit of a double
_HALVINGS, _PRECISION = 80, 1e-9


class Bound(StrEnum):
    """Which arm of the roof is the lower one."""

    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"


class Ceiling(Struct, frozen=True):
    """Decode's ceiling at one batch and context. A token is a sequence-step: speculation gets more than one out of it."""

    tokens_per_second: float  # the lower of the two arms, less what attention reads again on the chip
    # the lower of the two arms: a prefix that sequences share is read once, and again in no time
    read_once_tokens_per_second: float
    bandwidth_tokens_per_second: float  # the arm of memory bandwidth
    compute_tokens_per_second: float | None  # the arm of compute; None without a compute peak
    bound: Bound  # which arm is the lower one
    step_seconds: float  # from one token of a sequence to its next, through every pipeline stage
    intensity_flops_per_byte: float  # the step's FLOPs over its bytes
    # intensity from which its mix of precisions is bound by compute; None without a compute peak
    ridge_flops_per_byte: float | None


class Lack(Struct, frozen=True):
    """Why something cannot be computed."""

    reason: Absence  # the label's value
    sentence: str  # the same for a person, to act on


def balance_ranks(roof: Roof) -> Roof:
    """The same roof where all ranks that share its experts are equally busy: what is planned with, whatever they do now."""
    if roof.parallel.busy_ranks is None:
        return roof
    return replace(roof, parallel=replace(roof.parallel, busy_ranks=None))


def lacks(roof: Roof) -> tuple[Lack, ...]:
    """What stands in the way of a full roof; () where nothing does."""
    missing = []
    name = roof.peaks.name or "the GPU"
    if roof.model.geometry.encoder:
        missing.append(Lack(Absence.NO_DECODE, f"{roof.model.name} is an encoder: it does not decode"))
    if roof.model.geometry.reads_unknown:
        missing.append(
            Lack(
                Absence.ARCHITECTURE_UNKNOWN,
                f"{roof.model.name}: {roof.model.geometry.reads_unknown}; its weights and whether it fits are known, ceilings are not",
            )
        )
    if not _bandwidth(roof):
        missing.append(
            Lack(Absence.PEAK_UNKNOWN, f"peak memory bandwidth of {name} is not known: no bandwidth ceiling")
        )
    needed = {choose_rate(roof.peaks, group.format.multiplied) for group in roof.model.groups}
    if roof.model.geometry.attention:
        needed.add(Precision.BF16)
    unknown = sorted(precision for precision in needed if not roof.peaks.flops.get(precision))
    if unknown:
        rates = ", ".join(unknown)
        missing.append(
            Lack(Absence.PEAK_UNKNOWN, f"peak dense rate of {name} at {rates} is not known: no compute ceiling")
        )
    return tuple(missing)


def decode_ceiling(
    roof: Roof, batch: float, context_tokens: float, *, tokens_per_step: float = 1.0, held_tokens: float | None = None
) -> Ceiling | None:
    """The ceiling for the `batch` sequences of one rank, of `context_tokens` each, with the experts expected to be touched.

    `tokens_per_step`: tokens that a step computes for each sequence, 1 + drafts under speculation. `held_tokens`: KV in use for each
    sequence, where they share some: memory gives that much, the chip's cache the rest; None: as much as their context. None without a
    bandwidth, for an encoder, and for a batch that is not above 0.
    """
    step = _micro_batch(roof, batch, context_tokens, tokens_per_step)
    if step is None:
        return None
    micro, weights = step
    return _ceiling(roof, batch, micro, context_tokens, tokens_per_step, weights.expected, held_tokens)


def decode_ceiling_at(
    roof: Roof, batch: float, context_tokens: float, distinct_experts: float, *, tokens_per_step: float = 1.0
) -> Ceiling | None:
    """The same where each layer of a step touches so many distinct experts, of all ranks that share them."""
    step = _micro_batch(roof, batch, context_tokens, tokens_per_step)
    if step is None:
        return None
    weight_bytes = roof.read_whole_bytes + distinct_experts * roof.routed_bytes
    return _ceiling(roof, batch, step[0], context_tokens, tokens_per_step, weight_bytes)


def ridge_batch(roof: Roof, context_tokens: float, *, tokens_per_step: float = 1.0) -> float | None:
    """The least batch (1 or more, a real number) from which decode is compute-bound.

    Infinite where no batch is: each sequence's KV reads take longer than its FLOPs. None where a peak is not known, and for an encoder.
    """
    bandwidth = _bandwidth(roof)
    seconds = compute_seconds(roof, token_flops(roof, context_tokens), gpus=roof.parallel.tensor)
    if not bandwidth or seconds is None or roof.model.geometry.encoder or roof.model.geometry.reads_unknown:
        return None
    spare = tokens_per_step * seconds - kv_read_bytes(roof, context_tokens) / bandwidth
    if spare <= 0:
        return math.inf

    if spare >= weight_read_bytes(roof, tokens_per_step).expected / bandwidth:
        return 1.0
    geometry = roof.model.geometry
    if not geometry.experts:
        return roof.parallel.pipeline * weight_read_bytes(roof, 1.0).expected / bandwidth / spare
    # weight_read_bytes() with what does not depend on the batch worked out once: this is asked for dozens of batches
    experts, per_token = geometry.experts, geometry.experts_per_token
    fixed, everything = (weight_read_bytes(roof, tokens).expected for tokens in (0.0, math.inf))
    tokens_each = tokens_per_step * roof.parallel.token_ranks

    def compute_bound(micro: float) -> bool:
        share = estimate_touched_experts(experts, per_token, micro * tokens_each).expected / experts
        return micro * spare >= (fixed + share * (everything - fixed)) / bandwidth

    # the bytes read rise ever slower with the batch, the FLOPs evenly: they cross once, at the latest where all experts are read
    low, high = 1.0, max(1.0, everything / bandwidth / spare)
    for _ in range(_HALVINGS):
        if high - low <= _PRECISION * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if compute_bound(middle) else (middle, high)
    return roof.parallel.pipeline * high


def weights_ridge_batch(roof: Roof, *, tokens_per_step: float = 1.0) -> float | None:
    """As `ridge_batch` without context: a constant of the roof and of the drafts of a step, worked out when one of them changes."""
    ridge = roof.weights_ridge.get(tokens_per_step, roof)  # None is an answer
    if ridge is roof:
        ridge = ridge_batch(roof, 0.0, tokens_per_step=tokens_per_step)
        roof.weights_ridge.clear()
        roof.weights_ridge[tokens_per_step] = ridge
    return cast("float | None", ridge)


def prefill_floor_seconds(roof: Roof, prompt_tokens: float, prefix_tokens: float = 0.0) -> float | None:
    """The least time to the first token of one prompt alone, `prefix_tokens` of its `prompt_tokens` taken from the prefix cache.

    Pipeline stages take turns at one prompt, so that the tensor-parallel GPUs of one stage count, and for routed experts those of the
    other ranks that share them, which idle meanwhile. None where a peak is not known.
    """
    bandwidth = _bandwidth(roof)
    # the last token is always computed: its logits are what the first answer token comes from
    new = max(1.0, prompt_tokens - prefix_tokens)
    prefix_tokens = max(0.0, prompt_tokens - new)
    flops = prefill_flops(roof, new, prefix_tokens, 0.0 if roof.model.geometry.encoder else 1.0)
    sharing = roof.parallel.sharing_ranks
    if sharing > 1:
        for precision, amount in routed_flops(roof, new).items():
            flops[precision] -= amount * (1 - 1 / sharing)
    computed = compute_seconds(roof, flops, gpus=roof.parallel.tensor)
    if not bandwidth or computed is None or roof.model.geometry.reads_unknown:
        return None
    # weight_read_bytes() counts the tokens of the other ranks too
    moved = weight_read_bytes(roof, new / roof.parallel.token_ranks).expected + new * kv_token_bytes(roof)
    if prefix_tokens > 0:
        moved += kv_read_bytes(roof, prefix_tokens)
    return max(computed, moved / bandwidth)


def encoder_ceiling_tokens_per_second(roof: Roof, mean_tokens: float) -> float | None:
    """Tokens/s of one engine that embeds at the dense peak, its inputs `mean_tokens` long (facts B.7); batches can always be made so
    large that the weights' bytes do not count. None where a rate is not known, and for an input length that is not above 0."""
    if not 0 < mean_tokens < math.inf:
        return None
    seconds = compute_seconds(roof, prefill_flops(roof, mean_tokens, 0.0, 0.0))
    return mean_tokens / seconds if seconds else None


def _micro_batch(roof: Roof, batch: float, context_tokens: float, tokens_per_step: float) -> tuple[float, Band] | None:
    """Sequences that a stage works on at a time and the weights that it reads for them; None where there is no ceiling."""
    sane = 0 < batch < math.inf and 0 <= context_tokens < math.inf and 0 < tokens_per_step < math.inf
    geometry = roof.model.geometry
    if not sane or not _bandwidth(roof) or geometry.encoder or geometry.reads_unknown:
        return None
    # stages work on a micro-batch each; fewer sequences than stages leave stages idle, one after the other (facts D.3). Of a replica's
    # one sequence each rank counts its share
    micro = max(batch / roof.parallel.pipeline, 1.0 / roof.parallel.data)
    return micro, weight_read_bytes(roof, micro * tokens_per_step)


def _bandwidth(roof: Roof) -> float:
    """Bytes/s of the tensor-parallel GPUs, which is all that one micro-batch has at a time; 0.0 where it is not known."""
    return max(0.0, (roof.peaks.bandwidth_bytes_per_second or 0.0) * roof.parallel.tensor)


def _ceiling(
    roof: Roof,
    batch: float,
    micro: float,
    context_tokens: float,
    tokens_per_step: float,
    weight_bytes: float,
    held_tokens: float | None = None,
) -> Ceiling:
    attended = kv_read_bytes(roof, context_tokens)
    once = attended if held_tokens is None else min(attended, kv_read_bytes(roof, held_tokens))
    moved = weight_bytes + micro * once
    again = micro * (attended - once) / (ON_CHIP_BYTES_PER_SECOND * roof.parallel.tensor)
    flops = {precision: amount * tokens_per_step for precision, amount in token_flops(roof, context_tokens).items()}
    total = micro * add_up(flops.values())
    bandwidth = _bandwidth(roof)
    moving = moved / bandwidth
    token_seconds = compute_seconds(roof, flops, gpus=roof.parallel.tensor)
    computing = None if token_seconds is None else micro * token_seconds
    alone = max(moving, computing or 0.0)
    seconds = alone + again
    return Ceiling(
        tokens_per_second=batch / seconds,
        read_once_tokens_per_second=batch / alone,
        bandwidth_tokens_per_second=batch / moving,
        compute_tokens_per_second=batch / computing if computing else None,
        bound=Bound.COMPUTE if computing is not None and computing > moving else Bound.BANDWIDTH,
        step_seconds=seconds,
        intensity_flops_per_byte=total / moved,
        ridge_flops_per_byte=total / computing / bandwidth if computing else None,
    )
