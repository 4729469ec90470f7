"""Engine steps and decode's share in them (facts model-math E.3)."""

from __future__ import annotations

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.window import EngineWindow

ITL = "inter_token_latency_seconds"
TTFT = "time_to_first_token_seconds"


# what steps are counted by, whatever else the engine has
_STEPS = (ITL, TTFT, "engine_steps_total")


class Steps(Struct, frozen=True):
    """Engine steps of a window."""

    count: float  # a lower bound where it is not counted
    counted: bool  # by the engine; else from the mean inter-token latency


def list_step_fields(last: EngineSnapshot) -> tuple[str, ...]:
    """The fields that this engine's steps and sequence-steps are counted from: of its tokens only where its latencies do not tell."""
    fields = _STEPS if last.engine_steps_total is not None else (*_STEPS, "requests_running")
    if last.decode_steps_total is not None:
        fields = (*fields, "decode_steps_total")
    counted = find_decode_field(last)
    if counted == ITL:
        return fields
    return (*fields, "decode_pass_tokens", counted if counted != "decode_pass_tokens" else find_token_field(last))


def find_decode_field(last: EngineSnapshot) -> str:
    """The field that this engine's sequence-steps are counted from."""
    if last.decode_pass_tokens is not None:
        return "decode_pass_tokens"
    if getattr(last, ITL) is not None:
        return ITL
    return find_token_field(last)


def find_token_field(last: EngineSnapshot) -> str:
    """The field that rates of this engine's generated tokens are taken from: where there is one, that which has those under way too."""
    return "decode_tokens_live" if last.decode_tokens_live is not None else "decode_tokens_total"


def count_sequence_steps(window: EngineWindow) -> float | Absence:
    """Steps of single sequences in decode: one inter-token event each, also under speculation (E.3.2).

    An engine that counts an event a token (`accepted_tokens_per_step`) has fewer steps than events. Where an engine counts the tokens of
    its decode passes, or has no inter-token events: tokens less the first of each answer and those that speculation added.
    """
    if find_decode_field(window.last) != ITL:
        return _from_tokens(window)
    events = window.events(ITL)
    return Absence.WARMING_UP if events is None else events / _accepted(window)


def _accepted(window: EngineWindow) -> float:
    """Tokens that a sequence's step yields by the engine's own word; 1 where it says nothing."""
    return max(1.0, window.mean("accepted_tokens_per_step") or 1.0)


def _from_tokens(window: EngineWindow) -> float | Absence:
    accepted = window.increase("speculative_accepted_tokens_total")
    drafted_only = accepted is None and window.increase("speculative_draft_tokens_total")
    if window.last.decode_tokens_total is None or drafted_only:
        return Absence.INPUT_MISSING
    tokens = _decoded(window)
    return Absence.WARMING_UP if tokens is None else max(0.0, tokens - (accepted or 0.0)) / _accepted(window)


def _decoded(window: EngineWindow) -> float | None:
    """Tokens after the first of each answer, those of requests under way included where they are counted."""
    counted = find_decode_field(window.last)
    tokens = window.increase(counted)
    return tokens if tokens is None or counted == "decode_pass_tokens" else tokens - count_prompts(window)


def count_steps(window: EngineWindow, *, encoder: bool = False) -> Steps | Absence:
    """Steps of the window as the engine counts them, else busy time over the mean inter-token latency.

    The engine's count leaves out steps without output; 1 / mean latency is a lower bound too, because slow steps have
    more sequences in them (E.3.4). An engine that does not count and did not decode is taken to have made one step a prompt.
    """
    if window.last.engine_steps_total is not None:
        count = window.increase("engine_steps_total")
        return Absence.WARMING_UP if count is None else Steps(count, counted=True)
    if getattr(window.last, ITL) is None and not encoder:
        return Absence.INPUT_MISSING
    gained = window.grown(ITL)
    if gained is None and not encoder:
        return Absence.WARMING_UP
    mean = gained.mean() if gained is not None else None
    if gained is None or not mean:
        ended = count_prompts(window)
        return Steps(ended, counted=False) if ended > 0 else Absence.IDLE
    busy = busy_ratio(window)
    seconds = window.elapsed_seconds * (1.0 if busy is None else busy)
    # each of them has at least one sequence
    most = count_sequence_steps(window)
    return Steps(min(seconds / mean, gained.events if isinstance(most, Absence) else most), counted=False)


