"""One engine: continuous batching over a paged KV cache, in simulated seconds.

As vLLM V1 schedules: a step decodes every running sequence by a token, gives what is left of its token budget to prompts that are under
way, oldest first, and then to waiting requests, first come first served. Where a decode step finds no free block, the request that was
admitted last is preempted: its blocks are given back, it goes to the head of the queue and is computed again, as far as the prefix
cache does not have it. Nothing is admitted in a step that preempts.

Steps without prompts are taken as runs (`run.DecodeRun`), which end where something happens: an arrival that may be admitted, the end of
a request, the last free block. What an engine does depends on what it was asked to do and when, never on how often it is looked at.

Approximated: blocks of a whole prompt are allocated at its admission, not chunk by chunk (vLLM 0.32 only makes sure that they will fit);
a fault that is switched restarts the step under way; sampling, tokenisation and the network take no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from llm_serving_simulator.fleet.batch import DecodeBatch, DecodeRun, KvCache, PromptStep, Sequence, Shown
from llm_serving_simulator.fleet.books import Books
from llm_serving_simulator.fleet.spec import Chunk, EngineSpec
from llm_serving_simulator.fleet.workload import Outcome, Record, Request


class Engine:
    """Serves requests. `submit` and `advance` are called in order of time; nothing here knows a clock.

    `on_first_token` is told of each record when it has one. `longest_run` bounds a run of decode steps (1: step by step).
    """

    def __init__(
        self,
        spec: EngineSpec,
        started_seconds: float = 0.0,
        *,
        on_first_token: Callable[[Record], None] | None = None,
        longest_run: int | None = None,
    ) -> None:
        self.spec = spec
        self.books = Books(spec.edges)
        self.kv = KvCache(spec.usable_blocks, spec.block_tokens, caching=spec.prefix_caching)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}  # by order of admission
        self.error_share, self.prefix_lookups = 0.0, True
        # when it next has something to do; -inf: at once, inf: never, while nothing is asked of it
        self.due_seconds = inf
        self._frozen: Shown | None = None
        self._slowdown = 1.0
        self._on_first_token = on_first_token
        self._longest_run = longest_run
        self._free_at = started_seconds  # when the next step may begin
        self._last_end = started_seconds
        self._work: DecodeRun | PromptStep | None = None
        self._prefilling: list[Sequence] = []
        self._batch = DecodeBatch(spec.block_tokens)
        self._admissions = 0
        # what sums were when the run under way began
        self._before = (0.0, 0.0, 0.0, 0.0)

    # --- what it is asked -----------------------------------------------------------------------------------------

    @property
    def hung(self) -> bool:
        """Whether it makes no steps."""
        return self._frozen is not None

    @property
    def load(self) -> int:
        """Requests that it has, running and waiting."""
        return len(self.running) + len(self.waiting)

    @property
    def shown(self) -> Shown:
        """What its page says of its state: while it hangs, what it was then."""
        return self._frozen or Shown(len(self.running), len(self.waiting), self.kv.usage_ratio)

    @property
    def batch(self) -> int:
        """Sequences that decode."""
        return self._batch.size

    @property
    def context_tokens(self) -> int:
        """Tokens in the KV cache of the sequences that decode."""
        return self._batch.stored

    def submit(
        self, request: Request, at_seconds: float, record: Record | None = None, *, held_seconds: float = 0.0
    ) -> Record:
        """A request arrives; `record` of an earlier try goes on. The record says at once where it was rejected.

        `held_seconds`: how long the server's front end has had it by now, which times of arrival count from.
        """
        self.settle(at_seconds)
        if record is None:
            record = Record(request, at_seconds - held_seconds)
        else:
            record.arrived_seconds, record.first_token_seconds = at_seconds - held_seconds, None
            record.generated_tokens = record.hit_tokens = record.preemptions = 0
        counts = self.books.counts
        counts.submitted += 1
        length = request.prompt_tokens + request.output_tokens
        if length > self.spec.context_limit_tokens or self.kv.blocks_of(length) > self.kv.blocks:
            counts.rejected_size += 1
            return self._rejected(record, at_seconds)
        if self.spec.max_waiting is not None and len(self.waiting) >= self.spec.max_waiting:
            counts.rejected_queue += 1
            return self._rejected(record, at_seconds)
        if self._work is None and not self.hung:
            self._free_at = max(self._free_at, at_seconds)
        self.waiting.append(Sequence(record, request.prompt_tokens))
        # behind others that could not be admitted it cannot either
        if isinstance(self._work, DecodeRun) and len(self.waiting) == 1 and len(self.running) < self.spec.max_num_seqs:
            self._work.shorten(self._work.steps_by(at_seconds) + 1)
        self._look_ahead()
        return record

    def advance(self, until_seconds: float) -> None:
        """Books every step that ends by then."""
        self.settle(until_seconds)
        if isinstance(self._work, DecodeRun):
            self._book(self._work, until_seconds)

    def settle(self, until_seconds: float) -> None:
        """What ends by then ends, and what can begin begins; steps of a run that goes on are not booked yet: nothing follows from them."""
        while self.due_seconds <= until_seconds:
            if self._work is None:
                self._work = work = self._schedule(self._free_at)
                self.due_seconds = work.over_seconds
                continue
            if isinstance(self._work, DecodeRun):
                self._book(self._work, until_seconds)
                self._work = None
                self._end_those_that_are_done()
            else:
                self._complete(self._work)
            self._look_ahead()

    def _look_ahead(self) -> None:
        idle = self.hung or not (self.waiting or self.running)
        self.due_seconds = inf if idle else -inf if self._work is None else self._work.over_seconds

    def crash(self) -> list[Record]:
        """The engine is gone; the records of the requests that it had, in order of their arrival here."""
        lost = []
        for sequence in (*self.running.values(), *self.waiting):
            sequence.record.generated_tokens = self._batch.generated(sequence)
            lost.append(sequence.record)
        return sorted(lost, key=lambda record: record.arrived_seconds)

    # --- faults, each from now on ---------------------------------------------------------------------------------

    def slow_down(self, factor: float, at_seconds: float) -> None:
        """Every step takes `factor` times as long."""
        self._interrupt(at_seconds)
        self._slowdown = factor

    def hang(self, at_seconds: float) -> None:
        """No step begins or ends until `resume`; requests still arrive, and nothing that its page shows moves."""
        self._interrupt(at_seconds)
        self._frozen = self.shown
        self._look_ahead()

    def resume(self, at_seconds: float) -> None:
        """Goes on after `hang`."""
        self._frozen = None
        self._free_at = max(self._free_at, at_seconds)
        self._look_ahead()

    def reset_prefix_cache(self, at_seconds: float) -> None:
        """Forgets everything that is cached and not in use."""
        self.advance(at_seconds)
        self.kv.reset()

    def _interrupt(self, at_seconds: float) -> None:
        """The step under way, if any, restarts at that time."""
        self.advance(at_seconds)
        if self._work is not None:
            self._work = None
            self._free_at = at_seconds
            self._look_ahead()

    # --- scheduling -----------------------------------------------------------------------------------------------

    def _schedule(self, at: float) -> DecodeRun | PromptStep:
        preempted = self._make_room()
        chunks = self._chunks(at, may_admit=not preempted)
        batch = self._batch.size
        contexts = self._batch.stored + batch
        if chunks:
            parts = [
                Chunk(tokens, sequence.stored, sequence.stored + tokens == sequence.target)
                for sequence, tokens in chunks
            ]
            work = self.spec.cost.mixed(batch, contexts, parts)
            return PromptStep(at, at + work.seconds * self._slowdown, work, tuple(chunks))
        # with nothing running everything is free, and what is larger than that was rejected
        assert batch
        limit = 1
        if not preempted:
            limit = self._batch.steps_that_fit(self.kv.free, self._batch.steps_to_next_end())
        if self._longest_run is not None:
            limit = min(limit, self._longest_run)
        counts, itl = self.books.counts, self.books.itl
        self._before = (itl.total, counts.moved_bytes, counts.compute_seconds, counts.busy_seconds)
        return DecodeRun(at, batch, limit, self.spec.cost.decode(batch, contexts), self._slowdown)

    def _make_room(self) -> bool:
        """Preempts until the next decode step finds its blocks; whether it had to."""
        preempted = False
        while self._batch.blocks_needed() > self.kv.free:
            self._preempt(self.running[next(reversed(self.running))])
            preempted = True
        return preempted

    def _chunks(self, at: float, *, may_admit: bool) -> list[tuple[Sequence, int]]:
        """Parts of prompts that the next step computes."""
        budget = self.spec.max_num_batched_tokens - self._batch.size
        chunks = []
        for sequence in self._prefilling:
            tokens = min(budget, sequence.target - sequence.stored)
            if tokens <= 0:
                break
            chunks.append((sequence, tokens))
            budget -= tokens
        while may_admit and self.waiting and budget > 0 and len(self.running) < self.spec.max_num_seqs:
            sequence = self.waiting[0]
            if not self._admit(sequence, at):
                break
            self.waiting.popleft()
            tokens = min(budget, sequence.target - sequence.stored)
            chunks.append((sequence, tokens))
            budget -= tokens
        return chunks

    def _admit(self, sequence: Sequence, at: float) -> bool:
        request, looked_up = sequence.request, self.prefix_lookups
        holding = self.kv.admit(
            sequence.target,
            request.prefix if looked_up else None,
            request.prefix_tokens,
            sequence.left if looked_up else None,
            self._batch.blocks_needed(),
        )
        if holding is None:
            return False
        if sequence.left is not None and not looked_up:
            self.kv.forget(sequence.left)
        sequence.holding, sequence.left, sequence.stored = holding, None, holding.hit_tokens
        if sequence.scheduled_seconds is None:
            sequence.scheduled_seconds = at
            sequence.record.hit_tokens = holding.hit_tokens
            counts = self.books.counts
            counts.admitted += 1
            self.books.queued.observe(at - sequence.record.arrived_seconds)
            if self.kv.caching:
                counts.queried_tokens += request.prompt_tokens
                counts.hit_tokens += holding.hit_tokens
        self._admissions += 1
        sequence.order = self._admissions
        self.running[sequence.order] = sequence
        self._prefilling.append(sequence)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        if sequence.joined is not None:
            self._leave(sequence)
            sequence.last_token_seconds = self._last_end
        else:
            self._prefilling.remove(sequence)
        assert sequence.holding is not None
        shared = sequence.holding.shared.size if sequence.holding.shared else 0
        findable = max(0, sequence.stored // self.spec.block_tokens - shared)
        sequence.left = self.kv.release(sequence.holding, sequence.holding.own_blocks, findable)
        sequence.holding = None
        sequence.target, sequence.stored = sequence.request.prompt_tokens + sequence.generated, 0
        del self.running[sequence.order]
        self.waiting.appendleft(sequence)
        self.books.counts.preemptions += 1
        sequence.record.preemptions += 1

    def _leave(self, sequence: Sequence) -> None:
        """It decodes no more."""
        self._batch.leave(sequence)
        holding = sequence.holding
        assert holding is not None
        holding.own_blocks = self.kv.blocks_of(sequence.stored) - (holding.shared.size if holding.shared else 0)

    def _decoded(self, steps: int) -> None:
        """`steps` decode steps of the whole batch are over."""
        self.kv.allocate(self._batch.blocks_needed(steps))
        self._batch.decoded(steps)
        counts = self.books.counts
        counts.generated_tokens += steps * self._batch.size
        counts.decode_pass_tokens += steps * self._batch.size

    # --- steps that end -------------------------------------------------------------------------------------------

    def _book(self, run: DecodeRun, until: float) -> None:
        """Books the steps of a run that are over by then."""
        steps = run.steps_by(until)
        if steps > run.done:
            self._decoded(steps - run.done)
            self._book_run(run, steps)
            run.done = steps
            self._last_end = self._free_at = run.end_seconds(steps)

    def _book_run(self, run: DecodeRun, steps: int) -> None:
        counts, itl = self.books.counts, self.books.itl
        begin = run.done
        gap = run.start_seconds - self._last_end if begin == 0 else 0.0
        if gap > 0:
            # after a hang
            itl.counts[itl.bucket(gap + run.step_seconds(0))] += run.batch
            self._before = (self._before[0] + gap * run.batch, *self._before[1:])
            begin = 1
        while begin < steps:
            bucket = itl.bucket(run.step_seconds(begin))
            end = steps if bucket == len(itl.edges) else run.first_longer(itl.edges[bucket], begin, steps)
            itl.counts[bucket] += (end - begin) * run.batch
            begin = end
        # sums are those of the whole run so far, so that no digit depends on how many times it was looked at
        elapsed = run.elapsed_seconds(steps)
        itl.total = self._before[0] + run.batch * elapsed
        counts.moved_bytes = self._before[1] + run.moved_bytes(steps)
        counts.compute_seconds = self._before[2] + run.compute_seconds(steps)
        counts.busy_seconds = self._before[3] + elapsed
        self.books.passes(run.batch, run.micro_batches, steps - run.done)

    def _complete(self, step: PromptStep) -> None:
        """Books a step with prompts in it."""
        counts, at = self.books.counts, step.over_seconds
        self._work, self._free_at = None, at
        counts.busy_seconds += at - step.start_seconds
        counts.moved_bytes += step.work.moved_bytes
        counts.compute_seconds += step.work.compute_seconds
        counts.prefill_passes += 1
        tokens_out = self._batch.size
        if tokens_out:
            self.books.itl.observe(at - self._last_end, tokens_out)
            self._decoded(1)
        done = []
        for sequence, tokens in step.chunks:
            counts.prefill_pass_tokens += tokens
            sequence.stored += tokens
            if sequence.stored == sequence.target:
                done.append(sequence)
        computed = 0
        for sequence in done:
            self._prefilling.remove(sequence)
            computed += self._first_output(sequence, at)
        if tokens_out or done:
            self.books.iteration.observe(tokens_out + len(done) + computed)
        self._last_end = at
        self._end_those_that_are_done()

    def _first_output(self, sequence: Sequence, at: float) -> int:
        """A prefill is over, and with it came a token; the prompt tokens that are booked with it."""
        record, computed = sequence.record, 0
        if sequence.generated:
            # computed again after a preemption: a token like any other, after a long wait
            self.books.itl.observe(at - sequence.last_token_seconds)
        else:
            record.first_token_seconds = at
            computed = self.books.first_token(record)
            if self._on_first_token:
                self._on_first_token(record)
        sequence.generated += 1
        self.books.counts.generated_tokens += 1
        self._batch.join(sequence)
        return computed

    def _end_those_that_are_done(self) -> None:
        while (order := self._batch.ended()) is not None:
            sequence = self.running.get(order)
            # one that was preempted has another order by now
            if sequence is None or sequence.joined is None:
                continue
            self._leave(sequence)
            assert sequence.holding is not None
            assert sequence.generated == sequence.request.output_tokens
            self.kv.release(sequence.holding, sequence.holding.own_blocks)
            del self.running[order]
            self._finish(sequence, self._last_end)

    def _finish(self, sequence: Sequence, at: float) -> None:
        record = sequence.record
        failed = record.request.luck < self.error_share
        record.generated_tokens = sequence.generated
        record.outcome, record.ended_seconds = Outcome.ERROR if failed else Outcome.FINISHED, at
        assert sequence.scheduled_seconds is not None
        self.books.finished(record, sequence.scheduled_seconds)

    @staticmethod
    def _rejected(record: Record, at: float) -> Record:
        record.outcome, record.ended_seconds = Outcome.REJECTED, at
        return record
