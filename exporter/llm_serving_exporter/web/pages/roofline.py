"""A target's roofline as HTML: what limits it, how close it is to each ceiling, and which inputs that is based on."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from llm_serving_exporter.derive.bandwidth import choose_ratio
from llm_serving_exporter.model.derived import Derived, EngineDerived, Limiter
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.render.html import NO_MARKUP, bar, fill, header, join, note, row, table, tile
from llm_serving_exporter.render.numbers import NOTHING, number, share, size, span
from llm_serving_exporter.render.sentences import describe_limiter, describe_suspect, place_remedy

MOST_ENGINES = 64
# an embedding server below this share of its compute ceiling is held up by something other than the GPU
GPU_NOT_THE_LIMIT_BELOW = 0.25


def render_roofline(reading: TargetReading) -> Markup:
    """The roofline of a target whose last page is fresh; nothing where nothing is known of it."""
    derived = reading.derived
    if derived is None or reading.snapshot is None:
        return NO_MARKUP
    own = {(engine.model_name, engine.engine) for engine in reading.snapshot.engines if engine.is_engine}
    engines = [one for one in derived.engines if (one.model_name, one.engine) in own]
    parts = [_limiter(derived)]
    if any(one.roofline.achieved or one.roofline.bandwidth_ceiling is not None for one in engines):
        parts.append(_tiles(engines[0], derived) if len(engines) == 1 else _several(engines))
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


def _tiles(one: EngineDerived, derived: Derived) -> Markup:
    roof, why = one.roofline, derived.signals
    believed = choose_ratio(roof.ratio)
    sources = ", ".join(f"{source} {share(value)}" for source, value in roof.ratio.items())

    def signal_tile(name: str, value: str, signal: str, more: str = "", filled: Markup = NO_MARKUP) -> Markup:
        absence = why.get(signal, Absence.AVAILABLE)
        return tile(name, value, absence.value.replace("_", " ") if value == NOTHING and absence else more, filled)

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


def _several(engines: Sequence[EngineDerived]) -> Markup:
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
        facts, ratio = reading.models.get(one.model_name), one.roofline.compute_ratio
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
    for name, facts in reading.models.items():
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
