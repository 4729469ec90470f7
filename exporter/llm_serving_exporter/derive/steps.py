"""Engine steps, decode's share in them (facts model-math E.3), and the context that a step attends to (facts model-math E.4)."""

from __future__ import annotations

from itertools import pairwise

from llm_serving_exporter.derive.figures import Figure, window_by
from llm_serving_exporter.model.derived import Range
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import Geometry
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.window import EngineWindow

# --- Engine steps and decode's share in them (facts model-math E.3).


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


def window_over_steps(*fields: str) -> Figure[EngineWindow]:
    """The engine's readings within the window that its steps and the increase of these fields need."""
    return window_by(lambda windows: windows.cover((*list_step_fields(windows.configured.last), *fields)))


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
        events = window.events(field)
        if events:
            return events
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


# --- KV cache that live requests hold: as the page counts it, over the requests that hold it, and over the steps that read it.


# what a figure of the KV in use reads
FIELDS = ("kv_used_tokens", "kv_cache_usage_ratio", "kv_cache_capacity_tokens")


def read_used_tokens(reading: EngineSnapshot) -> float | None:
    """Tokens that live requests hold, in whole blocks as the engine allots them: as the page counts them, else usage x capacity.

    None where the page says neither.
    """
    if reading.kv_used_tokens is not None:
        return reading.kv_used_tokens
    usage, capacity = reading.kv_cache_usage_ratio, reading.kv_cache_capacity_tokens
    return None if usage is None or capacity is None else usage * capacity


def average_tokens_per_request(window: EngineWindow) -> float | Absence:
    """KV tokens held per running request: sum over the readings with running requests of tokens / of requests.

    Counts a shared prefix once and rounds each request up to whole blocks.
    """
    tokens = requests = 0.0
    counted = False
    for reading in window.readings:
        used = read_used_tokens(reading)
        if used is None or reading.requests_running is None:
            continue
        counted = True
        if reading.requests_running > 0:
            tokens += used
            requests += reading.requests_running
    if not counted:
        return Absence.INPUT_MISSING
    return tokens / requests if requests else Absence.IDLE


def drop_half_blocks(tokens: float, requests: float, block_tokens: float | None) -> float:
    """Tokens of so many requests without the empty half of each one's last block (facts model-math E.3.6a); at least one a request."""
    return max(requests, tokens - requests * (block_tokens - 1) / 2) if block_tokens else tokens


def add_up_over_steps(window: EngineWindow, steps: float) -> Range | None:
    """Tokens held at each of the window's decode steps, added up over the `steps` of them; None where no two readings say them.

    Between two readings as many as their mean, at least the lesser and at most the greater of them. A stretch in which the engine made
    more steps weighs more.
    """
    counter = "engine_steps_total" if window.last.decode_steps_total is None else "decode_steps_total"
    held = [
        (
            drop_half_blocks(used, reading.requests_running or 0.0, window.last.kv_block_tokens),
            getattr(reading, counter),
        )
        for reading in window.readings
        if (used := read_used_tokens(reading)) is not None
    ]
    stretches = [
        (earlier, later, 0.0 if before is None or after is None else max(0.0, after - before))
        for (earlier, before), (later, after) in pairwise(held)
    ]
    if not stretches:
        return None
    counted = add_up(weight for _, _, weight in stretches)
    if not counted:
        stretches, counted = [(earlier, later, 1.0) for earlier, later, _ in stretches], float(len(stretches))
    each = steps / counted
    return Range(
        each * add_up(weight * min(ends) for *ends, weight in stretches),
        each * add_up(weight * add_up(ends) / 2 for *ends, weight in stretches),
        each * add_up(weight * max(ends) for *ends, weight in stretches),
    )


# --- Mean length of context that a decode step attends to per sequence, with what it may lie between (facts model-math E.3.6).


FINISHED, HELD, FINISHED_BEFORE = "finished_requests", "kv_in_use", "finished_requests_of_all_time"
DECODING, BEGUN = "decoding_sequences", "begun_requests"
# fewer finished requests than this say too little about the lengths of those that run
ENOUGH_FINISHED = 8


