"""A target's identity: its place, labels of its own, and the name that follows from its pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llm_serving_exporter.catalogue.own_labels import KEYS, MOST_LABELS, refuse_label_name
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, LABELS
from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context, Host
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, Place, shown
from llm_serving_exporter.schema.reading import is_empty, mapping, value
from llm_serving_exporter.schema.tree import Node
from llm_serving_exporter.schema.url import Address

# of `target_labels`: they are on every series of every target
MOST_TARGET_LABELS = 8
NAMESPACE = kinds.text("namespace", 253)
POD = kinds.text("pod", 253)
POD_UID = kinds.text("pod UID", 253)
CONTAINER = kinds.text("container", 253)
WORKLOAD = kinds.text("workload", 253)
WORKLOAD_KIND = kinds.text("workload kind")
PROVIDER_ID = kinds.text("provider ID")
REGION = kinds.text("region")
ZONE = kinds.text("zone")
INSTANCE_TYPE = kinds.text("instance type")
LABEL_VALUE = kinds.text("label value")
# of those that say which replicas of a model are meant: nothing that comes and goes with one of them
FLEET_KEYS = {"namespace": NAMESPACE, "workload": WORKLOAD, "workload_kind": WORKLOAD_KIND, "region": REGION}

_SETTABLE = tuple(name for name in name_fields(Identity) if name not in ("pod_uid", "labels"))


def read_own_labels(
    node: Node | None, place: Place, context: Context | None = None
) -> tuple[tuple[str, str], ...] | None:
    """`labels:` of a target, by name; None where it is not given."""
    if node is None or is_empty(node):
        return None
    found = {}
    for name, content in mapping(node, place, node.keys() if isinstance(node, dict) else ("team",)).items():
        at = place.key(name)
        if (refusal := refuse_label_name(name)) is not None:
            at.refuse(*refusal)
        elif (text := value(content, at, LABEL_VALUE)) is not None:
            found[name] = text
    if len(found) > MOST_LABELS:
        place.refuse(f"{len(found)} labels are more than {MOST_LABELS}", "Keep those that somebody groups by.")
    return tuple(sorted(found.items()))


def keep_own_labels(labels: Iterable[tuple[str, str]], note: Callable[[str], None]) -> tuple[tuple[str, str], ...]:
    """Labels that discovery found: those that a target can have, by name. `note` is told of each that is left out, and why.

    An empty value is none. Unlike those of the configuration, which somebody can correct, unusable ones cost the target nothing else.
    """
    found = {}
    for name, text in sorted(labels):
        if not text:
            continue
        refusal = refuse_label_name(name)
        if refusal is None:
            try:
                found[name] = LABEL_VALUE.parse(text)
                continue
            except InvalidValueError as error:
                refusal = error.what, error.fix
        note(f"the label {shown(name)} is left out: {refusal[0]}. {refusal[1]}")
    if len(found) > MOST_LABELS:
        note(f"{len(found) - MOST_LABELS} labels are left out: a target has at most {MOST_LABELS} of its own.")
    return tuple(found.items())[:MOST_LABELS]


def merge_labels(
    own: tuple[tuple[str, str], ...] | None, under: tuple[tuple[str, str], ...] | None
) -> tuple[tuple[str, str], ...]:
    """Labels of two places, by name; the first wins where both set one."""
    return tuple(sorted({**dict(under or ()), **dict(own or ())}.items()))


def build_identity(settings: Mapping[str, Any], under: Identity | None = None) -> Identity:
    """The identity that settings say, by the names of its fields; what they leave open (None) is as in `under`."""
    base = under or Identity()
    said = {name: settings[name] for name in _SETTABLE if settings.get(name) is not None}
    return replace(base, labels=merge_labels(settings.get("labels"), base.labels), **said)


def place_locally(identity: Identity, address: Address | None, host: Host) -> Identity:
    """The identity, with the exporter's own pod where the server is in it: it answers on loopback, and nothing says another pod."""
    if address is None or not host.pod or not address.is_local(host.name):
        return identity
    namespace, pod = identity.namespace or host.namespace, identity.pod or host.pod
    if (namespace, pod) != (host.namespace, host.pod):
        return identity
    uid, container = identity.pod_uid or host.pod_uid, identity.container or host.container
    return replace(identity, namespace=namespace, pod=pod, pod_uid=uid, container=container)


def choose_name(identity: Identity, address: Address, host: Host) -> str:
    """The name of a target that is given none: of its pod where that is known, so that every exporter calls it the same."""
    if identity.namespace and identity.pod:
        return f"{identity.namespace}/{identity.pod}:{address.port}"
    return address.name(host.name)


def _target_label(text: str) -> str:
    refusal = None if text in IDENTITY_LABELS else refuse_label_name(text)
    if refusal is None:
        return text
    if text in LABELS or text in KEYS:
        raise InvalidValueError(f"{shown(text)} is on series of the exporter anyway", "Remove it.")
    raise InvalidValueError(f"{shown(text)}: {refusal[0]}", refusal[1])


TARGET_LABEL: Kind[str] = Kind(
    f"the name of a target's label: {', '.join(IDENTITY_LABELS)}, or one of its own", _target_label, is_text=True
)


def refuse_target_labels(names: tuple[str, ...], place: Place) -> None:
    """Reports names that are given twice, and more than there may be."""
    if len(set(names)) < len(names):
        place.refuse("a label is named twice", "Name each label once.")
    if len(names) > MOST_TARGET_LABELS:
        what = f"{len(names)} labels are more than {MOST_TARGET_LABELS}"
        place.refuse(what, "Each of them stands on every series: keep those that rules and dashboards group by.")
