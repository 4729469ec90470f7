"""What is known about a server beyond its metrics page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server's side endpoints said when it started. Every field is None where no endpoint says it.

    `context_limit_tokens` by model name. Parallel sizes as the server's own configuration has them.
    """

    version: str | None = None
    context_limit_tokens: Mapping[str, int] = field(default_factory=dict)
    batch_limit_requests: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
