"""`gpu_model:`, the name of a GPU: of the catalogue, or of the file's own GPUs, which config/gpu_models.py reads."""

from __future__ import annotations

from llm_serving_exporter.config.facts import GPU_MODEL
from llm_serving_exporter.config.target_kinds import GPU_NAME
from llm_serving_exporter.facts.gpu_names import split_words
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.problems import InvalidValueError, Place
from llm_serving_exporter.schema.reading import value
from llm_serving_exporter.schema.tree import Node


def read_gpu_model(node: Node, place: Place, context: Context) -> str | None:
    """`gpu_model:`, a name of the file's own GPUs or of the catalogue's."""
    text = value(node, place, GPU_NAME)
    return None if text is None else check_gpu_model(text, place, context)


def check_gpu_model(text: str, place: Place, context: Context) -> str | None:
    """The name, where it is one of the file's own GPUs or of the catalogue's; else None, and it is reported."""
    if split_words(text) in {split_words(name) for name in context.gpu_models}:
        return text
    try:
        return GPU_MODEL.parse(text)
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None
