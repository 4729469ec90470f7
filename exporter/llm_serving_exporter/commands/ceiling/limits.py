"""What ends the batch of an engine beside its memory: the sequences that it is told to run at once, and the recurrent state of as many.

Some engines refuse to start where the state of all of those does not fit, long before the KV cache is full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum

from llm_serving_exporter.derive.planning import Fit
from llm_serving_exporter.derive.work import Roof, kv_stored_bytes
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.render.numbers import size

# vLLM takes the larger of the kinds of layers for the size of a group where they differ by less (v1/core/kv_cache_utils.py)
_ALIKE = 1.5


class States(StrEnum):
    """When an engine takes the memory for the recurrent state of its sequences."""

    AS_THEY_COME = "as they come"
    # for each sequence that may run, before the first one does
    AT_THE_START = "at the start"
    # in blocks of the KV cache, of which there must be one for each sequence that may run (vLLM's config/compilation.py)
    POOLED = "pooled"


class Limit(Struct, frozen=True):
    """A number that a flag says."""

    number: int  # what it says, in what the field of Limits counts
    words: str  # the flag with its value, as written


class Limits(Struct, frozen=True):
    """What of an engine's start, or of the question, ends its batch. Sequences are of all ranks of the replica together."""

    engine: str = ""  # name of the engine; "": none was named
    sequences: Limit | None = None  # that run at once; None: nothing says it
    flag: str = ""  # by which it is told those; "": none
    least_default: int | None = None  # the fewest that it takes where nothing says them; None: not known
    context: Limit | None = None  # tokens of one sequence, prompt and answer; None: nothing says them
    context_flag: str = ""  # by which it is told those; "": none
    states: States = States.AS_THEY_COME  # when it takes memory for recurrent state
    holds_longest: bool = False  # whether it starts only where one sequence of the longest context fits
    # sequences, and the tokens of a step, which are fewer; None: they go together
    crossed: tuple[Limit, Limit] | None = None

    @property
    def most(self) -> int | None:
        """Sequences that run at once; None: as many as fit."""
        return None if self.sequences is None else self.sequences.number

    @property
    def reserved(self) -> int:
        """Sequences whose state is taken before the first one runs."""
        return (self.most or 0) if self.states is States.AT_THE_START else 0


def list_limit_refusals(roof: Roof, limits: Limits, room: Fit, context_tokens: float) -> tuple[str, ...]:
    """Why an engine does not start with these limits, or does not take what was asked, in sentences; () where it does.

    `context_tokens`: the most of one sequence that was asked for. `room`: of the same roof.
    """
    return tuple(_refusals(roof, limits, room, context_tokens))


def _refusals(roof: Roof, limits: Limits, room: Fit, context_tokens: float) -> Iterator[str]:
    if limits.context is not None and context_tokens > limits.context.number:
        yield f"{limits.engine} refuses {context_tokens:g} tokens of context: {limits.context.words} of the start command is less"
    if limits.crossed is not None and limits.holds_longest:
        sequences, step = limits.crossed
        yield f"{limits.engine} refuses to start: {step.words} is below {sequences.words}"
    if limits.context is not None and limits.holds_longest:
        yield from _longest(roof, limits, room, limits.context.number, limits.context.words)
    if limits.sequences is not None:
        yield from _states(roof, limits, room, limits.sequences.number, limits.sequences.words)


def note_defaults(roof: Roof, limits: Limits, room: Fit, batch: int) -> Iterator[str]:
    """What the engine's own defaults do to the answer, which its command leaves to them. `batch`: the largest that was counted."""
    default = limits.least_default
    if limits.sequences is None and default is not None:
        what = f"{limits.engine}'s own limit, {default} or more by version and GPU"
        refused = next(_states(roof, limits, room, default, what), None)
        if refused is not None:
            yield f"{refused}, with {limits.flag}"
        elif batch > default:
            yield f"the start command does not say {limits.flag}: {what}, may end the batch before the {batch} that are counted"
    longest = roof.model.context_limit_tokens
    if limits.context is None and limits.holds_longest and longest is not None and room.fits:
        yield from _longest(roof, limits, room, longest, f"the model's {longest} tokens, without {limits.context_flag}")


def _longest(roof: Roof, limits: Limits, room: Fit, tokens: int, words: str) -> Iterator[str]:
    kept, free = kv_stored_bytes(roof, tokens), max(0.0, room.free_kv_bytes) / room.ranks
    if kept > free:
        yield f"{limits.engine} refuses to start: a sequence of {words} keeps {size(kept)}, and there are {size(free)}"


def _states(roof: Roof, limits: Limits, room: Fit, sequences: int, words: str) -> Iterator[str]:
    state, free = roof.model.state_bytes_per_sequence(), max(0.0, room.unreserved_bytes) / room.ranks
    if state <= 0 or limits.states is States.AS_THEY_COME:
        return
    each = state if limits.states is States.AT_THE_START else _block_bytes(roof.model)
    fitting = math.floor(free / each)
    if sequences > fitting * room.ranks:
        what = (
            "the recurrent state of each"
            if limits.states is States.AT_THE_START
            else "a block of recurrent state for each"
        )
        yield (
            f"{limits.engine} refuses to start with {words}: it takes {what} from the start, {size(each)}, and there are "
            f"{size(free)}: write {fitting * room.ranks} or less"
        )


def _block_bytes(model: ModelFacts) -> float:
    """One block of vLLM's pool: the state of one layer, times the layers of a group, which are those of the rarest kind of layer."""
    recurrent, attention = model.geometry.recurrent, model.geometry.attention
    kinds = [group.layers for group in recurrent]
    kinds += [group.layers for group in attention if group.kept and group.kv_elements]
    layers = max(kinds) if max(kinds) < _ALIKE * min(kinds) else min(kinds)
    return layers * max(model.layer_state_bytes(group) for group in recurrent)
