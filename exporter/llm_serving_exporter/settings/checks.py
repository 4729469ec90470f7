"""What no single setting can say: problems between settings, and what is legal but probably not meant."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import Shard, Target, claim_of, fit_one_gpu, is_own_host
from llm_serving_exporter.settings.config import SloConfig
from llm_serving_exporter.settings.http import sends_secret
from llm_serving_exporter.settings.kinds import format_duration, parse_url
from llm_serving_exporter.settings.options import ConfigFile, Settings
from llm_serving_exporter.settings.problems import Place, shown

if TYPE_CHECKING:
    from llm_serving_exporter.engines.mapping import Runtime
    from llm_serving_exporter.settings.discovery import DiscoverySection

MOST_TARGETS = 2000  # that one exporter reads
SHARE_THEM = "Share them among several exporters: --shard 1/2 for the first, --shard 2/2 for the second."


class Placed(Struct, frozen=True):
    """A target, or the defaults of discovered ones, and where it was written."""

    target: Target
    place: Place  # the part of a flag, a variable or the file that it comes from


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
            if len(owners) > 1 and not fit_one_gpu([owner.gpu_share for owner in owners]):
                place.key("gpus").refuse(
                    f"GPU {gpu} is already claimed by the target {shown(owners[0].name)}",
                    "Give it to one target, or each of them gpu_share, at most 1 together: its cost would count twice.",
                )


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
        pair = settings["scrape.interval"].value, settings["scrape.timeout"].value
        reported.add(pair)
        refuse_timeout(settings["scrape.timeout"].place, *pair)
    for item in targets:
        pair = item.target.interval_seconds, item.target.http.timeout_seconds
        if pair not in reported:
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
    """Reports a timeout that is not below its interval, both in seconds."""
    if timeout >= interval:
        what = f"the timeout of {format_duration(timeout)} is not below the interval of {format_duration(interval)}"
        place.refuse(what, "Write a shorter one; where none is written it is 80 % of the interval, at most 10s.")


# --- warnings ----------------------------------------------------------------------------------------------------------

Edges = Mapping[str, Sequence[float]]


def slo_warnings(slo: SloConfig, edges: Edges, runtime: str) -> Iterator[str]:
    """Thresholds that the runtime's histogram cannot tell apart. `edges`: finite edges in seconds by SLO."""
    thresholds = {"ttft": slo.ttft_seconds, "itl": slo.itl_seconds, "e2e": slo.e2e_seconds}
    for name, threshold in thresholds.items():
        bounds = sorted(edges.get(name, ()))
        if threshold is None or not bounds or any(isclose(threshold, bound, rel_tol=1e-9) for bound in bounds):
            continue
        position = bisect_left(bounds, threshold)
        if position == 0:
            where, effect = f"below the first bucket edge {_seconds(bounds[0])}", "no request can count as good"
        elif position == len(bounds):
            where = f"above the last bucket edge {_seconds(bounds[-1])}"
            effect = f"requests count as good up to {_seconds(bounds[-1])} (strict)"
        else:
            low, high = bounds[position - 1], bounds[position]
            where = f"between the bucket edges {_seconds(low)} and {_seconds(high)}"
            effect = f"requests count as good up to {_seconds(low)} (strict)"
        yield f"slo.{name}: {_seconds(threshold)} lies {where} of {runtime}'s histogram: {effect}"


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s"


def unused_warnings(file: ConfigFile, settings: Settings, section: str) -> Iterator[str]:
    """What a section of the file, flags and the environment say in vain, because the address that it is about is not set."""
    node, place = file.find_key(section)
    if isinstance(node, dict) and node:
        yield f"{place}: not used, because {section}.url is not set"
    for name, setting in settings.items():
        is_given = not setting.from_file and setting.place.file != "default"
        if is_given and name.startswith(section.replace("_", "-") + "."):
            yield f"{setting.place}: not used, because {section}.url is not set"


def target_warnings(targets: Sequence[Placed], host_name: str) -> Iterator[str]:
    """What is odd about how targets are read. For the defaults of discovered targets the URL is not known yet."""
    reported: set[float] = set()
    for item in targets:
        target, http, place = item.target, item.target.http, item.place
        if target.interval_seconds < 1 and target.interval_seconds not in reported:
            reported.add(target.interval_seconds)  # once for a setting that many targets share
            yield (
                f"{place}: an interval of {format_duration(target.interval_seconds)} reads the server more than "
                "once a second; most engines refresh their metrics less often"
            )
        yield from _too_few_gpus(target, place)
        if http.insecure_skip_verify:
            yield f"{place}: insecure_skip_verify is on: anyone on the way to the server can forge its metrics"
        address = parse_url(target.url) if target.url else None
        if address is None or address.scheme == "https":
            continue
        if http.ca_file or http.cert_file or http.server_name or http.insecure_skip_verify:
            yield f"{place}: tls is set but the URL is http, so that it has no effect"
        if sends_secret(http) and not address.is_local(host_name):
            yield f"{place}: a secret is sent over http to another host; use https"


def unused_runtimes(
    tables: Sequence[Runtime], targets: Sequence[Placed], place: Place, discovery: Sequence[DiscoverySection]
) -> Iterator[str]:
    """Tables of the file that nothing is read by; labels of discovered targets are not known yet."""
    named = {item.target.runtime for item in targets}
    for number, table in enumerate(tables):
        if not table.fingerprints and table.name not in named and not discovery:
            yield (
                f"{place.item(number)}: not used: it has no fingerprints to be recognised by, and no target has runtime: {table.name}"
            )


def _too_few_gpus(target: Target, place: Place) -> Iterator[str]:
    """On several nodes `gpus` are those of this one. `gpus: none` is too few only for sizes that are stated."""
    engine = (target.tensor_parallel_size or 1) * (target.pipeline_parallel_size or 1)
    listed = len(target.gpus) if target.gpus is not None and len(target.nodes) < 2 else None
    for key, count in (("gpus", listed), ("gpu_count", target.gpu_count)):
        if count is not None and count < engine and engine > 1:
            yield (
                f"{place}.{key}: {count} are fewer than tensor_parallel_size x pipeline_parallel_size = {engine}: one engine "
                "alone uses more"
            )
