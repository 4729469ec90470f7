"""The H100 recordings as windows of mean steps, as `ceiling --from-prometheus` reads a week, and what one phase says of another."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from llm_serving_exporter.commands.what_if.reach import Window, fit_reach, step_terms
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.facts.loader import model_facts
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.target import ModelSettings
from tests.support.builders.h100 import Phase, list_phases, measure, play

# a shared prefix is read once: other bytes than those of a batch, which the roof alone tells
RUNS = ("h100-vllm-0.25.1", "h100-vllm-0.25.1-moe", "h100-sglang-0.5.17")
_LEFT_OUT = ("shared", "sparse")


@dataclass(frozen=True)
class Told:
    """What one phase, beside `prefill`, says of another's tokens/s; `off` as a share of those."""

    run: str
    by: str
    phase: str
    off: float


@cache
def window_of(phase: Phase) -> Window:
    """The mean step of a phase's steady part, by the engine's own counts."""
    readings = [
        reading for _, reading in play(phase.run, phase.seconds + 1, phase.first_page, phase.last_page, gpm=False)
    ]
    first, last = (
        _engine(reading.page.snapshot.engines) for reading in (readings[0], readings[-1]) if reading.page.snapshot
    )

    def grown(field: str) -> float:
        return (getattr(last, field) or 0.0) - (getattr(first, field) or 0.0)

    def since(field: str) -> Histogram:
        found: Histogram | None = getattr(last, field).since(getattr(first, field))
        assert found is not None
        return found

    gaps, begun = since("inter_token_latency_seconds"), since("time_to_first_token_seconds")
    steps, computed = grown("engine_steps_total"), grown("prefill_tokens_total")
    prompt = computed / begun.count, max(0.0, grown("prompt_tokens_total") - computed) / begun.count
    if not gaps.count:
        return Window(phase.seconds / steps, 0.0, 0.0, computed / steps, *prompt)
    context = measure(phase).engine.context_tokens_mean or 0.0
    return Window(gaps.sum / gaps.count, gaps.count / steps, context, computed / steps, *prompt)


def _engine(engines: tuple[EngineSnapshot, ...]) -> EngineSnapshot:
    (found,) = (engine for engine in engines if engine.engine or len(engines) == 1)
    return found


@cache
def roof_of(run: str) -> Roof:
    """Of the model that a run served, on its card."""
    model = "Qwen3-30B-A3B" if run.endswith("moe") else "Llama-3.1-8B-Instruct"
    return Roof(model_facts(ModelSettings(name=model)), list_phases(run)[0].run.peaks, Parallel())


def tell(run: str) -> Iterator[Told]:
    """Each phase with decode in it, beside `prefill`, of each other one."""
    phases = {phase.name: window_of(phase) for phase in list_phases(run) if phase.name not in _LEFT_OUT}
    roof = roof_of(run)
    for by, window in phases.items():
        if not window.batch:
            continue
        reach = fit_reach(roof, [window, phases["prefill"]])
        for name, asked in phases.items():
            if name not in (by, "prefill"):
                computed = asked.prompt_tokens
                prompts = asked.prefill_tokens / computed
                terms = step_terms(roof, asked.batch, asked.context_tokens, prompts, computed, asked.cached_tokens)
                yield Told(run, by, name, asked.step_seconds / sum(terms.scaled(reach.factors)) - 1)
