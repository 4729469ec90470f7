"""What the loader finds about models: rows of catalogues, and the files of one model on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_serving_exporter.model.record import Struct

BUILT_IN = "built-in catalogue"


class ModelEntry(Struct, frozen=True):
    """A row of a catalogue of models."""

    name: str  # on the Hugging Face hub; with the organisation where only that one's checkpoint is meant
    also: tuple[str, ...]  # other names with the same geometry and formats
    config: Mapping[str, Any]  # as the model's config.json would be, of its language part
    source: str  # where the config was published
    date: str  # when it was looked up; "": a row of a user's own that does not say it
    catalogue: str = BUILT_IN  # which one the row stands in, in words


class ListedModel(Struct, frozen=True):
    """A row of the built-in catalogue that is known by name only: its text is parsed when it is asked for."""

    name: str  # as in the row
    also: tuple[str, ...]  # as in the row
    text: str  # the row's own TOML


class ModelFiles(Struct, frozen=True):
    """The files of one model, parsed."""

    path: str  # of config.json, for messages
    config: Mapping[str, Any]  # content of config.json
    hf_quant_config: Mapping[str, Any] | None = None  # ModelOpt's file beside it; None: there is none
    # all tensors as stored, from the safetensors index or the one safetensors file; None: neither is there
    checkpoint_bytes: int | None = None
