"""A question about a fleet's last days -> today beside it -> a table or a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llm_serving_exporter.commands.what_if.capacity import (
    Objective,
    Request,
    Server,
    State,
    least_replicas,
    serve,
)
from llm_serving_exporter.commands.what_if.reach import CAPPED_CLOCK, Reach, fit_reach
from llm_serving_exporter.commands.what_if.week import UnansweredError, Week, smooth_peak
from llm_serving_exporter.derive.planning import list_refusals, usd_per_million_tokens
from llm_serving_exporter.derive.roof import lacks
from llm_serving_exporter.derive.work import Roof, kept_token_bytes, weight_held_bytes
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.render.numbers import NOTHING, number, percent, seconds, usd, usd_four_digits

_WEEK_SECONDS = 604_800.0
# vLLM's share of the memory, and what is taken where nobody says more
_MEMORY_SHARE = 0.9
# what stays in them beside a quantised format
_SIXTEEN_BITS = ("bf16", "fp16", "fp32")
_PATIENCE = 1.1  # a batch or a prompt that is so little beyond what was measured counts as measured


class Asked(Struct, frozen=True):
    """What is to be different; None: as it is."""

    facts: Callable[[str | None, str | None], ModelFacts]  # of the model, by formats of weights and KV cache
    peaks: Callable[[str], GpuPeaks]  # of a GPU by name; raises FactsError
    traffic: float = 1.0
    gpu: str | None = None
    tensor: int | None = None
    weights: str | None = None
    kv: str | None = None
    replicas: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    batch_limit: int | None = None
    usd_per_gpu_hour: float | None = None
    share: float = 0.99


class Column(Struct, frozen=True):
    """Today, or the question. None: not known."""

    gpu: str
    gpus: int  # of a replica
    replicas: float  # that there are, or are needed
    with_reserve: int | None
    requests_per_second: float  # at the peak
    request: Request
    state: State | None  # at the peak; None: they do not carry it
    usd_per_million_tokens: float | None
    weekly_usd: float | None


class Answer(Struct, frozen=True):
    """Both columns, what it rests on, and what was assumed."""

    week: Week
    today: Column
    needed_today: int | None
    question: Column
    needed: int | None
    reach: Reach
    sure: str  # measured, scaled by ceilings, or assumed
    notes: tuple[str, ...]


def answer(week: Week, asked: Asked) -> Answer:
    """Raises UnansweredError where there is no answer, FactsError for a GPU that the catalogue does not know."""
    tensor = week.gpus // week.ranks
    weights, kv = _list_own_formats(week, asked.facts(None, None))
    here = _roof(asked.facts(weights, kv), asked.peaks(week.gpu_name), tensor, week.ranks)
    facts = asked.facts(asked.weights or weights, asked.kv or kv)
    peaks = here.peaks if asked.gpu is None else asked.peaks(asked.gpu)
    there = _roof(facts, peaks, asked.tensor or tensor, week.ranks)
    reach = fit_reach(here, week.windows)
    other = there.peaks.name != here.peaks.name
    carried = reach.on_another_card() if other else reach
    objective, peak = Objective(asked.share, week.objectives), smooth_peak(week.rates, asked.share)
    request = _change(week.request, asked)
    server = Server(here, reach, week.kv_tokens, week.batch_limit)
    asked_server = Server(there, carried, _kv_tokens(week, here, there), asked.batch_limit or week.batch_limit)
    if asked_server.kv_tokens is not None and asked_server.kv_tokens < request.held:
        raise UnansweredError(
            f"{there.model.name} with its KV cache does not fit {there.parallel.gpus} x {there.peaks.name}: "
            f"ask with more GPUs, as in --tp {2 * there.parallel.tensor}"
        )
    least = least_replicas(server, week.request, objective, peak)
    needed = least_replicas(asked_server, request, objective, peak * asked.traffic)
    if needed is None and asked.replicas is None:
        raise UnansweredError(
            f"no number of replicas holds {_limits(objective)}: one request alone takes too long; ask with a faster GPU or a larger --tp"
        )
    count = asked.replicas or (needed[0] if needed is not None else 0)
    price = asked.usd_per_gpu_hour or (None if other else week.usd_per_gpu_hour)
    tokens = week.tokens / week.seconds * _WEEK_SECONDS
    sent = (request.computed + request.cached + request.output) / (
        week.request.computed + week.request.cached + week.request.output
    )
    state = serve(asked_server, request, objective, peak * asked.traffic / count, count)
    now = serve(server, week.request, objective, peak / max(1.0, week.replicas), max(1, round(week.replicas)))
    today = Column(
        here.peaks.name, week.gpus, week.replicas, None if least is None else _reserve(week, least[0], week.gpus), peak, week.request, now,
        *_price(week.weekly_usd, tokens),
    )  # fmt: skip
    weekly = None if price is None else count * there.parallel.gpus * price * _WEEK_SECONDS / 3600
    question = Column(
        there.peaks.name, there.parallel.gpus, count, None if needed is None else _reserve(week, needed[0], there.parallel.gpus),
        peak * asked.traffic, request, state, *_price(weekly, tokens * asked.traffic * sent),
    )  # fmt: skip
    doubts = tuple(_doubts(carried, request, state))
    scaled = there.peaks.name != here.peaks.name or there.parallel != here.parallel or bool(asked.weights or asked.kv)
    notes = [*doubts, *_notes(week, reach, here, objective, other=other, priced=price is not None)]
    sure = "assumed" if doubts else "scaled by ceilings" if scaled else "measured"
    counts = [None if one is None else one[0] for one in (least, needed)]
    return Answer(week, today, counts[0], question, counts[1], carried, sure, tuple(notes))


def _list_own_formats(week: Week, named: ModelFacts) -> tuple[str | None, str | None]:
    """Of weights and KV cache, as the engines loaded them; None where that is what the model's name says."""
    formats = week.weight_format.split("+")
    loaded = next((one for one in formats if one not in _SIXTEEN_BITS), formats[0])
    same = sorted({group.format.name for group in named.groups}) == sorted(formats)
    return None if same else loaded or None, None if week.kv_format == named.kv_format else week.kv_format or None


