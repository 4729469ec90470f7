"""Where the keys of a target can be set, by what names it: nobody edits `targets:` for a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from llm_serving_exporter.config.target_keys import TARGET_KEYS, TargetKey

# key of a target -> the annotation of its pod that sets it
ANNOTATION_OF_KEY: Mapping[str, str] = {
    "url": "llm-serving-exporter/port",
    "metrics_path": "llm-serving-exporter/path",
    "runtime": "llm-serving-exporter/runtime",
    "role": "llm-serving-exporter/role",
    "model_name": "llm-serving-exporter/model",
}


class FoundBy(StrEnum):
    """The section of the configuration that finds a target."""

    FILE_SD = "file_sd"
    HTTP_SD = "http_sd"
    KUBERNETES = "kubernetes"


def list_places(by: FoundBy, source: str) -> Mapping[str, str]:
    """Every key of a target, with where a target that is found so has it: the end of a sentence that begins with the key.

    `source`: the file or the URL that lists it; the name of the section for pods.
    """
    section = f"in `defaults` of its section of `{by.value}`"
    find: Callable[[TargetKey, str], str] = _find_pod_place if by is FoundBy.KUBERNETES else _find_listed_place
    return {one.name: find(one, section).replace("{source}", source) for one in TARGET_KEYS.values()}


def _find_pod_place(one: TargetKey, section: str) -> str:
    if one.name in ANNOTATION_OF_KEY:
        return f"by the pod's annotation {ANNOTATION_OF_KEY[one.name]}"
    if one.name == "gpus":
        return "by what the kubelet or the engine's environment says, docs/kubernetes-gpus.md"
    return section if one.in_defaults else "by the pod itself"


def _find_listed_place(one: TargetKey, section: str) -> str:
    if one.name == "url":
        return "by the address in {source}"
    if one.name == "gpus":
        return "in an entry of its own in `targets`, which takes the place of this one"
    return f"by the label {one.label} in {{source}}" if one.label else section
