"""Flags, environment and file -> one frozen Config, or every reason why not."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from llm_serving_exporter.config import options
from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import (
    Placed,
    refuse_duplicates,
    refuse_timeouts,
    refuse_too_many,
    refuse_window,
)
from llm_serving_exporter.config.dcgm import (
    dcgm_warnings,
    device_exporter_warnings,
    read_dcgm,
    read_device_exporter,
    refuse_dcgm_timeout,
)
from llm_serving_exporter.config.discovery import read_discovery
from llm_serving_exporter.config.effective import hash_of
from llm_serving_exporter.config.file import DISCOVERY_KEYS, ConfigFile, read_config_file
from llm_serving_exporter.config.gpu_models import KEY as GPU_MODELS
from llm_serving_exporter.config.gpu_models import read_gpu_models
from llm_serving_exporter.config.host import read_host
from llm_serving_exporter.config.http import check_file
from llm_serving_exporter.config.identity import refuse_target_labels
from llm_serving_exporter.config.limiter import LimiterConfig
from llm_serving_exporter.config.lists import read_configured_targets, read_expected_replicas
from llm_serving_exporter.config.options import Setting, Settings, build_section
from llm_serving_exporter.config.otlp import otlp_warnings, read_otlp
from llm_serving_exporter.config.own_models import check_models
from llm_serving_exporter.config.prices import PriceReading, look_at_prices
from llm_serving_exporter.config.runtimes import read_runtimes
from llm_serving_exporter.config.shard import resolve_shard
from llm_serving_exporter.config.slo_file import overridden, read_thresholds
from llm_serving_exporter.config.stated_gpus import price_stated_gpus, refuse_stated_gpus
from llm_serving_exporter.config.target import read_defaults
from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.config.tenant_checks import read_tenants
from llm_serving_exporter.config.types import (
    Config,
    CostConfig,
    GpuConfig,
    LogConfig,
    ScrapeConfig,
    SloConfig,
    WebConfig,
)
from llm_serving_exporter.config.warnings import slo_warnings, target_warnings, unused_runtimes
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shard import Shard
from llm_serving_exporter.normalise.mapping import Runtime
from llm_serving_exporter.normalise.registry import RUNTIMES
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.document import read_bounded
from llm_serving_exporter.schema.problems import InvalidValueError
from llm_serving_exporter.schema.reading import is_empty
from llm_serving_exporter.schema.tree import Node

STALE_INTERVALS = 3
MOST_WARNINGS = 50
# whose buckets thresholds are held against where no target says its runtime
MOST_COMMON_RUNTIME = "vllm"


# fields of Config that declare options of their own
_SECTIONS: Mapping[str, type] = {
    "web": WebConfig, "log": LogConfig, "scrape": ScrapeConfig, "gpu": GpuConfig, "slo": SloConfig,
    "limiter": LimiterConfig, "cost": CostConfig,
}  # fmt: skip


def load(
    arguments: argparse.Namespace | None,
    environ: Mapping[str, str],
    *,
    read: Callable[[Path], str] = read_bounded,
    host_name: str | None = None,
    runtimes: Mapping[str, Runtime] = RUNTIMES,
) -> Config:
    """The effective configuration: a flag wins over its variable, that over the file, that over the default.

    `arguments` come from a parser with `options.add_flags`, or None. `read` yields the text of the configuration file, of
    slo.file and of the price file.
    `host_name`: the exporter's own (default: the system's). `runtimes`: the built-in tables, by name.
    Raises `ConfigError` with every problem found, but for those of the price file: without prices everything but cost works.
    """
    problems: list[Problem] = []
    given = options.from_environment(environ, problems) | options.from_flags(arguments, problems)
    file = read_config_file(given["config.file"].value if "config.file" in given else None, problems, read)
    own_name = host_name or socket.gethostname()
    host = read_host(environ, problems, own_name)
    configured = read_runtimes(file, runtimes)
    own = read_gpu_models(*file.find_key(GPU_MODELS))
    names = [name for spec in own for name in (spec.name, *spec.names)]
    context = Context(host, environ, configured.names.union(runtimes), file.folder, names)
    settings = _settings(given, file, context, problems, read)
    shard = _shard(settings, context)

    defaults = _target_defaults(settings, file, context)
    targets = read_configured_targets(settings, file, defaults, context)
    discovery, discovered = read_discovery(settings, file, defaults, context)
    expected = read_expected_replicas(file)
    dcgm = read_dcgm(settings, file, context)
    device_exporter = read_device_exporter(settings, file, context)
    otlp = read_otlp(settings, file, context)
    refuse_stated_gpus(settings, context)
    prices = PriceReading(price_stated_gpus(settings, targets), (), ())
    if "cost.price-file" in settings:
        prices = look_at_prices(settings["cost.price-file"].value, read, own)
    tenants = read_tenants(settings, file)
    everywhere = [*targets, *discovered]
    stale_after = _stale_after(settings, everywhere)

    if not _timing_in_doubt(problems):
        refuse_timeouts(settings, [*_placed_defaults(defaults, file, context), *everywhere])
        refuse_window(settings, everywhere, stale_after)
        refuse_dcgm_timeout(settings)
    refuse_duplicates(targets)
    refuse_too_many(targets, shard)
    if "target-labels" in settings:
        refuse_target_labels(settings["target-labels"].value, settings["target-labels"].place)
    options.refuse_unknown_variables(environ, context.secret_variables, problems)
    if not targets and not discovery and not _servers_in_doubt(problems, file):
        fix = "Give --target http://localhost:8000, or targets: in a file named by --config.file."
        file.place.refuse("there is no server to read", fix)
    if problems:
        raise ConfigError(*problems)

    config = replace(
        build_section(
            Config,
            settings,
            targets=tuple(item.target for item in targets),
            discovery=discovery,
            **{name: build_section(section, settings) for name, section in _SECTIONS.items()},
            expected_replicas=expected,
            runtimes=configured.tables,
            gpu_models=own,
            dcgm=dcgm,
            device_exporter=device_exporter,
            otlp=otlp,
            tenants=tenants,
            prices=prices.book,
            price_problems=prices.problems,
            price_warnings=prices.warnings,
            file=file.path,
        ),
        shard=shard,
        stale_after_seconds=stale_after,
    )
    warnings = [
        *context.warnings,
        *_unused(settings, file),
        *configured.warnings,
        *unused_runtimes(configured.tables, everywhere, file.place.key("runtimes"), discovery),
        *_slo_warnings(config, everywhere, runtimes),
        *target_warnings(everywhere, own_name),
        *dcgm_warnings(config, settings, file, own_name),
        *device_exporter_warnings(config, settings, file, own_name),
        *otlp_warnings(config, settings, file, own_name),
    ]
    return replace(config, warnings=_bounded(warnings), config_hash=hash_of(config))


def _slo_warnings(config: Config, targets: Sequence[Placed], builtin: Mapping[str, Runtime]) -> Iterator[str]:
    """Against the buckets of each runtime that a target is said to have."""
    tables = {**builtin, **{table.name: table for table in config.runtimes}}
    declared = dict.fromkeys(item.target.runtime for item in targets if item.target.runtime is not None)
    for name in declared or (MOST_COMMON_RUNTIME,):
        if (table := tables.get(name)) is not None:
            yield from slo_warnings(config.slo, table.default_edges, table.title)


def _settings(
    given: dict[str, Setting],
    file: ConfigFile,
    context: Context,
    problems: list[Problem],
    read: Callable[[Path], str],
) -> dict[str, Setting]:
    """Every option's value; paths of the file are resolved."""
    from_file = {
        name: replace(setting, value=context.resolve(setting.value))
        if options.BY_NAME[name].reads is kinds.PATH
        else setting
        for name, setting in options.from_file(file.tree, file.place).items()
    }
    explicit = from_file | given
    thresholds = read_thresholds(explicit["slo.file"], read, context.warnings) if "slo.file" in explicit else {}
    context.warnings.extend(overridden(thresholds, explicit))
    settings = options.defaults(problems) | thresholds | explicit
    if "model-catalogue" in settings:
        check_models(settings["model-catalogue"].value, settings["model-catalogue"].place)
    if "report.settings-file" not in settings and explicit.get("report.run") is not None:
        context.warnings.append(f"{explicit['report.run'].place}: has no effect without report.settings-file")
    if "hf-cache" in settings and not os.path.isdir(cache := settings["hf-cache"].value):
        # it may be mounted later
        context.warnings.append(
            f"{settings['hf-cache'].place}: {cache} is not a folder, so that no model is found in it"
        )
    if "web.config.file" in settings:
        # before anything listens: a web server without the TLS that was meant would be worse than none
        check_file(settings["web.config.file"].value, settings["web.config.file"].place)
    return settings


