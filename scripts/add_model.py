#!/usr/bin/env python3
"""Make rows of the model catalogue from config.json files: `scripts/add_model.py FOLDER ... --source KEY`.

    scripts/add_model.py ./Qwen3-8B ./Qwen3-8B-FP8/config.json --source hub
    scripts/add_model.py ./Qwen3-8B-FP8 --base Qwen3-8B --name Qwen/Qwen3-8B-FP8 --source hub

Each PLACE is a config.json or the folder that holds one; an hf_quant_config.json beside it is read too. Printed are [[model]] rows with
the fields that formulas read, and no others: whatever can be left away without changing a byte of the answer is left away, and lists of
quantised modules become patterns. With `--check` no row is printed: each PLACE is compared with what the catalogue answers to its folder's
name ("organisation--model" or "model"). `--source` is a key of catalogue/sources.toml (or any words, in a catalogue of your own).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import loader, models, quantisation
from llm_serving_exporter.facts.architectures import language
from llm_serving_exporter.facts.models import ModelEntry, ModelFiles
from llm_serving_exporter.facts.quant_dialects import plain
from llm_serving_exporter.facts.resolve import resolve
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.target import ModelSettings

QUANTISATION = "quantization_config"
# kept where they are stated, whether or not they are what a class does without them: a row is read by people too
KEPT = (
    "model_type", "torch_dtype", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "intermediate_size", "vocab_size", "tie_word_embeddings", "max_position_embeddings",
)  # fmt: skip
_NAMES = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")
# of a quantisation: kept, for people
_TOLD = ("quant_method", "quant_algo", "bits", "num_bits", "fmt")
_EXPERT = re.compile(r"\.experts\.(\d+)(?=\.|$)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def facts(config: Mapping[str, Any]) -> ModelFacts:
    """What a config alone says of a model, without what only names it. Raises FactsError where it cannot be understood."""

    def never() -> models.Catalogue:
        raise AssertionError("a config is there")

    found = resolve(ModelSettings(), None, ModelFiles("config.json", config), never)
    # a language part of its own has other names than one inside of a larger config, which configs mean alike (facts.quant_dialects)
    modules = tuple(replace(module, path=plain(module.path)) for module in found.geometry.modules)
    return replace(found, name="", origin="", notes=(), geometry=replace(found.geometry, modules=modules))


def reduced(files: ModelFiles) -> dict[str, Any]:
    """A model's config, with its quantisation in it, as a row states it: same facts, fewest fields."""
    config = dict(files.config)
    stated = quantisation.settings(config, files.hf_quant_config)
    for values in (config, config.get("text_config")):
        if isinstance(values, dict):
            values.pop("compression_config", None)
            values.pop(QUANTISATION, None)
    if stated is not None:
        config[QUANTISATION] = _of_first_experts({"quant_method": stated.method, **stated.values})
    whole = facts(config)

    def same(tried: Mapping[str, Any]) -> bool:
        try:
            return facts(tried) == whole
        except FactsError:
            return False

    flat = _flat(config)
    config = flat if same(flat) else config
    if stated is not None:
        config = _with_fewer_names(config, same)
    return _with_fewer_fields(config, same)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language part with what is said around it, as one level."""
    inner = language(config).values
    around = {key: value for key, value in config.items() if not (isinstance(value, Mapping) and value is inner)}
    flat = {**around, **inner}
    flat.pop("architectures", None)
    if "architectures" in inner or inner is config:
        flat["architectures"] = inner.get("architectures")
    return flat


def _of_first_experts(values: Any) -> Any:
    """Without what is said of each expert but the first, which stands for all of its layer (facts.quant_dialects)."""

    def other(name: object) -> bool:
        found = _EXPERT.search(name) if isinstance(name, str) else None
        return found is not None and found[1] != "0"

    if isinstance(values, Mapping):
        return {name: _of_first_experts(value) for name, value in values.items() if not other(name)}
    return [value for value in values if not other(value)] if isinstance(values, list) else values


def _with_fewer_names(config: dict[str, Any], same: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """With lists of modules as patterns, and no names that change nothing."""
    for path, listed in list(_lists(config[QUANTISATION], ())):
        at = (QUANTISATION, *path)
        config = _first_same(config, at, (_patterns(listed), sorted(set(listed))), same)
        for name in list(_at(config, at)):
            config = _first_same(config, at, ([kept for kept in _at(config, at) if kept != name],), same)
    for path in (("quantized_layers",), ("quantization", "quantized_layers")):
        at = (QUANTISATION, *path)
        layers = _at(config, at)
        if not isinstance(layers, Mapping):
            continue
        stated = {name: _algorithm(layer) for name, layer in layers.items()}
        alike = {_expression(name): layer for name, layer in stated.items()}
        config = _first_same(config, at, (alike, stated), same)
        for name in list(_at(config, at)):
            fewer = {kept: layer for kept, layer in _at(config, at).items() if kept != name}
            config = _first_same(config, at, (fewer,) if fewer else (), same)
    return config


def _first_same(
    config: dict[str, Any], path: tuple[str, ...], tries: Iterable[Any], same: Callable[[Mapping[str, Any]], bool]
) -> dict[str, Any]:
    """The config with the first of the values at the path that leaves the facts as they are; else as it is."""
    changed = (_replaced(config, path, tried) for tried in tries)
    return next((each for each in changed if same(each)), config)


def _expression(name: str) -> str:
    """A module's name with every number as any number."""
    return "re:.*" + re.sub(r"\\?\d+", r"\\d+", re.escape(name.removeprefix("model."))) + "$"


