"""How a snapshot of cost stands in its file: a line with version and checksum, then JSON. Nothing in it is believed unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from llm_serving_exporter.errors import CostSnapshotError
from llm_serving_exporter.model.cost import CostSnapshot, EngineCost, EngineTotals, KeptCost
from llm_serving_exporter.model.hardware import TargetGpus
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.target import Identity

# of 500 targets with 32 names each, 20 MB
LARGEST_SNAPSHOT_BYTES = 32 * 2**20
_VERSION = 1
_TITLE = "llm-serving-exporter-cost"
# what tells a pod from the next one of its name; its labels are the new configuration's
_IDENTITY = ("namespace", "pod", "pod_uid", "container")
_LONGEST_TEXT = 4096
# no counter of a fleet gets there: 10^15 USD, or GPU seconds of a million GPUs in 30 years
_MOST = 1e15


def encode_snapshot(snapshot: CostSnapshot) -> bytes:
    """The content of the file. Raises CostSnapshotError where it would be too large to be read again."""
    document = {
        "boot": snapshot.boot,
        "boot_seconds": snapshot.boot_seconds,
        "unix_seconds": snapshot.unix_seconds,
        "targets": [_describe_target(one) for one in snapshot.targets],
    }
    try:
        body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise CostSnapshotError(f"a counter of cost cannot be written: {error}") from error
    if len(body) > LARGEST_SNAPSHOT_BYTES - 200:
        raise CostSnapshotError(f"the snapshot would have {len(body)} bytes, more than are read again")
    return f"{_TITLE} {_VERSION} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def decode_snapshot(content: bytes) -> CostSnapshot:
    """The snapshot of a file. Raises CostSnapshotError for anything that is not whole, of another version or cannot be true."""
    first, _, body = content.partition(b"\n")
    words = first[:200].decode("ascii", "replace").split(" ")
    if len(words) != 3 or words[0] != _TITLE:
        raise CostSnapshotError("it is no snapshot of cost")
    if words[1] != str(_VERSION):
        raise CostSnapshotError(f"it is of version {words[1][:20]!r}, and this exporter reads {_VERSION}")
    if hashlib.sha256(body).hexdigest() != words[2]:
        raise CostSnapshotError("its checksum is wrong")
    try:
        document = json.loads(body)
        targets = tuple(_read_target(one) for one in _list(document["targets"]))
        return CostSnapshot(
            _text(document["boot"]), _amount(document["boot_seconds"]), _amount(document["unix_seconds"]), targets
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CostSnapshotError(f"its content cannot be true: {type(error).__name__}: {str(error)[:100]}") from error


def _describe_target(kept: KeptCost) -> dict[str, Any]:
    gpus = kept.gpus
    return {
        "name": kept.name,
        "identity": {name: getattr(kept.identity, name) for name in _IDENTITY},
        "server": list(kept.server),
        "gpu_uuids": list(kept.gpu_uuids),
        "gpus": None if gpus is None else [gpus.count, gpus.name, gpus.share],
        "counted_seconds": kept.counted_seconds,
        "joules": dict(kept.joules),
        "engines": [[one.model_name, one.engine, one.role, _describe_totals(one.totals)] for one in kept.engines],
        "current": kept.current,
    }


def _describe_totals(totals: EngineTotals) -> dict[str, Any]:
    """Every counter by its name; labels and value in a list where there are labels."""
    found: dict[str, Any] = {}
    for name in name_fields(totals):
        value = getattr(totals, name)
        if isinstance(value, Mapping):
            value = [[list(key) if isinstance(key, tuple) else [key], amount] for key, amount in value.items()]
        found[name] = value
    return found


def _read_target(document: dict[str, Any]) -> KeptCost:
    gpus, engines = document["gpus"], _list(document["engines"])
    address, server = _list(document["server"])
    return KeptCost(
        name=_text(document["name"]),
        identity=replace(Identity(), **{name: _text(document["identity"][name]) for name in _IDENTITY}),  # type: ignore[arg-type] # texts
        server=(_text(address), _text(server)),
        gpu_uuids=tuple(_text(one) for one in _list(document["gpu_uuids"])),
        gpus=None if gpus is None else TargetGpus(_count(gpus[0]), _text(gpus[1]), _maybe(gpus[2])),
        counted_seconds=_maybe(document["counted_seconds"]),
        joules={_text(uuid): _amount(amount) for uuid, amount in document["joules"].items()},
        engines=tuple(EngineCost(_text(a), _text(b), _text(c), _read_totals(totals)) for a, b, c, totals in engines),
        current=_count(document["current"]),
    )


def _read_totals(document: dict[str, Any]) -> EngineTotals:
    pair: Callable[[list[str]], tuple[str, str]] = lambda key: (key[0], key[1])  # noqa: E731 - what a key becomes, as below
    triple: Callable[[list[str]], tuple[str, str, str]] = lambda key: (key[0], key[1], key[2])  # noqa: E731 - as above
    return EngineTotals(
        gpu_seconds={pair(key): amount for key, amount in _labelled(document["gpu_seconds"], 2)},
        usd={triple(key): amount for key, amount in _labelled(document["usd"], 3)},
        pending_usd={key[0]: amount for key, amount in _labelled(document["pending_usd"], 1)},
        pending_seconds=_amount(document["pending_seconds"]),
        savings_usd=_maybe(document["savings_usd"]),
        energy_joules=_maybe(document["energy_joules"]),
        energy_usd=_maybe(document["energy_usd"]),
        carbon_grams=_maybe(document["carbon_grams"]),
    )


def _labelled(value: Any, labels: int) -> list[tuple[list[str], float]]:
    found = []
    for key, amount in _list(value):
        if len(_list(key)) != labels:
            raise ValueError("a counter has other labels")
        found.append(([_text(one) for one in key], _amount(amount)))
    return found


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError("a text is missing or too long")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**6:
        raise ValueError("a count cannot be true")
    return value


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value <= _MOST and isfinite(value)):
        raise ValueError("an amount cannot be true")
    return float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else _amount(value)
