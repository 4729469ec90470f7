"""One entry of `targets:`, or a block of defaults, -> what it sets for a target."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.config.target_keys import TARGET_KEYS, TargetKey, TargetSettings
from llm_serving_exporter.config.target_kinds import read_url
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.keys import names_of, read_keys
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.reading import mapping
from llm_serving_exporter.schema.tree import Node, Scalar

IN_DEFAULTS = {attribute: one for attribute, one in TARGET_KEYS.items() if one.in_defaults}
# what users of Prometheus, or of other exporters, would write
_HINTS = {
    "bearer_token": "The file must not hold secrets: write auth: {bearer_token_file: …} or {bearer_token_env: …}.",
    "bearer_token_file": "Write it below auth: auth: {bearer_token_file: …}.",
    "bearer_token_env": "Write it below auth: auth: {bearer_token_env: …}.",
    "api_key": "The file must not hold secrets: write auth: {bearer_token_file: …} or {bearer_token_env: …}.",
    "password": "The file must not hold secrets: write auth: {basic: {username: …, password_file: …}}.",
    "authorization": "Write auth: {bearer_token_file: …} or auth: {bearer_token_env: …}.",
    "basic_auth": "Write auth: {basic: {username: …, password_file: …}}.",
    "tls_config": "Write tls: {ca_file: …}.",
    "scheme": "The scheme is part of the URL: url: https://….",
    "scrape_interval": "Write interval.",
    "scrape_timeout": "Write timeout.",
    "scrape": "Write interval, timeout, max_series or max_body_bytes directly.",
    "tp": "Write tensor_parallel_size.",
    "pp": "Write pipeline_parallel_size.",
    "gpu": "Write gpus: [0, 1] for which GPUs, gpu_model: for what they are where NVML does not show them.",
}


def read_target(node: Node, place: Place, context: Context) -> TargetSettings | None:
    """One element of `targets:`: a mapping, or just a URL. None where it has no usable URL, which is then reported."""
    if isinstance(node, Scalar) and node.kind == "text":
        return read_target_url(node.text, place)
    section = mapping(node, place, names_of(TARGET_KEYS), _HINTS)
    if "url" not in section:
        if isinstance(node, dict):
            place.refuse("url is missing", "Write one such as url: http://localhost:8000.")
        elif isinstance(node, Scalar) and node.kind == "nothing":
            place.refuse("the element is empty", "Write url: http://localhost:8000, or remove the dash.")
        return None
    settings = _read_settings(TARGET_KEYS, section, place, context)
    if settings.address is None:
        return None
    path = settings.address.path
    if path and settings.metrics_path and path != settings.metrics_path:
        place.refuse("the path of url and metrics_path differ", "Keep one of them.")
    return replace(settings, metrics_path=settings.metrics_path or path)


def read_target_url(url: str, place: Place) -> TargetSettings | None:
    """What a URL alone sets for a target; None where it is not usable, which is then reported."""
    address = read_url(url, place)
    return None if address is None else TargetSettings(address=address, metrics_path=address.path)


def read_defaults(node: Node | None, place: Place, context: Context) -> TargetSettings:
    """`target_defaults:` or `defaults:` of a section of discovery: every setting but name, url and GPUs by name."""
    hints = _HINTS | dict.fromkeys(("name", "url"), "Only a target itself can have it.")
    settings = _read_settings(IN_DEFAULTS, mapping(node, place, names_of(IN_DEFAULTS), hints), place, context)
    if settings.gpus:
        place.key("gpus").refuse("defaults cannot claim GPUs", "A GPU belongs to one target: write gpus there.")
    return settings


def _read_settings(
    keys: Mapping[str, TargetKey], section: Mapping[str, Node], place: Place, context: Context
) -> TargetSettings:
    settings = TargetSettings(**read_keys(keys, section, place, context))
    if "node" in section and "nodes" in section:
        place.refuse("both node and nodes are given", "Keep one of them.")
    return settings if settings.node is None else replace(settings, node=None, nodes=(settings.node,))
