"""`shard`: which part of the fleet this exporter reads, as it is written, and which one that is here."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shard import MOST_SHARDS, Shard
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, shown

_ORDINAL = "ordinal"
_EXAMPLE = "Write 2/4 for the second of four, or ordinal/4 in the pods of a StatefulSet with 4 replicas."
# what stands for the ordinal until the name of the pod is known
_UNKNOWN_NUMBER = 0


def _shard(text: str) -> Shard:
    match = re.fullmatch(r"([0-9]{1,6}|ordinal)/([0-9]{1,6})", text)
    if match is None:
        raise InvalidValueError(f"{shown(text)} is not a shard", _EXAMPLE)
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


def resolve_shard(shard: Shard, environ: Mapping[str, str], host_name: str) -> Shard:
    """The shard of this process. For `ordinal/4` it follows from the ordinal at the end of the pod's name: chat-0 has the first one.

    The pod's name is POD_NAME, as the downward API sets it, else the host name, which is the same in a pod without hostNetwork.
    Raises InvalidValueError where that name has no ordinal, or one beyond the last shard.
    """
    if shard.number != _UNKNOWN_NUMBER:
        return shard
    name = environ.get("POD_NAME") or host_name
    match = re.fullmatch(r".*-([0-9]{1,9})", name, re.DOTALL)
    if match is None:
        what = f"the pod's name {shown(name)} does not end in an ordinal, so that its shard is not known"
        raise InvalidValueError(what, "Run it as a StatefulSet (with POD_NAME where it has hostNetwork), or write 2/4.")
    ordinal = int(match[1])
    if ordinal >= shard.count:
        what = f"the pod {shown(name)} has the ordinal {ordinal}, but the ordinals of {shard.count} shards end at {shard.count - 1}"
        raise InvalidValueError(what, "Give the StatefulSet as many replicas as there are shards, starting at 0.")
    return replace(shard, number=ordinal + 1)
