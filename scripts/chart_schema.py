"""Writes the keys of the exporter's configuration into the Helm chart's values.schema.json, so that a typo in `config` is refused
before any pod starts: `--write` or `--check`. What the keys hold is checked by `llm-serving-exporter check-config`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llm_serving_exporter.docgen.generated_files import write_or_check
from llm_serving_exporter.settings.discovery import HttpSdSettings
from llm_serving_exporter.settings.keys import keys_of, names_of
from llm_serving_exporter.settings.kubernetes import KubernetesDiscovery
from llm_serving_exporter.settings.load import LIST_KEYS
from llm_serving_exporter.settings.sources import OPTIONS, PLAIN_NAMES
from llm_serving_exporter.settings.target_keys import TARGET_KEYS
from llm_serving_exporter.settings.targets import IN_DEFAULTS

SCHEMA = Path("deploy/helm/llm-serving-exporter/values.schema.json")
# the definitions that are made here
TARGET, DEFAULTS, CONFIG = "exporterTarget", "exporterDefaults", "exporterConfig"


def closed(names: Iterable[str]) -> dict[str, Any]:
    """A mapping with these keys, whatever they hold, and no others. What is no mapping passes."""
    return {"additionalProperties": False, "properties": {name: {} for name in sorted(names)}}


def config_schema() -> dict[str, Any]:
    """The keys of the configuration file, those of its sections and of the elements of its lists."""
    found = closed(LIST_KEYS)
    for option in (one for one in OPTIONS if one.in_file):
        above = found
        for name in option.keys[:-1]:
            if not above["properties"].get(name):
                above["properties"][name] = closed(())
            above = above["properties"][name]
        above["properties"].setdefault(option.keys[-1], {})
    for section, names in PLAIN_NAMES.items():
        found["properties"][section]["properties"] |= {name: {} for name in sorted(names)}
    defaults = {"$ref": f"#/definitions/{DEFAULTS}"}
    found["properties"] |= {
        "targets": {"items": {"$ref": f"#/definitions/{TARGET}"}},
        "target_defaults": defaults,
        "kubernetes": {"items": closed(names_of(keys_of(KubernetesDiscovery)))},
        "http_sd": {"items": closed(names_of(keys_of(HttpSdSettings)))},
    }
    for discovery in ("kubernetes", "http_sd"):
        found["properties"][discovery]["items"]["properties"]["defaults"] = defaults
    return found


def render_schema() -> str:
    """The schema with the definitions of today's keys."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    made = {TARGET: closed(names_of(TARGET_KEYS)), DEFAULTS: closed(names_of(IN_DEFAULTS)), CONFIG: config_schema()}
    schema["definitions"] |= made
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check("scripts/chart_schema.py", __doc__, {SCHEMA: render_schema()}, (), None))
