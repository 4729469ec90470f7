"""A target's figures as HTML: tiles for one engine, a row each for several; what limits it, and on which inputs that is based."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from markupsafe import Markup

from llm_serving_exporter.derive.bandwidth import choose_ratio
from llm_serving_exporter.derive.kv import FIT, SHARE
from llm_serving_exporter.model.derived import Derived, EngineDerived, Latency, Limiter, SloCount
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.html import NO_MARKUP, bar, fill, header, join, level, note, row, soft, table, tile
from llm_serving_exporter.render.numbers import NOTHING, count, number, seconds, share, size, span, write_quantile
from llm_serving_exporter.render.sentences import (
    describe_limiter,
    describe_suspect,
    long_requests_fit,
    longest_share,
    place_remedy,
    title,
    write_batch_limit,
)

# --- Load, latencies, cache.


QUANTILES = (0.5, 0.95, 0.99)
LATENCIES = ("ttft", "itl", "e2e", "queue")
# the latencies of the several-engine table, and the SLOs that belong to them
_COMPARED = ("ttft", "itl", "e2e")
MOST_ENGINES = 64
# where the alert KVSaturated begins
KV_HIGH_RATIO = 0.95

Engine = tuple[EngineSnapshot, EngineDerived]


def render_engines(reading: TargetReading) -> Markup:
    """Every figure of a target whose last page is fresh; nothing where it has none."""
    if reading.page.snapshot is None or reading.page.derived is None:
        return NO_MARKUP
    derived = {(one.model_name, one.engine): one for one in reading.page.derived.engines}
    engines = [
        (one, derived[one.model_name, one.engine])
        for one in reading.page.snapshot.engines
        if one.is_engine and (one.model_name, one.engine) in derived
    ]
    if len(engines) == 1:
        return _tiles(engines[0], reading.page.derived) + _latencies(engines[0][1], reading.page.derived)
    return _several(engines) if engines else _loaded(reading.page.snapshot.engines)


def _loaded(models: Sequence[EngineSnapshot]) -> Markup:
    """What a runtime without metrics says of its models; "" where it says nothing."""
    rows = [
        row(one.model_name, [size(one.model_gpu_memory_bytes), count(one.context_limit_tokens)])
        for one in models[:MOST_ENGINES]
        if one.model_gpu_memory_bytes is not None
    ]
    return table(header("loaded model", ("GPU memory", "longest context, tokens")), rows) if rows else NO_MARKUP


def write_good_share(found: SloCount | None) -> tuple[str, str]:
    """The share of good events since the engine's start, and of how many, within which threshold."""
    if found is None or found.good + found.bad <= 0:
        return NOTHING, ""
    events = found.good + found.bad
    within = ""
    if found.counted_seconds is not None:
        within = f" within {seconds(found.counted_seconds)}"
        if found.configured_seconds is not None and found.configured_seconds != found.counted_seconds:
            within += f" (the bucket edge below {seconds(found.configured_seconds)})"
    return share(found.good / events), f"of {count(events)}{within}"


def _fill_signal_tile(
    signals: Mapping[str, Absence], name: str, value: str, signal: str, more: str = "", filled: Markup = NO_MARKUP
) -> Markup:
    absence = signals.get(signal, Absence.AVAILABLE)
    return tile(name, value, absence.value.replace("_", " ") if value == NOTHING and absence else more, filled)


