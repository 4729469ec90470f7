"""`model:` of a target -> ModelSettings."""

from __future__ import annotations

from llm_serving_exporter.config.facts import KV_CACHE_DTYPE, STATE_DTYPE, WEIGHT_FORMAT
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context, read_path
from llm_serving_exporter.schema.keys import Key, names_of, read_keys, table
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.reading import mapping, value
from llm_serving_exporter.schema.tree import Node, Scalar

NAME = kinds.text("model name", 256)
_KEYS = table(
    config=Key(reads=read_path),
    name=Key(reads=NAME),
    weight_format=Key(reads=WEIGHT_FORMAT),
    kv_cache_dtype=Key(reads=KV_CACHE_DTYPE),
    state_dtype=Key(reads=STATE_DTYPE),
)
_HINTS = {
    "path": "Write config: /path/of/the/model.",
    "dtype": "Write weight_format, as in bf16 or fp8.",
    "quantization": "Write weight_format, as in fp8 or awq.",
    "kv_dtype": "Write kv_cache_dtype.",
}


def read_model(node: Node | None, place: Place, context: Context) -> ModelSettings | None:
    """The block; a text alone is a path where it has a slash and starts like one, else a catalogue name. None where it is not given."""
    if node is None:
        return None
    if isinstance(node, Scalar) and node.kind == "text":
        if node.text.startswith(("/", "./", "../")):
            return ModelSettings(config=context.resolve(node.text))
        return ModelSettings(name=value(node, place, NAME))
    section = mapping(node, place, names_of(_KEYS), _HINTS)
    return ModelSettings(**read_keys(_KEYS, section, place, context))