def _shard(settings: Settings, context: Context) -> Shard | None:
    """Which part of the targets this process reads; None where it is all of them, or not known, which is then reported."""
    if "shard" not in settings:
        return None
    try:
        return resolve_shard(settings["shard"].value, context.environ, context.host.name)
    except InvalidValueError as error:
        settings["shard"].place.refuse(error.what, error.fix)
        return None


def _target_defaults(settings: Settings, file: ConfigFile, context: Context) -> TargetSettings:
    scrape = build_section(ScrapeConfig, settings)
    process = TargetSettings(
        interval_seconds=settings["scrape.interval"].value,
        timeout_seconds=scrape.timeout_seconds,
        max_series=scrape.max_series,
        max_body_bytes=scrape.max_body_bytes,
    )
    return read_defaults(*file.find_key("target_defaults"), context).completed_by(process)


def _placed_defaults(defaults: TargetSettings, file: ConfigFile, context: Context) -> list[Placed]:
    """The defaults as a target, so that what is wrong with them is reported once, where it stands."""
    node, place = file.find_key("target_defaults")
    return [] if node is None else [Placed(build_target(defaults, place, context.host), place)]


def _timing_in_doubt(problems: Sequence[Problem]) -> bool:
    """Whether a time could not be read, so that to compare it with others would only report it again."""
    words = ("interval", "timeout", "window", "stale")
    sources = [problem.path or problem.file for problem in problems]
    return any(word in source.rpartition(".")[2].lower() for source in sources for word in words)