def _tiles(engine: Engine, derived: Derived) -> Markup:
    snapshot, own = engine
    why = derived.signals
    per_gpu = own.phase_tokens_per_second_per_gpu
    capacity = snapshot.kv_cache_capacity_tokens
    usage = snapshot.kv_cache_usage_ratio
    used = f"{number(own.kv_cache_used_tokens)} of {number(capacity)} tokens" if capacity is not None else ""

    good = f"{write_good_share(own.slo['ttft'])[0]} good" if "ttft" in own.slo else ""

    signal_tile = partial(_fill_signal_tile, why)

    def phase_tile(name: str) -> Markup:
        each = f"{number(per_gpu[name], 'tok/s')} per GPU" if name in per_gpu else ""
        value = number(own.phase_tokens_per_second.get(name), "tok/s")
        return signal_tile(name.capitalize(), value, f"phase_tokens_per_second_{name}", each)

    longest, bounds = longest_share(own.tail)
    fit, prompt = long_requests_fit(own.tail)
    waiting = f"{count(snapshot.requests_waiting)} waiting" if snapshot.requests_waiting is not None else ""
    cells = (
        phase_tile("prefill"),
        phase_tile("decode"),
        signal_tile("Requests", _write_with_unit(count(snapshot.requests_running), "running"), "requests_running", waiting),
        signal_tile("Batch, mean", _write_with_unit(number(own.batch_size_mean), "seqs"), "batch_size_mean", "decoding in a step"),
        signal_tile(
            "Batch utilisation", share(own.batch_utilization_ratio), "batch_utilization_ratio",
            write_batch_limit(snapshot), bar(own.batch_utilization_ratio),
        ),
        signal_tile("KV cache", share(usage), "kv_cache_usage_ratio", used, bar(usage, KV_HIGH_RATIO)),
        signal_tile("Prefix cache hits", share(own.prefix_cache_hit_ratio), "prefix_cache_hit_ratio", "of tokens looked up"),
        signal_tile(
            "Context, mean", number(own.context_tokens_mean, "tokens"), "context_tokens_mean",
            f"per running request, {number(own.kv_cache_tokens_per_request)} of KV held",
        ),
        signal_tile("Preemptions", _write_with_unit(number(own.preemptions_per_second), "per s"), "preemptions_per_second"),
        signal_tile("Longest 1 %", longest, SHARE.name, bounds),
        signal_tile("Long requests that fit", fit, FIT.name, prompt),
        signal_tile(*_first_token(own.latency.get("ttft")), "latency_ttft", good),
    )  # fmt: skip
    return fill('<dl class="tiles">{}</dl>', join(cells))


def _first_token(found: Latency | None) -> tuple[str, str]:
    """The p99, or the mean of too few events for one."""
    p99 = write_quantile(found, QUANTILES[-1])
    if found is None or p99 != NOTHING:
        return "First token, p99", p99
    return "First token, mean", seconds(found.mean_seconds)


def _write_with_unit(value: str, unit: str) -> str:
    return value if value == NOTHING else f"{value} {unit}"


def _latencies(own: EngineDerived, derived: Derived) -> Markup:
    rows = []
    for name in LATENCIES:
        found = own.latency.get(name)
        if found is None and name not in own.slo:
            why = derived.signals.get(f"latency_{name}", Absence.AVAILABLE)
            if why:
                rows.append(row(title(name), [soft(why.value.replace("_", " ")), "", "", "", "", ""]))
            continue
        values = [write_quantile(found, q) for q in QUANTILES]
        more = [seconds(found.mean_seconds), count(found.events)] if found else [NOTHING, "0"]
        rows.append(row(title(name), [*values, *more, _good(own.slo.get(name))]))
    if "errors" in own.slo:
        rows.append(row("finished without error", ["", "", "", "", "", _good(own.slo["errors"])]))
    if not rows:
        return NO_MARKUP
    columns = [*(f"p{100 * q:g}" for q in QUANTILES), "mean", "events", "good, since the engine started"]
    return table(header("latency", columns), rows)


def _good(found: SloCount | None) -> str:
    value, more = write_good_share(found)
    return fill("{} {}", value, soft(more)) if more else ""


def _several(engines: Sequence[Engine]) -> Markup:
    shown = engines[:MOST_ENGINES]
    one_model = len({snapshot.model_name for snapshot, _ in engines}) == 1
    names = [
        snapshot.engine if one_model else f"{snapshot.model_name or '?'} / {snapshot.engine}" for snapshot, _ in shown
    ]
    load = [row(name, _load(engine)) for name, engine in zip(names, shown, strict=True)]
    times = [row(name, _times(own)) for name, (_, own) in zip(names, shown, strict=True)]
    left = len(engines) - len(shown)
    rest = (
        fill('<p class="facts">{} not shown here.</p>', count_nouns(left, "more engine is", "more engines are"))
        if left
        else NO_MARKUP
    )
    columns = (
        "prefill, tok/s", "decode, tok/s", "running", "waiting", "batch, mean", "batch use",
        "KV cache", "KV tokens", "prefix hits", "preempt./s", "longest 1 %", "long fit",
    )  # fmt: skip
    groups = join(fill('<th colspan="3" scope="colgroup">{}</th>', title(name)) for name in _COMPARED)
    quantiles = [f"p{100 * q:g}" for q in QUANTILES] * len(_COMPARED)
    columns_below = header("engine", [*quantiles, "good"])
    head = fill('<tr><th></th>{}<th scope="colgroup">first tokens</th></tr>{}', groups, columns_below)
    return table(header("engine", columns), load, _total(engines)) + rest + table(head, times)