def count_decode_steps(window: EngineWindow, steps: Steps, sequence_steps: float) -> float:
    """Of these steps, those in which something decodes: as the engine counts them, else all that have a sequence of their own to decode."""
    counted = window.increase("decode_steps_total")
    return min(steps.count, sequence_steps) if counted is None else counted


def count_prompts(window: EngineWindow) -> float:
    """Prompts whose prefill ended, by their first tokens, else by the requests that finished; 0.0 where neither is known."""
    tokens, passes = window.increase(find_token_field(window.last)), window.increase("decode_pass_tokens")
    if tokens is not None and passes is not None and tokens > passes:
        return tokens - passes
    for field in (TTFT, "request_prompt_tokens"):
        found = window.events(field)
        if found:
            return found
    return 0.0


def average_running(window: EngineWindow) -> float | None:
    """Running requests over the readings that have some; None where no reading has."""
    running = [value for value in window.values("requests_running") if value]
    return add_up(running) / len(running) if running else None


def busy_ratio(window: EngineWindow) -> float | None:
    """Share of time in which the engine worked, 0 to 1; None where it does not say.

    The larger of two: the share of readings with a running request, or that do not say it after a stretch with steps, which misses
    requests shorter than the time between two readings, and the counted steps x the mean inter-token latency, which misses prefill.
    """
    worked = _list_working(window)
    if not worked:
        return None
    seen = worked.count(True) / len(worked)
    counted, gained = window.increase("engine_steps_total"), window.grown(ITL)
    mean = gained.mean() if gained is not None else None
    if not counted or not mean:
        return seen
    return max(seen, min(1.0, counted * mean / window.elapsed_seconds))


def _list_working(window: EngineWindow) -> list[bool]:
    """Of each reading that tells it, whether the engine worked: by its running requests. One that counts the passes that decode apart says
    nothing of them while it computes prompts: by its steps since the reading before."""
    worked, steps_before = [], None
    for reading in window.readings:
        steps = reading.engine_steps_total
        if reading.requests_running is not None:
            worked.append(reading.requests_running > 0)
        elif reading.decode_steps_total is not None and steps is not None and steps_before is not None:
            worked.append(steps > steps_before)
        steps_before = steps
    return worked


def tokens_per_sequence_step(window: EngineWindow) -> float | None:
    """Tokens that one sequence's step yields: 1, above it under speculation (E.3.1). None where nothing was decoded.

    The first token of each answer comes out of its prefill.
    """
    made, passes = count_sequence_steps(window), window.increase("decode_pass_tokens")
    if isinstance(made, Absence) or made <= 0:
        return None
    if passes is None:
        tokens, first = window.increase("decode_tokens_total"), window.events(TTFT)
        if tokens is None or first is None or not window.events(ITL):
            return None
        passes = tokens - first
    return max(1.0, passes / made)


def speculates(window: EngineWindow) -> bool:
    """Whether sequences got more than one token out of a step by speculation; an engine may also observe one event for several steps."""
    counters = ("speculative_draft_tokens_total", "speculative_accepted_tokens_total")
    return any((window.increase(name) or 0.0) > 0 for name in counters) or _accepted(window) > 1


def drafts_per_sequence_step(window: EngineWindow) -> float:
    """Drafted tokens that one sequence's step verifies beside its own; 0 without speculation."""
    drafts = window.increase("speculative_draft_tokens_total")
    if not drafts:
        return 0.0
    made = count_sequence_steps(window)
    return drafts / made if not isinstance(made, Absence) and made > 0 else 0.0
