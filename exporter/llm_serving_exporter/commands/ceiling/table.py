"""What `ceiling` found, as a table for people or a document for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llm_serving_exporter.commands.ceiling.answer import Answer, Line, Question
from llm_serving_exporter.derive.planning import Fit
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.render.numbers import NOTHING, number, seconds, size, usd_four_digits, usd_to_the_cent


def as_document(answer: Answer) -> dict[str, Any]:
    """For programs: bytes, seconds, tokens/s and USD; null where it is not known or not asked. Never NaN or infinite."""
    question, embedding = answer.question, answer.embedding
    return {
        "model": _model(question.model),
        "gpu": {
            "name": question.peaks.name,
            "count": question.parallel.gpus,
            "tensor_parallel_size": question.parallel.tensor,
            "pipeline_parallel_size": question.parallel.pipeline,
            "data_parallel_size": question.parallel.data,
            "expert_parallel_size": question.parallel.expert,
            "decode_context_parallel_size": question.parallel.context,
            "bandwidth_bytes_per_second": question.peaks.bandwidth_bytes_per_second,
            "bandwidth_origin": question.peaks.origin,
            "flops_per_second": {precision.value: rate for precision, rate in question.peaks.flops.items()},
            "memory_bytes": question.memory_bytes,
            "usd_per_hour": question.usd_per_gpu_hour,
        },
        "context_tokens": question.context_tokens,
        "prompt_tokens": question.prompt_tokens,
        "speculation": {
            "drafts": question.speculation.drafts,
            "acceptance": question.speculation.acceptance,
            "tokens_per_step": question.speculation.yielded,
        },
        "fit": {
            "fits": answer.fit.fits and not answer.refusals,
            "refusals": list(answer.refusals),
            "free_kv_bytes": _whole(max(0.0, answer.fit.free_kv_bytes)),
            "max_batch": answer.max_batch,
            "batch_limit": question.limits.most,
            "shortfall_bytes": _whole(answer.fit.shortfall_bytes),
            "kv_bytes_per_sequence": _whole(answer.fit.kv_bytes_per_sequence),
            "least_gpus": answer.least_gpus,
        },
        "batches": [_batch(line) for line in answer.lines],
        "ridge_batch": _finite(answer.ridge_batch),
        "weights_ridge_batch": _finite(answer.weights_ridge_batch),
        "first_token_floor_seconds": answer.first_token_floor_seconds,
        "embedding": None
        if embedding is None
        else {
            "tokens_per_second": embedding.tokens_per_second,
            "floor_seconds": embedding.floor_seconds,
            "usd_per_million_tokens": embedding.usd_per_million_tokens,
        },
        "tokens_per_second_per_replica": answer.tokens_per_second_per_replica,
        "replicas": None if answer.replicas is None else answer.replicas.whole,
        "replicas_exact": None if answer.replicas is None else answer.replicas.needed,
        "notes": list(answer.notes),
    }


def _model(model: ModelFacts) -> dict[str, Any]:
    geometry = model.geometry
    return {
        "name": model.name,
        "origin": model.origin,
        "family": geometry.family,
        "parameters_total": geometry.parameters_total,
        "parameters_active": geometry.parameters_active,
        "decode_read_parameters": geometry.decode_read_parameters,
        "kv_bytes_per_token": _whole(model.kv_bytes_per_token),
        "state_bytes_per_sequence": _whole(model.state_bytes_per_sequence()),
        "weight_bytes": _whole(model.weight_bytes),
        "checkpoint_bytes": model.checkpoint_bytes,
        "weight_formats": _formats(model),
        "weight_formats_assumed": model.weights_assumed,
        "kv_format": model.kv_format,
        "context_limit_tokens": model.context_limit_tokens,
        "experts": geometry.experts,
        "experts_per_token": geometry.experts_per_token,
        "encoder": geometry.encoder,
    }


def _batch(line: Line) -> dict[str, Any]:
    return {
        "batch": line.batch,
        "tokens_per_second": line.ceiling.tokens_per_second,
        "tokens_per_second_upper": line.upper_tokens_per_second,
        "tokens_per_second_lower": line.lower_tokens_per_second,
        "ms_per_step": 1000 * line.ceiling.step_seconds,
        "bound": line.ceiling.bound.value,
        "usd_per_million_tokens": line.usd_per_million_tokens,
        "fits": line.fits,
        "beyond_limit": line.beyond_limit,
        "bandwidth_tokens_per_second": line.ceiling.bandwidth_tokens_per_second,
        "compute_tokens_per_second": line.ceiling.compute_tokens_per_second,
    }


def _whole(value: float) -> int:
    """Bytes are whole; fractional bits of a format may leave a fraction of one."""
    return round(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _formats(model: ModelFacts) -> list[str]:
    return sorted({group.format.name for group in model.groups})


def as_table(answer: Answer) -> str:
    """For people."""
    question = answer.question
    fits = "no: engines refuse it, see below" if answer.refusals else _fit(question, answer.fit, answer.max_batch)
    rows = [*_model_rows(question.model), *_gpu_rows(question), ("fits", fits), *_rate_rows(answer)]
    if question.load is not None:
        rows.append(("replicas", _replicas(answer)))
    width = max(len(label) for label, _ in rows)
    lines = [f"{label:<{width}}  {value}" for label, value in rows]
    if answer.lines:
        lines += ["", *_batches(answer)]
    return "\n".join([*lines, *(["", *(f"note: {text}" for text in answer.notes)] if answer.notes else [])])


def _parameters(value: float) -> str:
    """Parameters as the field writes them: 70.6B."""
    return number(value).replace("G", "B")


def _rate(value: float | None, unit: str) -> str:
    """3.35 TB/s, 990 TFLOP/s."""
    text = number(value)
    return f"{text[:-1]} {text[-1]}{unit}" if text[-1:].isalpha() else f"{text} {unit}"


def _model_rows(model: ModelFacts) -> list[tuple[str, str]]:
    geometry = model.geometry
    read, whom = _parameters(geometry.decode_read_parameters), "decode step of one sequence"
    passed = f"{read} passed by each token" if geometry.encoder else f"{read} read by a {whom}"
    rows = [
        ("model", f"{model.name} ({model.origin})"),
        ("parameters", f"{_parameters(geometry.parameters_total)}, {passed}"),
        (
            "weights",
            f"{size(model.weight_bytes)} in {'assumed ' if model.weights_assumed else ''}{' + '.join(_formats(model))}",
        ),
    ]
    if geometry.experts:
        rows.append(("experts", f"{geometry.experts_per_token} of {geometry.experts} a token and layer"))
    cache = f"{size(model.kv_bytes_per_token)} a token in {model.kv_format}" if model.kv_bytes_per_token else "none"
    state = model.state_bytes_per_sequence()
    rows.append(("KV cache", f"{cache}; {size(state)} of recurrent state a sequence" if state else cache))
    return rows


def _gpu_rows(question: Question) -> list[tuple[str, str]]:
    peaks, parallel = question.peaks, question.parallel
    moved = (
        f"{_rate(peaks.bandwidth_bytes_per_second, 'B/s')} by {peaks.origin}" if peaks.origin else "bandwidth unknown"
    )
    rates = ", ".join(f"{precision.value} {_rate(rate, 'FLOP/s')}" for precision, rate in peaks.flops.items())
    rows = [
        ("GPUs", f"{parallel.gpus} x {peaks.name}, {_layout(parallel)}"),
        ("peaks of one", f"{moved}; {rates or 'dense rates unknown'}"),
    ]
    if question.usd_per_hour is not None:
        rows.append(("price", f"{usd_to_the_cent(question.usd_per_hour)} an hour"))
    return rows


def _layout(parallel: Parallel) -> str:
    words = [f"tensor {parallel.tensor}", f"pipeline {parallel.pipeline}"]
    for name, count in (("data", parallel.data), ("expert", parallel.expert), ("decode context", parallel.context)):
        if count > 1:
            words.append(f"{name} {count}")
    return ", ".join(words)


def _fit(question: Question, room: Fit, max_batch: int | None) -> str:
    share = f"{100 * question.memory_utilisation:g} % of {size(question.memory_bytes)} a GPU"
    if question.overhead_bytes:
        share += f", less {size(question.overhead_bytes)}"
    if not room.fits:
        return f"no: {size(room.shortfall_bytes)} missing ({share})"
    if room.max_batch is None:
        return f"yes ({share})"
    free = f"{size(room.free_kv_bytes)} free for KV"
    most = f"{max_batch} sequences of {question.context_tokens} tokens"
    limit = question.limits.sequences
    if limit is not None and limit.number < room.max_batch:
        most += f" by {limit.words}, while {room.max_batch} fit"
    return f"yes: {free}, at most {most} ({share})"


def _rate_rows(answer: Answer) -> list[tuple[str, str]]:
    prompt = answer.question.prompt_tokens
    if answer.embedding is not None:
        rate, usd = number(answer.embedding.tokens_per_second, "tokens/s"), answer.embedding.usd_per_million_tokens
        price = "" if usd is None else f", ${usd_four_digits(usd)} a million"
        return [
            ("embedding", f"{rate} at these peaks, inputs of {prompt} tokens{price}"),
            ("one input", f"{seconds(answer.embedding.floor_seconds)} at these peaks, alone"),
        ]
    floor = seconds(answer.first_token_floor_seconds)
    return [
        ("ridge batch", _ridge(answer)),
        ("first token", f"{floor} at these peaks, for a prompt of {prompt} tokens alone"),
    ]


def _ridge(answer: Answer) -> str:
    if answer.ridge_batch is None:
        return f"{NOTHING} (a peak is not known)"
    tokens, alone = answer.question.context_tokens, answer.weights_ridge_batch
    if math.isinf(answer.ridge_batch):
        what = "state" if not answer.question.model.kv_bytes_per_token else "KV"
        step = f"none: reading {tokens} tokens of {what} takes longer than computing with them"
    else:
        step = f"{math.ceil(answer.ridge_batch)} sequences of {tokens} tokens"
    return f"{step}; for the weights alone {math.ceil(alone)}" if alone is not None and math.isfinite(alone) else step


def _replicas(answer: Answer) -> str:
    question, load = answer.question, answer.question.load
    assert load is not None
    asked = f"{load.requests_per_second:g} requests/s of {load.input_tokens:g} + {load.output_tokens:g} tokens"
    if answer.replicas is None:
        why = (
            "a request does not fit a replica"
            if answer.first_token_floor_seconds or answer.embedding
            else "a peak is not known"
        )
        return f"{NOTHING} for {asked}: {why}"
    rate = number((answer.tokens_per_second_per_replica or 0.0) * load.efficiency, "tokens/s")
    how = f"{rate} each at {load.efficiency:g} of the ceiling, used to {load.target_utilisation:g}, redundancy {load.redundancy:g}"
    price = (
        ""
        if question.usd_per_hour is None
        else f", {usd_to_the_cent(answer.replicas.whole * question.usd_per_hour)} an hour"
    )
    return f"{answer.replicas.whole} for {asked}{price} ({how})"


def _mark(line: Line) -> str:
    if line.beyond_limit:
        return "beyond the engine's limit"
    return "" if line.fits else "does not fit"


def _batches(answer: Answer) -> Sequence[str]:
    priced = answer.question.usd_per_gpu_hour is not None
    head = (
        "batch",
        "tokens/s",
        "at best",
        "per sequence",
        "ms/step",
        "bound",
        *(("$/M tokens",) if priced else ()),
        "",
    )
    body = [
        (
            str(line.batch),
            f"{line.ceiling.tokens_per_second:,.1f}",
            f"{line.upper_tokens_per_second:,.1f}",
            f"{line.ceiling.tokens_per_second / line.batch:,.1f}",
            f"{1000 * line.ceiling.step_seconds:,.2f}",
            line.ceiling.bound.value,
            *((usd_four_digits(line.usd_per_million_tokens),) if line.usd_per_million_tokens is not None else ()),
            _mark(line),
        )
        for line in answer.lines
    ]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *body)
    ]
