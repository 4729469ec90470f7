"""A question about a fleet's last days -> today beside it -> a table or a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llm_serving_exporter.commands.what_if.capacity import (
    Objective,
    Request,
    Server,
    State,
    find_bound,
    least_replicas,
    serve,
)
from llm_serving_exporter.commands.what_if.reach import CAPPED_CLOCK, Reach, fit_reach
from llm_serving_exporter.commands.what_if.week import UnansweredError, Week, smooth_peak
from llm_serving_exporter.derive.planning import list_refusals, usd_per_million_tokens
from llm_serving_exporter.derive.roof import lacks
from llm_serving_exporter.derive.work import Roof, kept_token_bytes, weight_held_bytes
from llm_serving_exporter.facts import loader
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_spec
from llm_serving_exporter.model.hardware import GpuPeaks, Parallel
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import NOTHING, number, percent, seconds, span, usd, usd_four_digits

# of events within their thresholds
USUAL_SHARE = 0.99
_WEEK_HOURS = 168.0
# vLLM's share of the memory, and what is taken where nobody says more
_MEMORY_SHARE = 0.9
# what stays in them beside a quantised format
_SIXTEEN_BITS = ("bf16", "fp16", "fp32")
_PATIENCE = 1.1  # a batch or a prompt that is so little beyond what was measured counts as measured


class Asked(Struct, frozen=True):
    """What is to be different; None: as it is."""

    model: str  # as it is served
    hf_cache: str | None = None
    model_catalogue: str | None = None
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
    share: float = USUAL_SHARE


def find_facts(asked: Asked, weights: str | None = None, kv: str | None = None) -> ModelFacts:
    """Of its model in these formats of weights and KV cache; None: as its name says. Raises FactsError."""
    settings = replace(loader.given(asked.model), weight_format=weights, kv_cache_dtype=kv)
    return loader.model_facts(settings, None, asked.hf_cache, asked.model_catalogue)


def find_peaks(gpu: str) -> GpuPeaks:
    """Raises FactsError for a GPU that the catalogue does not have."""
    return peaks_of_spec(find(gpu, loader.gpu_catalogue()))


class Column(Struct, frozen=True):
    """Today, or the question. None: not known."""

    server: Server
    request: Request
    replicas: float  # that there are, or are asked about
    needed: int | None  # None: no number holds the objectives
    with_reserve: int | None
    requests_per_second: float  # at the peak
    state: State | None  # at the peak; None: they do not carry it
    binds: str  # what a higher rate meets, or what this one did
    usd_per_million_tokens: float | None
    weekly_usd: float | None


class Answer(Struct, frozen=True):
    """Both columns, what it rests on, and what was assumed."""

    week: Week
    today: Column
    question: Column
    sure: str  # measured, scaled by ceilings, or assumed
    notes: tuple[str, ...]


class Watched(Struct, frozen=True):
    """A week with the replica that served it, and how near that came to its ceilings."""

    week: Week
    roof: Roof
    reach: Reach
    # of weights and KV cache, as the engines loaded them; None: as the model's name says
    formats: tuple[str | None, str | None]


def watch(week: Week, asked: Asked) -> Watched:
    """Raises UnansweredError for a model, GPU or layout that is not known, FactsError for a name that the catalogues do not have."""
    if week.gpus % week.ranks:
        raise UnansweredError(
            f"a replica of {week.model_name} has {week.ranks} engines on {count_nouns(week.gpus, 'GPU')}, which do not have as many each: "
            "give its targets gpu_count"
        )
    formats = _list_own_formats(week, find_facts(asked))
    roof = _roof(find_facts(asked, *formats), find_peaks(week.gpu_name), week.gpus // week.ranks, week.ranks)
    return Watched(week, roof, fit_reach(roof, week.windows), formats)


def answer(watched: Watched, asked: Asked) -> Answer:
    """Raises UnansweredError where there is no answer, FactsError for a GPU that the catalogue does not know."""
    week, here, reach = watched.week, watched.roof, watched.reach
    weights, kv = watched.formats
    peaks = here.peaks if asked.gpu is None else find_peaks(asked.gpu)
    facts = find_facts(asked, asked.weights or weights, asked.kv or kv)
    there = _roof(facts, peaks, asked.tensor or here.parallel.tensor, week.ranks)
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
    today = _fill_column(week, server, week.request, objective, peak, week.replicas, week.usd_per_gpu_hour)
    price = asked.usd_per_gpu_hour or (None if other else week.usd_per_gpu_hour)
    question = _fill_column(week, asked_server, request, objective, peak * asked.traffic, asked.replicas, price)
    doubts = tuple(_doubts(carried, request, question.state))
    scaled = other or there.parallel != here.parallel or bool(asked.weights or asked.kv)
    notes = (*doubts, *_notes(week, reach, here, objective, other=other, priced=price is not None))
    return Answer(week, today, question, "assumed" if doubts else "scaled by ceilings" if scaled else "measured", notes)


def _fill_column(
    week: Week,
    server: Server,
    request: Request,
    objective: Objective,
    rate: float,
    replicas: float | None,
    price: float | None,
) -> Column:
    """At `rate` requests/s of all replicas at the peak; `replicas`: None for as many as are needed."""
    least = least_replicas(server, request, objective, rate)
    if replicas is None and least is None:
        limits = " and ".join(f"{name} {seconds(limit)}" for name, limit in objective.seconds.items()) or "this load"
        raise UnansweredError(
            f"no number of replicas holds {limits}: one request alone takes too long; ask with a faster GPU or a larger --tp"
        )
    needed, gpus = None if least is None else least[0], server.roof.parallel.gpus
    count = float(needed or 0) if replicas is None else max(1.0, replicas)
    state = serve(server, request, objective, rate / count, max(1, round(count)))
    node = max(1, week.largest_node * week.gpus // gpus)
    reserve = needed + node if needed is not None and week.largest_node else None
    hourly = None if price is None else count * gpus * price
    # of a mean second: so many times as many requests, each of so many times as many tokens
    factor = rate / smooth_peak(week.rates, objective.share) * request.tokens / week.request.tokens
    tokens = week.tokens / week.seconds * factor
    million = None if hourly is None else usd_per_million_tokens(hourly, tokens)
    return Column(
        server, request, count, needed, reserve, rate, state, state.binds if state else find_bound(server, request), million,
        None if hourly is None else hourly * _WEEK_HOURS * week.present_share,
    )  # fmt: skip


def _list_own_formats(week: Week, named: ModelFacts) -> tuple[str | None, str | None]:
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
    sent = request.sent
    if asked.input_tokens is not None and not sent:
        raise UnansweredError(
            "no token of prompts was counted, so that another length changes nothing that is known: leave --input-tokens out"
        )
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


def _doubts(reach: Reach, request: Request, state: State | None) -> Iterator[str]:
    """What of the answer lies outside of what was measured."""
    if not reach.decode:
        yield "no window was dominated by decode: its share of the bandwidth is assumed"
    if not reach.prefill:
        share = percent(reach.compute_efficiency, 0)
        yield f"no window on such a card was dominated by prefill: that prompts reach {share} of the dense peak is assumed"
    sent = request.sent
    checks = (
        ("a batch", "batch", None if state is None else state.batch, {"batch": reach.batches}),
        ("prompts computed", "prompt", request.computed, reach.prefill or reach.decode),
        ("a cached share", "cached", request.cached / sent if sent else 0.0, reach.prefill or reach.decode),
    )
    for words, name, value, ranges in checks:
        least, most = ranges.get(name, (0.0, float("inf")))
        if value is not None and not least / _PATIENCE - 0.05 <= value <= most * _PATIENCE + 0.05:
            yield f"{words} of {number(value)} is outside of the {number(least)} to {number(most)} that were measured: assumed"


def _notes(week: Week, reach: Reach, here: Roof, objective: Objective, *, other: bool, priced: bool) -> Iterator[str]:
    held = f"power or heat held the clock below {percent(CAPPED_CLOCK, 0)} while prompts were measured"
    ranks = f" within each of {here.parallel.data} ranks" if here.parallel.data > 1 else ""
    notes = (
        (other and reach.capped, f"{held}: that share of the peak is not carried to another card"),
        (not priced, "no price is known for it: give --price with USD for one GPU and hour"),
        (
            not objective.seconds,
            "no objective of latency is set: replicas are those that carry the load at all; set slo in the exporter's configuration",
        ),
        (not week.largest_node, "no reserve is said: no target names its node; give the targets nodes"),
        (here.parallel.gpus > 1, f"a replica's {here.parallel.gpus} GPUs count as tensor-parallel{ranks}"),
    )
    return (text for holds, text in notes if holds)


def _of_state(say: Callable[[State], str], otherwise: str = NOTHING) -> Callable[[Column], str]:
    return lambda column: otherwise if column.state is None else say(column.state)


_ROWS: tuple[tuple[str, Callable[[Column], str]], ...] = (
    ("GPUs of a replica", lambda column: f"{column.server.roof.parallel.gpus} x {column.server.roof.peaks.name}"),
    ("replicas", lambda column: f"{column.replicas:.3g}"),
    ("replicas needed", lambda column: number(column.needed)),
    ("with the N-1 reserve", lambda column: number(column.with_reserve)),
    ("requests/s at the peak", lambda column: number(column.requests_per_second)),
    ("prompt + answer", lambda column: f"{column.request.sent:.0f} + {column.request.output:.0f} tokens"),
    ("objectives", _of_state(lambda state: "hold" if state.holds else f"missed: {state.binds}", "not carried")),
    ("batch of a replica", _of_state(lambda state: f"{state.batch:.0f}")),
    ("step", _of_state(lambda state: seconds(state.step_seconds))),
    ("KV cache free at the peak", _of_state(lambda state: percent(state.kv_free, 0))),
    ("binds next", lambda column: column.binds),
    (
        "$/M tokens",
        lambda column: NOTHING if (price := column.usd_per_million_tokens) is None else usd_four_digits(price),
    ),
    ("$ a week", lambda column: usd(column.weekly_usd)),
)


def as_table(found: Answer) -> str:
    """For people."""
    week, reach = found.week, found.question.server.reach
    cells = [("", "today", "question"), *((label, say(found.today), say(found.question)) for label, say in _ROWS)]
    widths = [max(len(row[place]) for row in cells) for place in (1, 2)]
    lines = [f"{label:<26}{first:>{widths[0]}}  {second:>{widths[1]}}" for label, first, second in cells]
    head = f"{week.model_name} ({week.role}), {week.requests:,.0f} requests in {span(week.seconds)}"
    how = f"e_b {reach.bandwidth_efficiency:.2f}, e_c {reach.compute_efficiency:.2f} from {reach.windows} windows"
    over = "; ".join(
        f"{phase} at {', '.join(f'{name} {number(least)} to {number(most)}' for name, (least, most) in ranges.items())}"
        for phase, ranges in (("decode", reach.decode), ("prefill", reach.prefill))
        if ranges
    )
    sure = f"{'how sure':<26}{found.sure}: {how}{f' ({over})' if over else ''}"
    return "\n".join([head, "", *lines, "", sure, *(f"note: {text}" for text in found.notes)])


def as_document(found: Answer) -> dict[str, Any]:
    """For programs: seconds, tokens, USD; null where it is not known."""
    week, reach = found.week, found.question.server.reach
    return {
        "model_name": week.model_name, "role": week.role, "seconds": week.seconds,
        "today": _document(found.today), "question": _document(found.question),
        "bandwidth_efficiency": reach.bandwidth_efficiency, "compute_efficiency": reach.compute_efficiency,
        "windows": reach.windows, "measured_over": {"decode": dict(reach.decode), "prefill": dict(reach.prefill)},
        "sure": found.sure, "notes": list(found.notes),
    }  # fmt: skip


def _document(column: Column) -> dict[str, Any]:
    state, request, roof = column.state, column.request, column.server.roof
    return {
        "gpu": roof.peaks.name, "gpus_per_replica": roof.parallel.gpus, "replicas": column.replicas, "replicas_needed": column.needed,
        "replicas_with_reserve": column.with_reserve, "requests_per_second": column.requests_per_second,
        "input_tokens": request.sent, "cached_tokens": request.cached, "output_tokens": request.output,
        "usd_per_million_tokens": column.usd_per_million_tokens, "usd_per_week": column.weekly_usd,
        "carried": state is not None, "objectives_hold": state is not None and state.holds,
        "batch": state and state.batch, "step_seconds": state and state.step_seconds, "kv_free_ratio": state and state.kv_free,
        "tokens_per_second_per_replica": state and state.tokens_per_second, "binds": column.binds,
    }  # fmt: skip