def estimate_context(window: EngineWindow, geometry: Geometry) -> tuple[Range, str] | Absence:
    """Tokens per decoding sequence and where they come from.

    Before all others what the engine says of the sequences that decode. Then the lengths of the requests that finished in the window where
    there are enough, the KV in use, and all requests since the engine started. Where the first two of them are known, they are the ends.
    Attention looks at a shared prefix for each sequence, and the KV in use counts it once: where prompts hit the prefix cache, it is no
    length of contexts, and the prompts that were begun stand in for it. Absent: idle, or none is known.
    """
    counted = _decoding(window)
    if counted is not None:
        return Range(counted, counted, counted), DECODING
    held = _held(window) if holds_every_token(geometry) else Absence.WARMING_UP
    shared = hits_prefixes(window)
    finished = _from_finished(window.gained("request_prompt_tokens"), window.gained("request_generation_tokens"))
    if finished is not None:
        if isinstance(held, Absence) or (shared and held < finished):
            return Range(finished, finished, finished), FINISHED
        lower, upper = sorted((held, finished))
        return Range(lower, finished, upper), FINISHED
    begun = _from_begun(window) if shared else None
    if begun is not None and (isinstance(held, Absence) or held < begun):
        return Range(begun, begun, begun), BEGUN
    if not isinstance(held, Absence):
        return Range(held, held, held), HELD
    before = _from_finished(window.last.request_prompt_tokens, window.last.request_generation_tokens)
    return held if before is None else (Range(before, before, before), FINISHED_BEFORE)


def average_context(window: EngineWindow) -> float | Absence:
    """Tokens that attention looks at per running request, of a model of which nothing is known: the KV in use over running requests, unless
    the engine says it of its sequences, or prompts hit the prefix cache. Absent: idle, or the page does not say what is in use.
    """
    held = average_tokens_per_request(window)
    counted = _decoding(window)
    if counted is not None:
        return counted
    if isinstance(held, Absence) or not hits_prefixes(window):
        return held
    finished = _from_finished(window.gained("request_prompt_tokens"), window.gained("request_generation_tokens"))
    return max(held, finished or _from_begun(window) or held)


def hits_prefixes(window: EngineWindow) -> bool:
    """Whether prompts of the window found some of their KV in the prefix cache, so that sequences may share it."""
    fields = ("prefix_cache_hits", "prefix_cache_hit_tokens_total", "cached_prompt_tokens_total")
    return any((window.increase(name) or 0.0) > 0 for name in fields)


def holds_every_token(geometry: Geometry) -> bool:
    """Whether each token of context stays in the KV cache of every layer: only then is the engine's capacity a count of tokens."""
    return not geometry.recurrent and all(group.window_tokens is None for group in geometry.attention)


def _decoding(window: EngineWindow) -> float | None:
    """Mean context of a decoding sequence over the readings with some; None where the engine does not say it."""
    if not window.values("decode_context_tokens"):
        return None
    tokens = requests = 0.0
    for reading in window.readings:
        if reading.decode_context_tokens and reading.requests_running:
            tokens += reading.decode_context_tokens
            requests += reading.requests_running
    return tokens / requests if requests else None


def _held(window: EngineWindow) -> float | Absence:
    held = average_tokens_per_request(window)
    return held if isinstance(held, Absence) else drop_half_blocks(held, 1.0, window.last.kv_block_tokens)


def _from_begun(window: EngineWindow) -> float | None:
    """Mean prompt, as sent, of the requests whose prefill ended in the window: the least that they look at. None where none did."""
    sent, prompts = window.increase("prompt_tokens_total"), count_prompts(window)
    return sent / prompts if sent and prompts else None


def _from_finished(prompts: Histogram | None, outputs: Histogram | None) -> float | None:
    """Mean prompt + E[o^2] / (2 E[o]) over requests that finished, prompt and output taken as independent (E.3.6b)."""
    if prompts is None or outputs is None or min(prompts.count, outputs.count) < ENOUGH_FINISHED:
        return None
    prompt, output = prompts.mean(), outputs.mean()
    if prompt is None or not output:
        return None
    return prompt + second_moment(outputs) / (2 * output)


def second_moment(histogram: Histogram) -> float:
    """E[x^2] from buckets: uniform inside each, then scaled so that the first moment is the histogram's own.

    Events beyond the top edge count at that edge before the scaling. `histogram` has events.
    """
    first = second = below = lower = 0.0
    for edge, cumulative in zip(histogram.edges, histogram.cumulative, strict=True):
        events = cumulative - below
        first += events * (lower + edge) / 2
        second += events * (lower * lower + lower * edge + edge * edge) / 3
        below, lower = cumulative, edge
    beyond = histogram.count - below
    first += beyond * lower
    second += beyond * lower * lower
    if first <= 0 or second <= 0:
        return 0.0
    scale = 1.0 if histogram.sum is None else histogram.sum / first
    return second * scale * scale / histogram.count
