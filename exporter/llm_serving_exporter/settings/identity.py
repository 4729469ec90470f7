"""Who and where: a target's labels and its pod, the exporter's own host and pod, its shard of the fleet."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llm_serving_exporter.catalogue.own_labels import KEYS, MOST_LABELS, refuse_label_name
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, LABELS
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.target import MOST_SHARDS, Identity, Shard
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import free_mapping, is_empty, refuse_repeats, value
from llm_serving_exporter.settings.kinds import Kind, ServerAddress
from llm_serving_exporter.settings.options import Context, Host, Setting
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, shown

NODE = kinds.text("node", 253)
MOST_TARGET_LABELS = 8  # of `target_labels`: they are on every series of every target
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


def read_texts_by_name(
    node: Node | None,
    place: Place,
    kind: Kind[str],
    refuse: Callable[[str], tuple[str, str] | None],
    *,
    most: int,
    what: str,
    example: str,
) -> tuple[tuple[str, str], ...] | None:
    """Texts by names that the user chooses, sorted; None where the key is not given.

    `refuse`: what is wrong with a name and what to do, None where it can be used. `most`: how many there may be. `what` they are, and the
    `example` of a name, are for messages.
    """
    if node is None or is_empty(node):
        return None
    texts = {}
    for name, content in free_mapping(node, place, f"Known here: {example}.").items():
        at = place.key(name)
        if (refusal := refuse(name)) is not None:
            at.refuse(*refusal)
        elif (text := value(content, at, kind)) is not None:
            texts[name] = text
    if len(texts) > most:
        place.refuse(f"{len(texts)} {what} are more than {most}", "Keep those that somebody groups by.")
    return tuple(sorted(texts.items()))


def read_own_labels(node: Node, place: Place, context: Context | None = None) -> tuple[tuple[str, str], ...] | None:
    """`labels:` of a target, by name; None where it is not given."""
    return read_texts_by_name(
        node, place, LABEL_VALUE, refuse_label_name, most=MOST_LABELS, what="labels", example="team"
    )


def keep_own_labels(labels: Iterable[tuple[str, str]], note: Callable[[str], None]) -> tuple[tuple[str, str], ...]:
    """Labels that discovery found: those that a target can have, by name. `note` is told of each that is left out, and why.

    An empty value is none. Unlike those of the configuration, which somebody can correct, unusable ones cost the target nothing else.
    """
    usable = {}
    for name, text in sorted(labels):
        if not text:
            continue
        refusal = refuse_label_name(name)
        if refusal is None:
            try:
                usable[name] = LABEL_VALUE.parse(text)
                continue
            except InvalidValueError as error:
                refusal = error.what, error.fix
        note(f"the label {shown(name)} is left out: {refusal[0]}. {refusal[1]}")
    if len(usable) > MOST_LABELS:
        note(f"{len(usable) - MOST_LABELS} labels are left out: a target has at most {MOST_LABELS} of its own.")
    return tuple(usable.items())[:MOST_LABELS]


def merge_labels(
    own: tuple[tuple[str, str], ...] | None, under: tuple[tuple[str, str], ...] | None
) -> tuple[tuple[str, str], ...]:
    """Labels of two places, by name; the first wins where both set one."""
    return tuple(sorted({**dict(under or ()), **dict(own or ())}.items()))


def build_identity(settings: Mapping[str, Any], under: Identity | None = None) -> Identity:
    """The identity that settings say, by the names of its fields; what they leave open (None) is as in `under`."""
    base = under or Identity()
    stated = {name: settings[name] for name in _SETTABLE if settings.get(name) is not None}
    return replace(base, labels=merge_labels(settings.get("labels"), base.labels), **stated)


def place_locally(identity: Identity, address: ServerAddress | None, host: Host) -> Identity:
    """The identity, with the exporter's own pod where the server is in it: it answers on loopback, and nothing says another pod."""
    if address is None or not host.pod or not address.is_local(host.name):
        return identity
    namespace, pod = identity.namespace or host.namespace, identity.pod or host.pod
    if (namespace, pod) != (host.namespace, host.pod):
        return identity
    uid, container = identity.pod_uid or host.pod_uid, identity.container or host.container
    return replace(identity, namespace=namespace, pod=pod, pod_uid=uid, container=container)