def _roof(model: ModelFacts, peaks: GpuPeaks, tensor: int, ranks: int) -> Roof:
    experts = tensor * ranks if model.geometry.experts and ranks > 1 else 1
    roof = Roof(model, peaks, Parallel(tensor, 1, ranks, experts))
    for sentence in (*(lack.sentence for lack in lacks(roof)), *list_refusals(model, peaks, roof.parallel, 1)):
        raise UnansweredError(f"{sentence}: ask about a model, GPU and layout that it knows")
    return roof


def _change(request: Request, asked: Asked) -> Request:
    """Of another prompt the same share is cached; the context changes by as much as prompt and half an answer do."""
    sent = request.computed + request.cached
    factor = 1.0 if asked.input_tokens is None else asked.input_tokens / sent
    output = asked.output_tokens or request.output
    longer = (factor - 1) * sent + (output / request.output - 1) * max(0.0, request.context - sent)
    kept = request.held / max(1.0, request.context)
    context = max(1.0, request.context + longer)
    return Request(request.computed * factor, request.cached * factor, output, context, kept * context)


def _kv_tokens(week: Week, here: Roof, there: Roof) -> float | None:
    """That fit a replica: as today, and what memory, weights and format of the KV change."""
    if week.kv_tokens is None or here.peaks.memory_bytes is None or there.peaks.memory_bytes is None:
        return None
    more = there.parallel.gpus * there.peaks.memory_bytes - here.parallel.gpus * here.peaks.memory_bytes
    weights = there.parallel.data * weight_held_bytes(there) - here.parallel.data * weight_held_bytes(here)
    each, before = (kept_token_bytes(roof.model, roof.parallel) for roof in (there, here))
    return max(0.0, week.kv_tokens * before + _MEMORY_SHARE * more - weights) / each if each else None


