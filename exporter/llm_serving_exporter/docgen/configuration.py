"""The reference tables of docs/configuration.md, made from the declarations of the keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from llm_serving_exporter.docgen.runtimes import cell
from llm_serving_exporter.settings.config import (
    CONFIG_FILE,
    FILE_SD,
    TARGET,
    TARGET_GPU_COUNT,
    TARGET_GPU_MODEL,
    TARGET_GPU_PRICE,
)
from llm_serving_exporter.settings.discovery import HttpSdSettings
from llm_serving_exporter.settings.facts import GpuModelSettings
from llm_serving_exporter.settings.keys import keys_of
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from llm_serving_exporter.settings.sources import OPTIONS
from llm_serving_exporter.settings.target_keys import TARGET_KEYS
from llm_serving_exporter.settings.targets import GROUP_LABELS

PAGE = "docs/configuration.md"
# the keys of the file that hold more than these options can
_RICHER = {
    CONFIG_FILE: "–",
    TARGET: "`targets`",
    TARGET_GPU_MODEL: "`targets[].gpu_model`",
    TARGET_GPU_COUNT: "`targets[].gpu_count`",
    TARGET_GPU_PRICE: "a price file",
    FILE_SD: "`file_sd`",
}


def options_table() -> str:
    """A row for each option of the process."""
    lines = ["| flag | YAML | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        yaml = f"`{'.'.join(option.keys)}`" if option.in_file else _RICHER[option]
        default = f"`{option.default}`" if option.default else "–"
        lines.append(f"| `{option.flag}` | {yaml} | {default} | {cell(option.help)} |")
    return "\n".join(lines)


def target_table() -> str:
    """A row for each key of a target."""
    lines = ["| key | label of file_sd | meaning |", "|---|---|---|"]
    for one in TARGET_KEYS.values():
        label = f"`{one.label}`" if one.label else "–"
        lines.append(f"| `{one.name}` | {label} | {cell(one.help)} |")
    return "\n".join(lines)


def labels_sentence() -> str:
    """The labels of file_sd that set something."""
    return f"Labels with a meaning here: {', '.join(f'`{label}`' for label in sorted(GROUP_LABELS))}."


def section_table(declaring: type) -> str:
    """A row for each key of a section of discovery."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for one in keys_of(declaring).values():
        default = "**required**" if one.required else f"`{one.default}`" if one.default else "–"
        lines.append(f"| `{one.name}` | {default} | {cell(one.help)} |")
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "options": options_table,
    "keys of a target": target_table,
    "labels": labels_sentence,
    "keys of http_sd": partial(section_table, HttpSdSettings),
    "keys of gpu_models": partial(section_table, GpuModelSettings),
    "keys of kubernetes": partial(section_table, KubernetesDiscovery),
}


def configuration_md() -> str:
    """The page below the current folder, with its tables made again. Raises OSError, and ValueError where a marker is missing."""
    text = Path(PAGE).read_text(encoding="utf-8")
    for name, make in TABLES.items():
        begin = f"<!-- {name}: made by `make generate` from exporter/llm_serving_exporter/settings -->"
        end = f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{PAGE}: the marks {begin} and {end} must be there once")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{make()}\n{end}{rest.partition(end)[2]}"
    return text
