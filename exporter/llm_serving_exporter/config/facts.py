"""Kinds of values that name GPUs and formats, checked against what is known. The catalogues are read only where something is named."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, shown

_LONGEST = 200


def _fix(text: str, names: Collection[str], common: str) -> str:
    near = get_close_matches(text.strip().lower(), names, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Write one such as {common}."


def _gpu_model(text: str) -> str:
    from llm_serving_exporter.facts import loader
    from llm_serving_exporter.facts.gpus import find

    kinds.text("GPU name", _LONGEST).parse(text)
    try:
        find(text, loader.gpu_catalogue())
    except FactsError as error:
        raise InvalidValueError(error.what.rstrip("."), error.fix) from None
    return text


def _weight_format(text: str) -> str:
    from llm_serving_exporter.facts import formats

    kinds.text("weight format", _LONGEST).parse(text)
    try:
        formats.named(text)
    except FactsError:
        common = "bf16, fp8, int8, int4, awq, gptq, nvfp4, mxfp4 or q4_k_m"
        raise InvalidValueError(f"{shown(text)} is not a weight format", _fix(text, formats.names(), common)) from None
    return text


def _kv_cache_dtype(text: str) -> str:
    from llm_serving_exporter.facts import formats, kv_dtype

    kinds.text("KV cache dtype", _LONGEST).parse(text)
    try:
        kv_dtype.kv_format(text, formats.BF16)
    except FactsError:
        raise InvalidValueError(
            f"{shown(text)} is not a KV cache dtype", _fix(text, kv_dtype.names(), "auto, bf16 or fp8")
        ) from None
    return text


def _state_dtype(text: str) -> str:
    from llm_serving_exporter.facts import formats

    kinds.text("dtype of recurrent state", _LONGEST).parse(text)
    try:
        if text.lower() != "auto":
            formats.plain(text)
    except FactsError:
        raise InvalidValueError(
            f"{shown(text)} is not a dtype of recurrent state",
            _fix(text, ("fp32", "bf16", "fp16", "auto"), "fp32 or bf16"),
        ) from None
    return text


GPU_MODEL = Kind("the name of a GPU", _gpu_model, is_text=True)
WEIGHT_FORMAT = Kind("a weight format such as bf16, fp8 or int4", _weight_format, is_text=True)
KV_CACHE_DTYPE = Kind("a KV cache dtype such as auto, bf16 or fp8", _kv_cache_dtype, is_text=True)
STATE_DTYPE = Kind("a dtype of recurrent state such as fp32 or bf16", _state_dtype, is_text=True)
