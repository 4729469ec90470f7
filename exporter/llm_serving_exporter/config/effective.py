"""The configuration as it took effect, for people, and its hash. Secrets appear as where they are read from, and no header's value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from llm_serving_exporter.config.types import Config
from llm_serving_exporter.model.record import is_record, name_fields, replace
from llm_serving_exporter.model.secret_text import MASK
from llm_serving_exporter.model.target import HttpSettings, Secret

# all but the shard change nothing that the exporter does; exporters that share a fleet are meant to differ by the shard alone, so that
# their hashes tell whether they differ in anything else
_NOT_HASHED = ("config_hash", "file", "warnings", "price_problems", "price_warnings", "shard")


def effective(config: Config) -> dict[str, Any]:
    """The whole configuration, defaults included, as JSON types. A secret shows as {"file": path} or {"env": name}, a request header
    that stands in the configuration itself as a mask."""
    return _all_of(config, masked=True)


def hash_of(config: Config) -> str:
    """SHA-256 (hex) of the effective configuration; equal for two files that mean the same."""
    content = {key: item for key, item in _all_of(config, masked=False).items() if key not in _NOT_HASHED}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _all_of(config: Config, *, masked: bool) -> dict[str, Any]:
    return {name: _plain(getattr(config, name), masked) for name in name_fields(config)}


def _plain(value: Any, masked: bool) -> Any:
    if masked and isinstance(value, HttpSettings):
        hidden = tuple((name, MASK if isinstance(content, str) else content) for name, content in value.headers)
        value = replace(value, headers=hidden)
    if isinstance(value, Secret):
        return {"file": value.file} if value.file is not None else {"env": value.env}
    if is_record(value):
        return {name: _plain(getattr(value, name), masked) for name in name_fields(value)}
    if callable(value):
        # the code of a built-in table that one of the file is based on
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, (tuple, list)):
        return [_plain(item, masked) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, masked) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, str) else value