def _load(engine: Engine) -> list[str]:
    snapshot, own = engine
    return [
        number(own.phase_tokens_per_second.get("prefill")),
        number(own.phase_tokens_per_second.get("decode")),
        count(snapshot.requests_running),
        count(snapshot.requests_waiting),
        number(own.batch_size_mean),
        share(own.batch_utilization_ratio),
        level(snapshot.kv_cache_usage_ratio, share(snapshot.kv_cache_usage_ratio), KV_HIGH_RATIO),
        _write_part_of(own.kv_cache_used_tokens, snapshot.kv_cache_capacity_tokens),
        share(own.prefix_cache_hit_ratio),
        number(own.preemptions_per_second),
        longest_share(own.tail)[0],
        long_requests_fit(own.tail)[0],
    ]


def _write_part_of(part: float | None, whole: float | None) -> str:
    return NOTHING if whole is None else f"{number(part)} of {number(whole)}"


def _total(engines: Sequence[Engine]) -> Markup:
    """Sums over every engine; absent where one engine's figure is."""

    def total(figure: Callable[[Engine], float | None]) -> float | None:
        values = [value for engine in engines if (value := figure(engine)) is not None]
        return add_up(values) if len(values) == len(engines) else None

    used = total(lambda engine: engine[1].kv_cache_used_tokens)
    capacity = total(lambda engine: engine[0].kv_cache_capacity_tokens)
    cells = [
        number(total(lambda engine: engine[1].phase_tokens_per_second.get("prefill"))),
        number(total(lambda engine: engine[1].phase_tokens_per_second.get("decode"))),
        count(total(lambda engine: engine[0].requests_running)),
        count(total(lambda engine: engine[0].requests_waiting)),
        "",
        "",
        share(used / capacity) if used is not None and capacity else "",
        _write_part_of(used, capacity),
        "",
        number(total(lambda engine: engine[1].preemptions_per_second)),
        "",
        "",
    ]
    return row("all", cells)


def _times(own: EngineDerived) -> list[str]:
    cells = []
    for name in _COMPARED:
        found = own.latency.get(name)
        cells += [write_quantile(found, q) for q in QUANTILES]
    return [*cells, write_good_share(own.slo.get("ttft"))[0]]


# --- What limits it, and how close it is to each ceiling.


# an embedding server below this share of its compute ceiling is held up by something other than the GPU
GPU_NOT_THE_LIMIT_BELOW = 0.25


def render_roofline(reading: TargetReading) -> Markup:
    """The roofline of a target whose last page is fresh; nothing where nothing is known of it."""
    derived = reading.page.derived
    if derived is None or reading.page.snapshot is None:
        return NO_MARKUP
    own = {(engine.model_name, engine.engine) for engine in reading.page.snapshot.engines if engine.is_engine}
    engines = [one for one in derived.engines if (one.model_name, one.engine) in own]
    parts = [_limiter(derived)]
    if any(one.roofline.achieved or one.roofline.bandwidth_ceiling is not None for one in engines):
        parts.append(_roofline_tiles(engines[0], derived) if len(engines) == 1 else _several_rooflines(engines))
    parts += [_encoder(reading, derived, engines), _suspects(reading, derived), _models(reading)]
    return join(parts)


def _limiter(derived: Derived) -> Markup:
    verdict = derived.verdict
    if verdict is None or verdict.state is Limiter.UNKNOWN:
        return NO_MARKUP
    evidence = ", ".join(f"{name.replace('_', ' ')} {_figure(name, value)}" for name, value in verdict.evidence.items())
    changing = ""
    if verdict.candidate not in (verdict.state, Limiter.UNKNOWN):
        changing = f" Changing to {verdict.candidate.value.replace('_', ' ')}."
    said = fill("<span>Limited by <b>{}</b>.{}</span>", describe_limiter(verdict), changing)
    return fill('<p class="facts">{} <small>{}</small></p>', said, evidence)


def _figure(name: str, value: float) -> str:
    if name in (
        "requests_waiting",
        "requests_deferred",
        "preemptions_per_second",
        "decode_slowdown",
        "next_prompt_kv",
        "attended_kv",
    ):
        return number(value)
    return span(value) if name.endswith("_seconds") else share(value)