def _algorithm(layer: Any) -> Any:
    return (
        {key: layer[key] for key in ("quant_algo", "group_size") if key in layer}
        if isinstance(layer, Mapping)
        else layer
    )


def _lists(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], list[str]]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _lists(value, (*path, key))
        elif key in _NAMES and isinstance(value, list) and all(isinstance(name, str) for name in value):
            yield (*path, key), value


def _patterns(listed: Iterable[str]) -> list[str]:
    """Names with the layer's number as a wildcard."""
    return sorted({name if name.startswith("re:") else re.sub(r"\.\d+(?=\.)", ".*", name) for name in listed})


def _with_fewer_fields(config: dict[str, Any], same: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    for key in [key for key, value in config.items() if key not in KEPT or value is None]:
        fewer = {kept: value for kept, value in config.items() if kept != key}
        if same(fewer):
            config = fewer
        elif isinstance(config[key], Mapping):
            config = {**config, key: _with_fewer_inside(config, key, same)}
    return config


def _with_fewer_inside(
    config: dict[str, Any], key: str, same: Callable[[Mapping[str, Any]], bool], at: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The same of a field that is a mapping: `vision_config` only says that there is one."""
    path = (*at, key)
    for name in list(_at(config, path)):
        inside = _at(config, path)
        fewer = {kept: value for kept, value in inside.items() if kept != name}
        if fewer and name not in _TOLD and same(changed := _replaced(config, path, fewer)):
            config = changed
        elif isinstance(inside[name], Mapping):
            config = _replaced(config, (*path, name), _with_fewer_inside(config, name, same, path))
    return dict(_at(config, path))


def _at(values: Mapping[str, Any], path: Iterable[str]) -> Any:
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _replaced(values: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {**values, first: _replaced(values[first], tuple(rest), value) if rest else value}


def row(
    name: str, config: Mapping[str, Any], source: str, also: Iterable[str] = (), base: ModelEntry | None = None
) -> str:
    """A [[model]] row as TOML; of one with a base, only what differs from the base's config. Null where the base says something is kept."""
    quantised = config.get(QUANTISATION)
    fields = {key: value for key, value in config.items() if key != QUANTISATION}
    if base is not None:
        fields = _beside(base.config, config)
    lines = ["[[model]]", f"name = {_toml(name)}"]
    if also:
        lines.append(f"also = {_toml(list(also))}")
    if base is not None:
        lines.append(f"base = {_toml(base.name)}")
    lines.append(f"source = {_toml(source)}")
    said = {key: value for key, value in fields.items() if value is not None}
    if said or base is None:
        lines.append(f"config = {_toml(said)}")
    nulls = [key for key, value in fields.items() if value is None]
    if nulls:
        lines.append(f"nulls = {_toml(nulls)}")
    if quantised is not None or (base is not None and base.config.get(QUANTISATION)):
        lines.append(f"quantization = {_toml(quantised or {})}")
    return "\n".join(lines) + "\n"


def _beside(base: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a row has to state beside those of its base: none where the base's give the same facts."""
    quantised = {QUANTISATION: config.get(QUANTISATION, {})}
    whole = facts(config)
    other = {key: value for key, value in config.items() if key != QUANTISATION and base.get(key) != value}
    gone = {key: None for key in base if key not in config and key != QUANTISATION}
    for stated in ({}, other, {**other, **gone}):
        try:
            if facts({**base, **stated, **quantised}) == whole:
                return stated
        except FactsError:
            continue
    raise FactsError("model_unknown", "its sizes are not those of its base; leave --base away")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value + "'" if '"' in value or "\\" in value else f'"{value}"'
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items() if each is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return repr(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _toml(key)


def differences(files: ModelFiles, name: str) -> list[str]:
    """What the catalogue answers to a name otherwise than the model's own files, in words; none: the ceiling is the same."""
    config = dict(files.config)
    stated = quantisation.settings(config, files.hf_quant_config)
    if stated is not None:
        config[QUANTISATION] = {"quant_method": stated.method, **stated.values}
    read, named = facts(config), facts(loader.model_catalogue().find(name).entry.config)
    asked = loader.model_facts(ModelSettings(name=name))
    found = {
        "weight bytes": (read.weight_bytes, asked.weight_bytes),
        "KV format": (read.kv_format, asked.kv_format),
        "KV bytes per token": (read.kv_bytes_per_token, asked.kv_bytes_per_token),
        "formats": ([group.format for group in read.groups], [group.format for group in asked.groups]),
        "groups": (read.groups, asked.groups),
        "attention": (read.geometry.attention, named.geometry.attention),
    }
    return [
        f"{name}: {what}: {own} in its files, {by_name} by its name"
        for what, (own, by_name) in found.items()
        if own != by_name
    ]


def main() -> int:
    """Print the rows, or what differs. 1 where a config cannot be understood, or something differs: then the reason is on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", metavar="PLACE", help="a config.json, or a folder that holds one")
    parser.add_argument(
        "--check", action="store_true", help="compare with the catalogue's answer to the folder's name instead"
    )
    parser.add_argument("--source", default="", help="where it was published: a key of catalogue/sources.toml")
    parser.add_argument("--name", help="of the row (default: the folder's); for one PLACE only")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME", help="another name of the same checkpoint"
    )
    parser.add_argument("--base", help="a row of the built-in catalogue: state only what differs from it")
    asked = parser.parse_args()
    if not (asked.source or asked.check):
        parser.error("--source: say where the configs were published")
    if asked.name and len(asked.places) > 1:
        parser.error("--name: give one PLACE with it")
    faults = 0
    for place in asked.places:
        try:
            files = loader.read_config(place)
            base = loader.model_catalogue().find(asked.base).entry if asked.base else None
            name = asked.name or os.path.basename(os.path.dirname(os.path.abspath(files.path)))
            if asked.check:
                differing = differences(files, name.replace("--", "/", 1))
                sys.stdout.write("".join(f"{line}\n" for line in differing) or f"{name}: the same\n")
                faults += bool(differing)
                continue
            sys.stdout.write(row(name, reduced(files), asked.source, asked.also, base) + "\n")
        except FactsError as error:
            sys.stderr.write(f"{place}: {error}\n")
            faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
