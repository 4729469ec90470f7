"""What no single key of `tenants` can say, and its map of aliases."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.config.columns import pairs
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.config.options import Settings, build_section
from llm_serving_exporter.config.tenants import TenantsConfig
from llm_serving_exporter.files.key_file import KeyFileError, read_key_file
from llm_serving_exporter.model.tenants import SHORTEST_KEY_BYTES, TenantKind
from llm_serving_exporter.model.text import LABEL_LENGTH
from llm_serving_exporter.schema import kinds

# on LiteLLM's page: whoever knows the hash of a key can tell whose key he holds
_HASHES_OF_KEYS = frozenset({"hashed_api_key"})
_read_aliases = pairs(kinds.text("model", LABEL_LENGTH), "{gpt-4o: llama-70b}")


def read_tenants(settings: Settings, file: ConfigFile) -> TenantsConfig:
    """The section, with its aliases. What is wrong is reported at its place: an unreadable key before anything is published without it."""
    config = build_section(TenantsConfig, settings, aliases=_find_aliases(file))
    if config.by is TenantKind.HEADER and config.label is None:
        fix = "Write tenants.label: the label of the gateway's page that names the tenant."
        settings["tenants.by"].place.refuse("header needs to know which label", fix)
    if config.by is not TenantKind.HEADER and config.label is not None:
        fix = "Write by: header beside it, or remove it."
        settings["tenants.label"].place.refuse(f"a label is not used by tenants.by: {config.by.value}", fix)
    if config.label in _HASHES_OF_KEYS:
        settings["tenants.label"].place.refuse(
            "this label is the hash of a key", "Write by: key, which counts by the key's alias."
        )
    if config.hmac_key_file is not None:
        try:
            read_key_file(config.hmac_key_file, SHORTEST_KEY_BYTES)
        except KeyFileError as error:
            fix = "Make one by: openssl rand -hex 32. The exporter's user must be able to read it."
            settings["tenants.hmac-key-file"].place.refuse(f"the key {error}", fix)
    return config


def _find_aliases(file: ConfigFile) -> Mapping[str, str]:
    node, place = file.find_key("tenants")
    aliases = node.get("aliases") if isinstance(node, dict) else None
    return {} if aliases is None else _read_aliases(aliases, place.key("aliases"), None)
