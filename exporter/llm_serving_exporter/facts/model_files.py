"""What the loader finds about models: rows of the built-in catalogue, and the files of one model on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A row of models.toml."""

    name: str  # on the Hugging Face hub, without the organisation
    also: tuple[str, ...]  # other names with the same geometry
    config: Mapping[str, Any]  # as the model's config.json would be, of its language part
    source: str  # where the config was published
    date: str  # when it was looked up


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model, parsed."""

    path: str  # of config.json, for messages
    config: Mapping[str, Any]  # content of config.json
    hf_quant_config: Mapping[str, Any] | None = None  # ModelOpt's file beside it; None: there is none
    # all tensors as stored, from the safetensors index or the one safetensors file; None: neither is there
    checkpoint_bytes: int | None = None
