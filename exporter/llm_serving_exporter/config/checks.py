"""What no single setting can say: problems between settings."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from llm_serving_exporter.config.options import Settings
from llm_serving_exporter.model.claims import claim_of, shared
from llm_serving_exporter.model.own_host import is_own_host
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.shard import Shard
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.schema.duration import format_duration
from llm_serving_exporter.schema.problems import Place, shown

# that one exporter reads
MOST_TARGETS = 2000
SHARE_THEM = "Share them among several exporters: --shard 1/2 for the first, --shard 2/2 for the second."


class Placed(Struct, frozen=True):
    """A target, or the defaults of discovered ones, and where it was written."""

    target: Target  # the target, or what discovered ones begin with
    # the part of a flag, a variable or the file that it comes from
    place: Place


def identity_of(target: Target) -> tuple[str, str | None]:
    """What makes two targets the same server: scheme, host, port and page."""
    return target.url, target.metrics_path


def refuse_duplicates(targets: Sequence[Placed]) -> None:
    """Reports names, URLs and GPUs that two targets have in common, at the later one."""
    names: dict[str, Place] = {}
    servers: dict[tuple[str, str | None], Placed] = {}
    gpus: dict[str, list[Target]] = {}
    for item in targets:
        target, place = item.target, item.place
        first = servers.setdefault(identity_of(target), item)
        if first is not item:
            place.refuse(f"{target.url} is already the target at {_short(first.place)}", "Remove one of them.")
        elif names.setdefault(target.name, place) is not place:
            what = f"the name {shown(target.name)} is already taken by {_short(names[target.name])}"
            place.refuse(what, "Give each target a name of its own.")
        for gpu in dict.fromkeys(target.gpus or ()):
            owners = gpus.setdefault(claim_of(target, gpu), [])
            owners.append(target)
            if len(owners) > 1 and not shared(owners):
                what = f"GPU {gpu} is already claimed by the target {shown(owners[0].name)}"
                fix = (
                    "Give it to one target, or each of them gpu_share, at most 1 together: its cost would count twice."
                )
                place.key("gpus").refuse(what, fix)


def _short(place: Place) -> str:
    return place.path or place.file


def refuse_too_many(targets: Sequence[Placed], shard: Shard | None) -> None:
    """Reports more targets than one exporter takes. `shard`: the part that is read here, None for all."""
    held = [item for item in targets if holds_target(shard, item.target)]
    if len(held) > MOST_TARGETS:
        what = f"{len(held)} targets are more than {MOST_TARGETS}"
        held[MOST_TARGETS].place.refuse(what, SHARE_THEM)


def holds_target(shard: Shard | None, target: Target) -> bool:
    """Whether a target is read here.

    One with a loopback address is another server to each exporter, so that it belongs to no shard and is read by whoever names it.
    """
    return shard is None or is_own_host(urlsplit(target.url).hostname or "", "") or shard.holds(target.name)


def refuse_timeouts(settings: Settings, targets: Sequence[Placed]) -> None:
    """Reports timeouts that are not below their interval; each wrong pair once, at the first place in `targets`."""
    reported = set()
    if "scrape.timeout" in settings:
        interval, timeout = settings["scrape.interval"].value, settings["scrape.timeout"].value
        if timeout >= interval:
            reported.add((interval, timeout))
            refuse_timeout(settings["scrape.timeout"].place, interval, timeout)
    for item in targets:
        pair = (item.target.interval_seconds, item.target.http.timeout_seconds)
        if pair[1] >= pair[0] and pair not in reported:
            reported.add(pair)
            refuse_timeout(item.place.key("timeout"), *pair)


def refuse_window(settings: Settings, targets: Sequence[Placed], stale_after_seconds: float) -> None:
    """Reports a window or a staleness that is too short for the longest interval."""
    longest, place = settings["scrape.interval"].value, settings["scrape.interval"].place
    for item in targets:
        if item.target.interval_seconds > longest:
            longest, place = item.target.interval_seconds, item.place.key("interval")
    window = settings["window"]
    if window.value < 2 * longest:
        where = window.place if window.place.file != "default" else place
        what = (
            f"the window of {format_duration(window.value)} is shorter than 2 intervals of {format_duration(longest)}"
        )
        where.refuse(what, f"Set window to {format_duration(2 * longest)} or more, or shorten the interval.")
    if stale_after_seconds < longest:
        what = f"{format_duration(stale_after_seconds)} is shorter than the interval of {format_duration(longest)}"
        fix = f"Write {format_duration(longest)} or more; 3 intervals are the default."
        settings["scrape.stale-after"].place.refuse(what, fix)


def refuse_timeout(place: Place, interval: float, timeout: float) -> None:
    """Reports a timeout (seconds) that is not below its interval."""
    what = f"the timeout of {format_duration(timeout)} is not below the interval of {format_duration(interval)}"
    place.refuse(what, "Write a shorter one; where none is written it is 80 % of the interval, at most 10s.")
