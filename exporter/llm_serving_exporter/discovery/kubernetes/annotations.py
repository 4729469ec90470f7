"""What a pod says of itself by annotations `llm-serving-exporter/…`, and whether it makes sense."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

from llm_serving_exporter.discovery.kubernetes.records import PodRecord
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.facts import MODEL_NAME
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Place, shown
from llm_serving_exporter.settings.target_keys import ROLE, runtime_kind

T = TypeVar("T")

PREFIX = "llm-serving-exporter/"
SCRAPE = f"{PREFIX}scrape"
_NAMES = ("scrape", "port", "path", "scheme", "runtime", "role", "model")
ANNOTATIONS = frozenset(PREFIX + name for name in _NAMES)
MOST_PORTS = 16
# of a value; what discovery keeps of a longer one is cut off
LONGEST_VALUE = 1024
# the name of a container's port, https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#ports
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")


def _ports(text: str) -> tuple[str | int, ...]:
    found: list[str | int] = []
    for word in (part.strip() for part in text.split(",")):
        if word.isascii() and word.isdigit() and 0 < int(word) < 65536:
            found.append(int(word))
        elif _PORT_NAME.fullmatch(word):
            found.append(word)
        else:
            raise InvalidValueError(
                f"{shown(word)} is no port", "Write a number or the name of a port of the container."
            )
    if len(found) > MOST_PORTS:
        raise InvalidValueError(
            f"{len(found)} ports are more than {MOST_PORTS}", "Write one for each engine of the pod."
        )
    return tuple(dict.fromkeys(found))


_PORTS = Kind("ports", _ports)
_SCHEME_WORD = kinds.choice("scheme", ("http", "https"))
# Kubernetes itself writes it in capitals, in probes
_SCHEME = Kind("scheme", lambda text: _SCHEME_WORD.parse(text.lower()))


class Wishes(Struct, frozen=True):
    """What a pod's annotations say. None: nothing."""

    scrape: bool | None = None  # whether the pod is a target at all
    ports: tuple[
        str | int, ...
    ] = ()  # of its engines: numbers, and names of ports of its containers; (): it names none
    path: str | None = None  # of the page, with a query where it needs one
    scheme: str | None = None  # http or https
    runtime: str | None = None  # name of a table, or `auto`
    role: Role | None = None  # of each of its targets
    model: str | None = None  # for pages that name none


def read_scrape(annotations: Mapping[str, str]) -> bool | None:
    """Whether a pod wants to be a target; None where it does not say, or nothing that could be understood."""
    try:
        return kinds.BOOLEAN.parse(annotations[SCRAPE]) if SCRAPE in annotations else None
    except InvalidValueError:
        return None


def read_annotations(pod: PodRecord, source: str, problems: list[Problem], runtimes: Collection[str]) -> Wishes | None:
    """What a pod wants. Each annotation that makes no sense is a problem of `source`.

    Such a one about the runtime, the role or the model then counts as not given. None where another one makes no sense: what would be
    read is not what was meant.
    """
    reader = _Reader(pod, source, problems)
    runtime = reader.read("runtime", runtime_kind(runtimes))
    role, model = reader.read("role", ROLE), reader.read("model", MODEL_NAME)
    scrape = reader.read("scrape", kinds.BOOLEAN)
    before = len(problems)
    ports, path = reader.read("port", _PORTS), reader.read("path", kinds.METRICS_PATH)
    scheme = reader.read("scheme", _SCHEME)
    if len(problems) > before:
        return None
    return Wishes(scrape, ports or (), path, scheme, runtime, role, model)


class _Reader(Struct, frozen=True):
    pod: PodRecord  # whose annotations are read
    source: str  # that the pod is from
    problems: list[Problem]  # where faults are reported

    def read(self, name: str, kind: Kind[T]) -> T | None:
        """The value of an annotation; None where it is not there, empty, or makes no sense."""
        text = self.pod.annotations.get(PREFIX + name)
        where = f"pod {self.pod.namespace}/{self.pod.name}, annotation {PREFIX}{name}"
        place = Place(self.source, where, self.problems)
        if text is not None and len(text) > LONGEST_VALUE:
            place.refuse(
                f"it has more than {LONGEST_VALUE} characters", "Write what the documentation of pods as targets says."
            )
            return None
        # an empty one is unset, as a template leaves it
        return kind.read(text, place) if text else None
