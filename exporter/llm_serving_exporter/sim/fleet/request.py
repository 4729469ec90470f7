"""A request and what became of it: the truth that recorded series are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended, or that it has not."""

    UNDER_WAY = "under_way"
    FINISHED = "finished"
    ERROR = "error"  # the engine ended it with an error
    REJECTED = "rejected"  # refused at the door: queue full, or larger than the context or the KV cache
    LOST = "lost"  # went down with its replica and was not tried again
    UNROUTED = "unrouted"  # no replica was ready


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for. `output_tokens` is how long the answer will be, the first token included.

    `prefix`: name of a shared beginning of `prefix_tokens` tokens, None for a prompt like no other. `luck` in [0, 1): the request ends
    in an error where the engine's share of errors is above it. `reason`: how it finishes, "stop" or "length".
    """

    at_seconds: float
    prompt_tokens: int
    output_tokens: int
    prefix: str | None = None
    prefix_tokens: int = 0
    luck: float = 1.0
    reason: str = "stop"

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request has at least one prompt and one output token")
        if self.prefix_tokens >= self.prompt_tokens:
            raise ValueError("a shared prefix is shorter than the prompt: the last prompt token is always its own")


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nobody asks for anything until that time."""

    at_seconds: float


@dataclass(slots=True)
class Record:
    """What became of a request; None while it has not happened. Seconds are simulated time.

    `arrived_seconds` at the engine that served it last; a request that was tried again has a later one than its `request.at_seconds`.
    `generated_tokens`, `preemptions` and `hit_tokens` (of the first admission) are the last try's.
    """

    request: Request
    arrived_seconds: float
    replica: str = ""
    first_token_seconds: float | None = None
    ended_seconds: float | None = None
    outcome: Outcome = Outcome.UNDER_WAY
    hit_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    tries: int = 1

    @property
    def ttft_seconds(self) -> float | None:
        """Time to the first token, from arrival at the engine, as the engine measures it."""
        return None if self.first_token_seconds is None else self.first_token_seconds - self.arrived_seconds
