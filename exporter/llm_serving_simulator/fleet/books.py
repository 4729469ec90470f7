"""What an engine counts over its life. Pages of both runtimes are written from it; each counts some things at another moment."""

from __future__ import annotations

from operator import add, attrgetter, sub

from llm_serving_exporter.model.record import Struct, name_fields
from llm_serving_simulator.fleet.edges import Edges
from llm_serving_simulator.fleet.request import Outcome, Record
from llm_serving_simulator.fleet.tally import Tally


class Counts(Struct):
    """Counters, all from 0 at the engine's start. The simulated truth that exporters are compared with."""

    submitted: int = 0  # requests that reached the engine
    admitted: int = 0  # requests admitted for the first time
    first_tokens: int = 0  # requests whose first token came
    prompt_tokens: int = 0  # as sent; booked once a request, with its first token
    prompt_hit_tokens: int = 0  # those of them that came from the prefix cache
    prefill_pass_tokens: int = 0  # computed in prefill, recomputation after a preemption included
    generated_tokens: int = 0  # every token, the first included; booked as generated
    decode_pass_tokens: int = 0  # those of them that came from decode steps, not from the end of a prefill
    queried_tokens: int = 0  # looked up in the prefix cache; booked at the first admission
    hit_tokens: int = 0  # found there; likewise
    finished_stop: int = 0  # requests
    finished_length: int = 0  # requests
    finished_error: int = 0  # requests
    finished_prompt_tokens: int = 0  # of finished requests, as sent
    finished_hit_tokens: int = 0  # of finished requests, from the prefix cache
    finished_generated_tokens: int = 0  # of finished requests
    rejected_queue: int = 0  # requests rejected because the queue was full
    rejected_size: int = 0  # requests rejected because they could never fit
    preemptions: int = 0  # requests whose KV blocks were taken away
    prefill_passes: int = 0  # steps with prompts in them
    decode_passes: int = 0  # steps that only decode
    busy_seconds: float = 0.0  # of steps
    moved_bytes: float = 0.0  # from and to HBM, all GPUs of the engine together
    compute_seconds: float = 0.0  # at the dense peak of one pipeline stage's GPUs, all GPUs of the engine together

    @property
    def finished(self) -> int:
        """Requests that ended, with an error or without."""
        return self.finished_stop + self.finished_length + self.finished_error

    @property
    def rejected(self) -> int:
        """Requests that were refused."""
        return self.rejected_queue + self.rejected_size

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, _values(self), _values(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(sub, _values(self), _values(other)))


_values = attrgetter(*name_fields(Counts))


class Books:
    """`counts` and histograms of one engine life. Time in the queue twice: `queue` as requests end, `queued` as they leave it."""

    __slots__ = (
        "computed", "counts", "decode", "e2e", "generation", "inference", "iteration", "itl", "preempted", "prefill", "prompt", "queue",
        "queued", "tpot", "ttft",
    )  # fmt: skip

    def __init__(self, edges: Edges) -> None:
        self.counts = Counts()
        self.ttft = Tally(edges.ttft)
        self.itl = Tally(edges.itl)
        self.tpot = Tally(edges.tpot)
        self.e2e = Tally(edges.e2e)
        self.queue = Tally(edges.queue)
        self.queued = Tally(edges.queue)
        self.prefill = Tally(edges.phase)
        self.decode = Tally(edges.phase)
        self.inference = Tally(edges.phase)
        self.prompt = Tally(edges.prompt)
        self.computed = Tally(edges.prompt)
        self.generation = Tally(edges.generation)
        self.iteration = Tally(edges.iteration)
        self.preempted = Tally(edges.preemptions)

    def first_token(self, record: Record) -> int:
        """A request's first token; the prompt tokens that were computed for it."""
        counts, request, latency = self.counts, record.request, record.ttft_seconds
        assert latency is not None
        counts.first_tokens += 1
        counts.prompt_tokens += request.prompt_tokens
        counts.prompt_hit_tokens += record.hit_tokens
        self.ttft.observe(latency)
        return request.prompt_tokens - record.hit_tokens

    def finished(self, record: Record, scheduled_seconds: float) -> None:
        """A request has its last token; it was admitted first at `scheduled_seconds`."""
        counts, request, generated = self.counts, record.request, record.generated_tokens
        at, first = record.ended_seconds, record.first_token_seconds
        assert at is not None
        assert first is not None
        if record.outcome is Outcome.ERROR:
            counts.finished_error += 1
        elif request.reason == "length":
            counts.finished_length += 1
        else:
            counts.finished_stop += 1
        counts.finished_prompt_tokens += request.prompt_tokens
        counts.finished_hit_tokens += record.hit_tokens
        counts.finished_generated_tokens += generated
        self.e2e.observe(at - record.arrived_seconds)
        self.queue.observe(scheduled_seconds - record.arrived_seconds)
        self.prefill.observe(first - scheduled_seconds)
        self.decode.observe(at - first)
        self.inference.observe(at - scheduled_seconds)
        self.tpot.observe((at - first) / (generated - 1) if generated > 1 else 0.0)
        self.prompt.observe(request.prompt_tokens)
        self.computed.observe(request.prompt_tokens - record.hit_tokens)
        self.generation.observe(generated)
        self.preempted.observe(record.preemptions)

    def passes(self, batch: int, micro_batches: int, steps: int) -> None:
        """Decode steps; each micro-batch is a pass through the model of its own."""
        self.counts.decode_passes += micro_batches * steps
        each, more = divmod(batch, micro_batches)
        self.iteration.observe(each, (micro_batches - more) * steps)
        if more:
            self.iteration.observe(each + 1, more * steps)
