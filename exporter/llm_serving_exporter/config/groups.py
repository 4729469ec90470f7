"""One target group of a list, from a file or a server -> targets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from llm_serving_exporter.config.build import carried, choose_nodes
from llm_serving_exporter.config.identity import build_identity, choose_name, keep_own_labels, place_locally
from llm_serving_exporter.config.target_keys import TARGET_KEYS
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context, Host
from llm_serving_exporter.schema.keys import Key, Keys, read_keys
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import elements, is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node, Scalar
from llm_serving_exporter.schema.url import Address, parse_url

_ADDRESS = Kind("an address such as host:8000", str, is_text=True)
# the scheme is part of a target's URL, so that it is no key of a target
_SCHEME = Key(name="__scheme__", field="scheme", reads=kinds.choice("scheme", ("http", "https")))
_LABEL_KEYS: Keys = {
    "scheme": _SCHEME,
    **{
        attribute: Key(name=one.label, field=attribute, reads=one.label_reads or one.reads)
        for attribute, one in TARGET_KEYS.items()
        if one.label
    },
}
LABELS = frozenset(one.name for one in _LABEL_KEYS.values())


def read_group(
    node: Node, place: Place, defaults: Target, host: Host, runtimes: Collection[str], notes: dict[str, None]
) -> list[Target]:
    """The targets of one group {targets, labels}. Why a label of it has no effect is added to `notes`, each sentence once."""
    if not isinstance(node, dict):
        place.refuse("must be a mapping {targets: […], labels: {…}}", "Write targets: and labels:.")
        return []
    section = mapping(node, place, ("targets", "labels"))
    if is_empty(section.get("targets")):
        place.refuse("targets is missing", 'Write targets: ["host:8000"], or [] for none.')
    where = place.key("labels")
    labels = _read_labels(section.get("labels"), where, Context(host, {}, runtimes), notes)
    identity = build_identity(labels, defaults.identity)
    shared = replace(defaults, **carried(labels))
    nodes = (labels["node"],) if "node" in labels else defaults.nodes
    found = list(elements(section.get("targets"), place.key("targets"), "addresses such as host:8000"))
    if "name" in labels and len(found) > 1:
        where.key("name").refuse("the group has several targets", "A name is for a group of one target.")
    targets = []
    for element, at in found:
        address = _read_address(value(element, at, _ADDRESS), labels.get("scheme", "http"), at)
        if address is not None:
            local = place_locally(identity, address, host)
            name = labels.get("name") or choose_name(local, address, host)
            found_nodes = choose_nodes(nodes, address, host)
            targets.append(replace(shared, name=name, url=address.url, identity=local, nodes=found_nodes))
    return targets


def _read_labels(node: Node | None, place: Place, context: Context, notes: dict[str, None]) -> dict[str, Any]:
    """What the labels of a group set, by field of a target's settings; `labels` are those of the target's own."""
    if node is None or is_empty(node):
        return {}
    labels = mapping(node, place, node.keys() if isinstance(node, dict) else ("model_name",))
    texts: dict[str, Node] = {}
    own: list[tuple[str, str]] = []
    for name, content in labels.items():
        if name.startswith("__param_"):
            place.key(name).refuse(
                "query parameters are part of the path", "Write __metrics_path__: /metrics?NAME=VALUE."
            )
        elif not isinstance(content, Scalar):
            place.key(name).refuse("must be a text", "A label has a single value.")
        elif content.kind != "nothing" and content.text and not name.startswith("__meta_"):
            # as Prometheus, which takes `group: 7` as text too, and an empty label as unset
            if name in LABELS:
                texts[name] = Scalar(content.text, "text")
            else:
                own.append((name, content.text))
    found = read_keys(_LABEL_KEYS, texts, place, context)
    found["labels"] = keep_own_labels(own, notes.setdefault)
    return found


def _read_address(text: str | None, scheme: str, place: Place) -> Address | None:
    if text is None:
        return None
    if "/" in text:
        place.refuse(
            f"{shown(text)} is not host:port" if "@" not in text else "this is not host:port",
            "Set the scheme and the path by the labels __scheme__ and __metrics_path__.",
        )
        return None
    try:
        return parse_url(f"{scheme}://{text}")
    except InvalidValueError as error:
        place.refuse(error.what, error.fix)
        return None