def _servers_in_doubt(problems: Sequence[Problem], file: ConfigFile) -> bool:
    """Whether servers were named, but not so that they could be used; then that is what is reported."""
    flags = {option.flag for option in (options.TARGET, options.FILE_SD)}
    variables = {option.variable for option in (options.TARGET, options.FILE_SD)}
    named = any(problem.file.split(" ")[-1] in flags | variables for problem in problems)
    unusable = file.path is not None and any(problem.file == file.path and not problem.path for problem in problems)
    return named or unusable or any(_is_given(file.tree.get(key)) for key in ("targets", *DISCOVERY_KEYS))


def _is_given(node: Node | None) -> bool:
    return not is_empty(node) and node != []


def _stale_after(settings: Settings, targets: Sequence[Placed]) -> float:
    if "scrape.stale-after" in settings:
        return float(settings["scrape.stale-after"].value)
    longest = max([settings["scrape.interval"].value, *(item.target.interval_seconds for item in targets)])
    return STALE_INTERVALS * float(longest)


def _unused(settings: Settings, file: ConfigFile) -> Iterator[str]:
    """What the file sets without effect."""
    for option, key in (("target", "targets"), ("file-sd", "file_sd")):
        if option in settings and file.tree.get(key):
            yield f"{file.place.key(key)}: not used, because {settings[option].place} takes its place"


def _bounded(warnings: Sequence[str]) -> tuple[str, ...]:
    distinct = list(dict.fromkeys(warnings))
    if len(distinct) <= MOST_WARNINGS:
        return tuple(distinct)
    return (*distinct[:MOST_WARNINGS], f"and {len(distinct) - MOST_WARNINGS} more warnings")
