"""What the loader finds about models: rows of the built-in catalogue, and the files of one model on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A row of models.toml. `config` as the model's config.json would be, of its language part; `also`: other names of one geometry."""

    name: str
    also: tuple[str, ...]
    config: Mapping[str, Any]
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model, parsed. `path` is that of its config.json, for messages.

    `hf_quant_config`: ModelOpt's file beside it, None where there is none. `checkpoint_bytes`: of all tensors as stored, from the
    safetensors index or the one safetensors file; None where neither is there.
    """

    path: str
    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None = None
    checkpoint_bytes: int | None = None
