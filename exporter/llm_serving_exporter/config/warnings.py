"""What is legal but probably not meant, in sentences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import isclose

from llm_serving_exporter.config.checks import Placed
from llm_serving_exporter.config.discovery_types import DiscoverySection
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.config.options import Settings
from llm_serving_exporter.config.types import SloConfig
from llm_serving_exporter.model.target import HttpSettings, Secret, Target
from llm_serving_exporter.normalise.mapping import Runtime
from llm_serving_exporter.schema.duration import format_duration
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.url import parse_url

Edges = Mapping[str, Sequence[float]]


def slo_warnings(slo: SloConfig, edges: Edges, runtime: str) -> Iterator[str]:
    """Thresholds that the runtime's histogram cannot tell apart. `edges`: finite edges in seconds by SLO."""
    thresholds = {"ttft": slo.ttft_seconds, "itl": slo.itl_seconds, "e2e": slo.e2e_seconds}
    for name, threshold in thresholds.items():
        bounds = sorted(edges.get(name, ()))
        if threshold is None or not bounds or any(isclose(threshold, bound, rel_tol=1e-9) for bound in bounds):
            continue
        position = bisect_left(bounds, threshold)
        start = f"slo.{name}: {_seconds(threshold)} lies"
        if position == 0:
            yield (
                f"{start} below the first bucket edge {_seconds(bounds[0])} of {runtime}'s histogram: "
                "no request can count as good"
            )
        elif position == len(bounds):
            yield (
                f"{start} above the last bucket edge {_seconds(bounds[-1])} of {runtime}'s histogram: "
                f"requests count as good up to {_seconds(bounds[-1])} (strict)"
            )
        else:
            low, high = bounds[position - 1], bounds[position]
            yield (
                f"{start} between the bucket edges {_seconds(low)} and {_seconds(high)} of {runtime}'s histogram: "
                f"requests count as good up to {_seconds(low)} (strict)"
            )


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s"


def unused_warnings(file: ConfigFile, settings: Settings, section: str) -> Iterator[str]:
    """What a section of the file, flags and the environment say in vain, because the address that it is about is not set."""
    node, place = file.find_key(section)
    if isinstance(node, dict) and node:
        yield f"{place}: not used, because {section}.url is not set"
    for name, setting in settings.items():
        if (
            name.startswith(section.replace("_", "-") + ".")
            and not setting.from_file
            and setting.place.file != "default"
        ):
            yield f"{setting.place}: not used, because {section}.url is not set"


def target_warnings(targets: Sequence[Placed], host_name: str) -> Iterator[str]:
    """What is odd about how targets are read. For the defaults of discovered targets the URL is not known yet."""
    said: set[float] = set()
    for item in targets:
        target, http, place = item.target, item.target.http, item.place
        if target.interval_seconds < 1 and target.interval_seconds not in said:
            said.add(target.interval_seconds)  # once for a setting that many targets share
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
        if _secrets(http) and not address.is_local(host_name):
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


def _secrets(http: HttpSettings) -> list[Secret]:
    named = [http.bearer_token, http.basic_password, *(content for _, content in http.headers)]
    return [secret for secret in named if isinstance(secret, Secret)]