def _reserve(week: Week, needed: int, gpus: int) -> int | None:
    """With those of the largest node besides."""
    return needed + max(1, week.largest_node * week.gpus // gpus) if week.largest_node else None


def _price(weekly: float | None, tokens: float) -> tuple[float | None, float | None]:
    hours = _WEEK_SECONDS / 3600
    return (None, None) if weekly is None else (usd_per_million_tokens(weekly / hours, tokens / _WEEK_SECONDS), weekly)


def _limits(objective: Objective) -> str:
    return " and ".join(f"{name} {seconds(limit)}" for name, limit in objective.seconds.items()) or "this load"


def _doubts(reach: Reach, request: Request, state: State | None) -> Iterator[str]:
    """What of the answer lies outside of what was measured."""
    if not reach.decode:
        yield "no window was dominated by decode: its share of the bandwidth is assumed"
    if not reach.prefill:
        share = percent(reach.compute_efficiency, 0)
        yield f"no window on such a card was dominated by prefill: that prompts reach {share} of the dense peak is assumed"
    sent = request.computed + request.cached
    checks = (
        ("a batch", "batch", None if state is None else state.batch, reach.decode),
        ("prompts computed", "prompt", request.computed, reach.prefill or reach.decode),
        ("a cached share", "cached", request.cached / sent if sent else 0.0, reach.prefill or reach.decode),
    )
    for words, name, value, ranges in checks:
        least, most = ranges.get(name, (0.0, float("inf")))
        if value is not None and not least / _PATIENCE - 0.05 <= value <= most * _PATIENCE + 0.05:
            yield f"{words} of {value:.3g} is outside of the {least:.3g} to {most:.3g} that were measured: assumed"


def _notes(week: Week, reach: Reach, here: Roof, objective: Objective, *, other: bool, priced: bool) -> Iterator[str]:
    if other and reach.capped:
        held = f"power or heat held the clock below {percent(CAPPED_CLOCK, 0)} while prompts were measured"
        yield f"{held}: that share of the peak is not carried to another card"
    if not priced:
        yield "no price is known for it: give --price with USD for one GPU and hour"
    if not objective.seconds:
        yield "no objective of latency is set: replicas are those that carry the load at all; set slo in the exporter's configuration"
    if not week.largest_node:
        yield "no reserve is said: no target names its node; give the targets nodes"
    if here.parallel.gpus > 1:
        yield f"a replica's {here.parallel.gpus} GPUs count as tensor-parallel within each of {here.parallel.data} ranks"


def as_table(found: Answer) -> str:
    """For people."""
    week, both = found.week, (found.today, found.question)
    cells: list[tuple[str, list[str]]] = [
        ("", ["today", "question"]),
        ("GPUs of a replica", [f"{one.gpus} x {one.gpu}" for one in both]),
        ("replicas", [f"{one.replicas:.3g}" for one in both]),
        ("replicas needed", [number(found.needed_today), number(found.needed)]),
        ("with the N-1 reserve", [number(one.with_reserve) for one in both]),
        ("requests/s at the peak", [number(one.requests_per_second) for one in both]),
        (
            "prompt + answer",
            [f"{one.request.computed + one.request.cached:.0f} + {one.request.output:.0f} tokens" for one in both],
        ),
        ("objectives", [_holds(one.state) for one in both]),
        ("batch of a replica", [NOTHING if one.state is None else f"{one.state.batch:.0f}" for one in both]),
        ("step", [NOTHING if one.state is None else seconds(one.state.step_seconds) for one in both]),
        ("KV cache free at the peak", [_free(one.state) for one in both]),
        ("binds next", [NOTHING if one.state is None else one.state.binds for one in both]),
        (
            "$/M tokens",
            [
                NOTHING if one.usd_per_million_tokens is None else usd_four_digits(one.usd_per_million_tokens)
                for one in both
            ],
        ),
        ("$ a week", [usd(one.weekly_usd) for one in both]),
    ]
    widths = [max(len(row[1][place]) for row in cells) for place in (0, 1)]
    lines = [
        f"{label:<26}" + "  ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
        for label, texts in cells
    ]
    head = f"{week.model_name} ({week.role}), {week.requests:,.0f} requests in {week.seconds / 86400:.3g} days"
    efficiencies = f"e_b {found.reach.bandwidth_efficiency:.2f}, e_c {found.reach.compute_efficiency:.2f}"
    how = f"{found.sure}: {efficiencies} from {found.reach.windows} windows{_ranges(found.reach)}"
    return "\n".join([head, "", *lines, "", f"{'how sure':<26}{how}", *(f"note: {text}" for text in found.notes)])


def _holds(state: State | None) -> str:
    return "not carried" if state is None else "hold" if state.holds else f"missed: {state.binds}"


def _free(state: State | None) -> str:
    return NOTHING if state is None or state.kv_share is None else percent(max(0.0, 1 - state.kv_share), 0)


def _ranges(reach: Reach) -> str:
    told = [
        f"{phase} at {', '.join(f'{name} {least:.3g} to {most:.3g}' for name, (least, most) in ranges.items())}"
        for phase, ranges in (("decode", reach.decode), ("prefill", reach.prefill)) if ranges
    ]  # fmt: skip
    return f" ({'; '.join(told)})" if told else ""


def as_document(found: Answer) -> dict[str, Any]:
    """For programs: seconds, tokens, USD; null where it is not known."""

    def column(one: Column, needed: int | None) -> Mapping[str, Any]:
        state, request = one.state, one.request
        return {
            "gpu": one.gpu, "gpus_per_replica": one.gpus, "replicas": one.replicas, "replicas_needed": needed,
            "replicas_with_reserve": one.with_reserve, "requests_per_second": one.requests_per_second,
            "input_tokens": request.computed + request.cached, "cached_tokens": request.cached, "output_tokens": request.output,
            "usd_per_million_tokens": one.usd_per_million_tokens, "usd_per_week": one.weekly_usd,
            "carried": state is not None, "objectives_hold": state is not None and state.holds,
            "batch": state and state.batch, "step_seconds": state and state.step_seconds,
            "tokens_per_second_per_replica": state and state.tokens_per_second, "binds": state and state.binds,
            "kv_free_ratio": None if state is None or state.kv_share is None else max(0.0, 1 - state.kv_share),
        }  # fmt: skip

    return {
        "model_name": found.week.model_name,
        "role": found.week.role,
        "seconds": found.week.seconds,
        "today": column(found.today, found.needed_today),
        "question": column(found.question, found.needed),
        "bandwidth_efficiency": found.reach.bandwidth_efficiency,
        "compute_efficiency": found.reach.compute_efficiency,
        "windows": found.reach.windows,
        "measured_over": {"decode": dict(found.reach.decode), "prefill": dict(found.reach.prefill)},
        "sure": found.sure,
        "notes": list(found.notes),
    }
