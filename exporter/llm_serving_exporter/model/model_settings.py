"""What is configured, and what a runtime says, about the model that a target serves."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct


class ModelSettings(Struct, frozen=True):
    """What the configuration says about the model that a target serves. None: nothing."""

    # path of a config.json, of a folder that holds one, or of a model's folder in a Hugging Face cache
    config: str | None = None
    name: str | None = None  # a model of the built-in catalogue, where the served name is another
    weight_format: str | None = None  # wins over everything else, as the two below do
    kv_cache_dtype: str | None = None  # such as fp8
    state_dtype: str | None = None  # of recurrent state (Mamba, gated DeltaNet)


class ServedModel(Struct, frozen=True):
    """What the runtime says about a model: text from outside, not to be trusted as a path. None: it does not say."""

    name: str
    root: str | None = None  # what was loaded, a path or a hub id
    # of activations and of weights that are not quantised, as the engine writes it ("auto": the checkpoint's)
    dtype: str | None = None
    quantization: str | None = None  # the engine's word for the weights' format; "": it says that there is none
    kv_cache_dtype: str | None = None  # as the engine writes it ("auto": the model's)
    state_dtype: str | None = None  # of recurrent state, as the engine writes it
    weight_bytes: int | None = None  # of all weights as they are stored
    said_by: str = "the server"  # who says it, in words
    # methods of quantised checkpoints, and families, as which the engine keeps the KV cache though it says "auto" (of a family also "fp8")
    kv_as_calibrated: frozenset[str] = frozenset()