def choose_name(identity: Identity, address: ServerAddress, host: Host) -> str:
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
    refuse_repeats(names, place, "label")
    if len(names) > MOST_TARGET_LABELS:
        what = f"{len(names)} labels are more than {MOST_TARGET_LABELS}"
        place.refuse(what, "Each of them stands on every series: keep those that rules and dashboards group by.")


# --- the exporter's host and pod ---------------------------------------------------------------------------------------

# field of Host -> the variable that the downward API of Kubernetes fills, and its kind: all of them end up in labels
_VARIABLES = {
    "node": ("NODE_NAME", NODE),
    "namespace": ("POD_NAMESPACE", NAMESPACE),
    "pod": ("POD_NAME", POD),
    "pod_uid": ("POD_UID", POD_UID),
    "container": ("CONTAINER_NAME", CONTAINER),
}


def read_host(environ: Mapping[str, str], problems: list[Problem] | None = None, host_name: str | None = None) -> Host:
    """The host as the environment describes it; variables that are not usable are reported, and left out.

    `host_name`: the exporter's own (default: the system's). The pod is known only where both its namespace and its name are.
    """
    name = host_name or socket.gethostname()
    texts = {}
    for field, (variable, kind) in _VARIABLES.items():
        if text := environ.get(variable):
            place = Place(f"environment variable {variable}", "", [] if problems is None else problems)
            texts[field] = kind.read(text, place) or ""
    node = texts.pop("node", "") or name
    return Host(name, node, **texts) if texts.get("namespace") and texts.get("pod") else Host(name, node)


# --- shards ------------------------------------------------------------------------------------------------------------

_ORDINAL = "ordinal"
_SHARD_EXAMPLE = "Write 2/4 for the second of four, or ordinal/4 in the pods of a StatefulSet with 4 replicas."
_UNKNOWN_NUMBER = 0  # what stands for the ordinal until the name of the pod is known


def _shard(text: str) -> Shard:
    match = re.fullmatch(r"([0-9]{1,6}|ordinal)/([0-9]{1,6})", text)
    if match is None:
        raise InvalidValueError(f"{shown(text)} is not a shard", _SHARD_EXAMPLE)
    count = int(match[2])
    if not 1 <= count <= MOST_SHARDS:
        raise InvalidValueError(f"{count} shards are out of range", f"Write 1 to {MOST_SHARDS} shards.")
    if match[1] == _ORDINAL:
        return Shard(_UNKNOWN_NUMBER, count)
    number = int(match[1])
    if not 1 <= number <= count:
        raise InvalidValueError(
            f"there is no shard {number} of {count}", f"Shards count from 1: write 1/{count} to {count}/{count}."
        )
    return Shard(number, count)


SHARD = Kind("a shard such as 2/4, or ordinal/4", _shard)


def resolve_shard(setting: Setting, context: Context) -> Shard | None:
    """The shard of this process. For `ordinal/4` it follows from the ordinal at the end of the pod's name: chat-0 has the first one.

    The pod's name is POD_NAME, as the downward API sets it, else the host name, which is the same in a pod without hostNetwork.
    None where that name has no ordinal, or one beyond the last shard, which is then reported.
    """
    shard: Shard = setting.value
    if shard.number != _UNKNOWN_NUMBER:
        return shard
    name = context.environ.get("POD_NAME") or context.host.name
    match = re.fullmatch(r".*-([0-9]{1,9})", name, re.DOTALL)
    if match is None:
        what = f"the pod's name {shown(name)} does not end in an ordinal, so that its shard is not known"
        fix = "Run it as a StatefulSet (with POD_NAME where it has hostNetwork), or write 2/4."
    elif (ordinal := int(match[1])) >= shard.count:
        what = f"the pod {shown(name)} has the ordinal {ordinal}, but the ordinals of {shard.count} shards end at {shard.count - 1}"
        fix = "Give the StatefulSet as many replicas as there are shards, starting at 0."
    else:
        return replace(shard, number=ordinal + 1)
    setting.place.refuse(what, fix)
    return None
