"""What is configured, and what a runtime says, about the model that a target serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the configuration says. None = nothing.

    `config`: path of a config.json, of a folder that holds one, or of a model's folder in a Hugging Face cache. `name`: a model of the
    built-in catalogue, where the served name is another. `weight_format`, `kv_cache_dtype`, `state_dtype` win over everything else.
    """

    config: str | None = None
    name: str | None = None
    weight_format: str | None = None
    kv_cache_dtype: str | None = None
    state_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the runtime says; outside text, not to be trusted as a path. None = it does not say.

    `root`: what was loaded, a path or a hub id. `quantization`: the engine's word for the weights' format, "" = none. dtypes as it writes
    them ("auto": the model's). `weight_bytes`: of all weights as they are stored.
    """

    name: str
    root: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    state_dtype: str | None = None
    weight_bytes: int | None = None
