"""A request and what became of it: the truth that recorded series are compared with."""

from __future__ import annotations

from enum import StrEnum

from llm_serving_exporter.model.record import Struct


class Outcome(StrEnum):
    """How a request ended, or that it has not."""

    UNDER_WAY = "under_way"
    FINISHED = "finished"
    ERROR = "error"  # the engine ended it with an error
    REJECTED = "rejected"  # refused at the door: queue full, or larger than the context or the KV cache
    LOST = "lost"  # went down with its replica and was not tried again
    UNROUTED = "unrouted"  # no replica was ready


class Request(Struct, frozen=True):
    """What a client asks for."""

    at_seconds: float  # simulated time
    prompt_tokens: int  # the shared prefix included
    output_tokens: int  # of the answer, the first included
    prefix: str | None = None  # name of a shared beginning; None: a prompt like no other
    prefix_tokens: int = 0  # of the shared beginning
    luck: float = 1.0  # in [0, 1): the request ends in an error where the engine's share of errors is above it
    reason: str = "stop"  # how it finishes: "stop" or "length"

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request has at least one prompt and one output token")
        if self.prefix_tokens >= self.prompt_tokens:
            raise ValueError("a shared prefix is shorter than the prompt: the last prompt token is always its own")


class Quiet(Struct, frozen=True):
    """Nobody asks for anything until that time."""

    at_seconds: float  # simulated time


class Record(Struct):
    """What became of a request; None: it has not happened yet. Seconds are simulated time."""

    request: Request  # as it was asked for
    # at the engine that served it last; later than `request.at_seconds` where it was tried again
    arrived_seconds: float
    replica: str = ""  # that served it last
    first_token_seconds: float | None = None  # of the last try
    ended_seconds: float | None = None  # of the last try
    outcome: Outcome = Outcome.UNDER_WAY  # how it ended
    hit_tokens: int = 0  # found in the prefix cache at the first admission
    generated_tokens: int = 0  # of the last try
    preemptions: int = 0  # of the last try
    tries: int = 1  # how often it was sent to an engine

    @property
    def ttft_seconds(self) -> float | None:
        """Time to the first token, from arrival at the engine, as the engine measures it."""
        return None if self.first_token_seconds is None else self.first_token_seconds - self.arrived_seconds
