"""Models by name, and what was counted of them elsewhere: the built-in catalogue's rows, and small models with every switch."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.loader import SOURCES, model_catalogue
from llm_serving_exporter.facts.models import ModelEntry, parse
from llm_serving_exporter.model.shape import Geometry, Module, Span
from tests.support.paths import TESTS
from tests.support.yaml_text import load_yaml

Config = dict[str, Any]


# --- the catalogue; the product parses only the row that is asked for


def texts() -> dict[str, str]:
    """The catalogue's files, as shipped, by name."""
    folder = files("llm_serving_exporter.facts").joinpath("catalogue")
    return {place.name: place.read_text(encoding="utf-8") for place in folder.iterdir() if place.name.endswith(".toml")}


@cache
def document() -> dict[str, Any]:
    """All files as one document."""
    parsed = {name: tomllib.loads(text) for name, text in texts().items()}
    rows = [row for name in sorted(parsed) for row in parsed[name].get("model", ())]
    return {"sources": parsed[SOURCES]["sources"], "model": rows}


@cache
def whole_catalogue() -> tuple[ModelEntry, ...]:
    """Every row."""
    return parse(document())


@cache
def config_of(name: str) -> Config:
    """The fields of config.json that the row of this name has."""
    return model_catalogue().find(name).entry.config


def nested(name: str, model_type: str, **changes: Any) -> Config:
    """The row as the language part of a multimodal config.json, and changes to that part."""
    text = {key: value for key, value in config_of(name).items() if key != "vision_config"}
    return {"model_type": model_type, "text_config": {**text, **changes}, "vision_config": {"model_type": "vision"}}


@cache
def shape_of(name: str) -> Geometry:
    """The geometry of the row of this name."""
    return geometry(config_of(name))


def find_module(shape: Geometry, path: str) -> Module:
    """The one module whose path ends so."""
    (module,) = (module for module in shape.modules if module.path.endswith(path))
    return module


def count_layers(shape: Geometry, span: Span) -> int:
    """How many layers see so much of the context."""
    return sum(group.layers for group in shape.attention if group.span is span)


def count_kv_read(shape: Geometry, context_tokens: float) -> float:
    """KV elements that one sequence's decode step reads at a context length, windows and what is picked respected."""
    return sum(group.layers * group.token_elements * group.tokens_read(context_tokens) for group in shape.attention)


# --- counts that were not made here


def read_counts() -> dict[str, dict[str, int | str]]:
    """Catalogue name -> what tests/truth/names/shapes.txt says of the row, by `COUNTED`; what it does not say is left out."""
    found = {}
    for line in (TESTS / "truth/names/shapes.txt").read_text("utf-8").splitlines():
        name, *values = line.split(" | ")
        found[name] = {
            key: int(value) if value.isdigit() and key != "layers" else value
            for key, value in zip(COUNTED, values, strict=True)
            if value != "-"
        }
    return found


COUNTED = ("parameters", "active", "read", "kv_bytes", "experts", "layers")


def count(shape: Geometry) -> dict[str, int | str]:
    """The same of a geometry. KV bytes per token at 2 bytes an element; experts "of a token/there are"; layers "n" or "n@window"."""
    windows = (f"{it.layers}@{it.window_tokens}" if it.window_tokens else f"{it.layers}" for it in shape.attention)
    return {
        "parameters": shape.parameters_total,
        "active": shape.parameters_active,
        "read": shape.decode_read_parameters,
        "kv_bytes": int(2 * shape.kv_elements_stored()),
        "experts": f"{shape.experts_per_token}/{shape.experts}",
        "layers": "+".join(windows),
    }


@dataclass(frozen=True)
class Odd:
    """A small model of tests/unit/facts/odd_shapes.yml."""

    name: str
    section: str
    config: Config
    counts: dict[str, Any]


@cache
def read_odd() -> dict[str, Odd]:
    """By name: what the row says, or its model_type and its place."""
    found = {}
    text = (TESTS / "unit/facts/odd_shapes.yml").read_text("utf-8")
    for section, (base, *rows) in load_yaml(text).items():
        for model_type, changes, counts, *named in rows:
            name = named[0] if named else f"{model_type} {len(found)}"
            found[name] = Odd(name, section, {"model_type": model_type, **base, **changes}, counts)
    return found


def odd(name: str, **changes: Any) -> Config:
    """The config of a small model, changed."""
    return {**read_odd()[name].config, **changes}