def _roofline_tiles(one: EngineDerived, derived: Derived) -> Markup:
    roof, why = one.roofline, derived.signals
    believed = choose_ratio(roof.ratio)
    sources = ", ".join(f"{source} {share(value)}" for source, value in roof.ratio.items())

    signal_tile = partial(_fill_signal_tile, why)

    ceiling = number(roof.decode_ceiling, "tok/s")
    ridge = number(roof.batch_ridge) if roof.batch_ridge is not None else "never"
    batch = f"of the weights; with KV {ridge}; now {number(roof.batch)}" if roof.weights_ridge is not None else ""
    moved = {part: size(value) for part, value in roof.step_bytes.items()}
    memory = ", ".join(f"{part} {size(value)}" for part, value in one.gpu_memory_bytes.items())
    counted = "counted by the engine" if roof.steps_counted else "from inter-token latency"
    cells = (
        signal_tile("Memory bandwidth", share(believed), "bandwidth_ceiling_ratio_model", sources, bar(believed)),
        signal_tile("Compute", share(roof.compute_ratio), "compute_ceiling_ratio", "of the dense peak", bar(roof.compute_ratio)),
        signal_tile("Decode ceiling", ceiling, "decode_ceiling_tokens_per_second", f"reached {share(roof.decode_ratio)}"),
        signal_tile("Ridge batch", number(roof.weights_ridge), "batch_ridge_size", batch),
        signal_tile("Steps", number(roof.steps_per_second, "per s"), "engine_steps_total", counted),
        signal_tile(
            "Bytes per step", size(add_up(roof.step_bytes.values()) if roof.step_bytes else None), "bandwidth_ceiling_ratio_model",
            f"weights {moved['weights']}, KV {moved['kv_read']}, activations {moved['activations']}" if moved else "",
        ),
        signal_tile("Prefill's share", share(roof.phase_busy_ratio.get("prefill")), "phase_busy_ratio", "of busy time"),
        signal_tile("GPU memory", size(add_up(one.gpu_memory_bytes.values()) or None), "gpu_memory_bytes_estimate", memory),
    )  # fmt: skip
    return fill('<dl class="tiles">{}</dl>', join(cells))


def _several_rooflines(engines: Sequence[EngineDerived]) -> Markup:
    columns = ("bandwidth", "compute", "decode of its ceiling", "decode ceiling, tok/s", "batch", "ridge batch")
    rows = [
        row(
            one.engine,
            [
                share(choose_ratio(one.roofline.ratio)),
                share(one.roofline.compute_ratio),
                share(one.roofline.decode_ratio),
                number(one.roofline.decode_ceiling),
                number(one.roofline.batch),
                number(one.roofline.batch_ridge),
            ],
        )
        for one in engines[:MOST_ENGINES]
    ]
    return table(header("engine", columns), rows)


def _encoder(reading: TargetReading, derived: Derived, engines: Sequence[EngineDerived]) -> Markup:
    """Says of an embedding server that has work that its GPU is not what holds it up."""
    if derived.verdict is None or derived.verdict.state is Limiter.STARVED:
        return NO_MARKUP
    for one in engines:
        facts, ratio = reading.server.models.get(one.model_name), one.roofline.compute_ratio
        encoder = isinstance(facts, ModelFacts) and facts.geometry.encoder
        if encoder and ratio is not None and ratio < GPU_NOT_THE_LIMIT_BELOW:
            return note(
                "info",
                f"The GPU is not the bottleneck: {share(ratio)} of its compute ceiling.",
                "Look at the clients' batch sizes, tokenisation on the CPU, and the HTTP front end.",
            )
    return NO_MARKUP


def _suspects(reading: TargetReading, derived: Derived) -> Markup:
    if not derived.causes:
        return NO_MARKUP
    lines = [place_remedy(describe_suspect(signal, cause), reading.target) for signal, cause in derived.causes.items()]
    return note("warn", "Values that are impossible:", *lines)


def _models(reading: TargetReading) -> Markup:
    lines = []
    for name, facts in reading.server.models.items():
        if isinstance(facts, ModelFacts):
            formats = " + ".join(sorted({group.format.name for group in facts.groups}))
            geometry = facts.geometry
            total, read = number(geometry.parameters_total), number(geometry.decode_read_parameters)
            what = f"{total} parameters, {read} read by a decode step of one sequence, {formats}, KV {facts.kv_format}"
            lines.append(f"{name or '?'}: {what}; {facts.origin}")
            lines += [f"{name or '?'}: {place_remedy(said, reading.target)}" for said in facts.notes]
        else:
            lines.append(f"{name or '?'}: {place_remedy(str(facts), reading.target)}")
    return join(fill('<p class="facts">Model {}</p>', line) for line in lines)
