"""Every option of the process as a whole, declared once: flag, environment variable and YAML key."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.cost import Method
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import Place, did_you_mean
from llm_serving_exporter.schema.reading import elements, mapping, parsed, value
from llm_serving_exporter.schema.tree import Node
from llm_serving_exporter.schema.url import URL

ENVIRONMENT_PREFIX = "LLM_SERVING_EXPORTER_"
# Kubernetes gives every pod such variables for each Service of its namespace, so a Service called
# llm-serving-exporter makes variables with our prefix (kubernetes.io, "Accessing the Service", environment variables).
_SERVICE_LINK = re.compile(
    r"([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `name` is the flag without "--". `default` is written as a user would write it, "" = none.

    `repeatable`: the flag may be given again, and the variable holds a comma-separated list; the file has a list or a single value, or a
    richer form of its own. `in_file`: whether the file has it under its dotted name.
    """

    name: str
    kind: Kind[Any]
    default: str
    help: str
    repeatable: bool = False
    in_file: bool = True

    @property
    def flag(self) -> str:
        """`--web.listen-address`."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """`LLM_SERVING_EXPORTER_WEB_LISTEN_ADDRESS`."""
        return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def keys(self) -> tuple[str, ...]:
        """The path of YAML keys: ("web", "listen_address")."""
        return tuple(part.replace("-", "_") for part in self.name.split("."))

    @property
    def attribute(self) -> str:
        """The attribute of the argparse namespace."""
        return re.sub(r"[.-]", "_", self.name)


OPTIONS: tuple[Option, ...] = (
    Option("config.file", kinds.PATH, "", "YAML configuration file.", in_file=False),
    Option(
        "target", kinds.text("URL", 2000), "",
        "URL of an LLM server, such as http://localhost:8000; takes the place of the file's targets.",
        repeatable=True, in_file=False,
    ),
    Option(
        "file-sd", kinds.PATH, "",
        "Prometheus file_sd file or glob (*.yml) to take targets from; takes the place of the file's file_sd.",
        repeatable=True, in_file=False,
    ),
    Option(
        "web.listen-address", kinds.LISTEN_ADDRESS, ":10077",
        "Address to listen on; :PORT means every interface. A list in the file.",
        repeatable=True,
    ),
    Option("web.telemetry-path", kinds.TELEMETRY_PATH, "/metrics", "Path of the metrics page."),
    Option("web.enable-lifecycle", kinds.BOOLEAN, "false", "Allow a reload by a POST to /-/reload."),
    Option("web.config.file", kinds.PATH, "", "exporter-toolkit web config file: TLS and basic auth."),
    Option("log.level", kinds.choice("log level", ("debug", "info", "warn", "error")), "info", "Least level logged."),
    Option("log.format", kinds.choice("log format", ("logfmt", "json")), "logfmt", "Form of the log lines."),
    Option("scrape.interval", kinds.INTERVAL, "5s", "How often each server is read."),
    Option(
        "scrape.timeout", kinds.DURATION, "",
        "Deadline of one reading as a whole; below the interval. Default: 80 % of the interval, at most 10s.",
    ),
    Option("scrape.max-body-bytes", kinds.SIZE, "16MiB", "Largest metrics page, after decompression."),
    Option("scrape.max-series", kinds.MAX_SERIES, "50000", "Most series of a metrics page."),
    Option(
        "scrape.stale-after", kinds.DURATION, "",
        "How long the last good values stay when a server no longer answers. Default: 3 of the longest interval.",
    ),
    Option("window", kinds.DURATION, "60s", "Window of rates, means and ratios; at least 2 intervals, longer where an engine books late."),
    Option("gpu.enabled", kinds.BOOLEAN, "true", "Read the GPUs of this node through NVML."),
    Option("gpu.gpm", kinds.BOOLEAN, "true", "Sample GPM (memory bandwidth, SM, tensor activity; Hopper and newer)."),
    Option("gpu.interval", kinds.INTERVAL, "", "How often the GPUs are read. Default: scrape.interval."),
    Option(
        "dcgm.url", URL, "",
        "This node's dcgm-exporter, such as http://localhost:9400: memory bandwidth of GPUs older than Hopper. Default: not read.",
    ),
    Option("dcgm.interval", kinds.INTERVAL, "30s", "How often dcgm-exporter is read; by default it collects every 30s."),
    Option(
        "dcgm.timeout", kinds.DURATION, "",
        "Deadline of one reading of dcgm-exporter; below its interval. Default: 80 % of the interval, at most 10s.",
    ),
    Option(
        "slo.file", kinds.PATH, "",
        "Settings file of the alert rules to take the thresholds below from; one that is given here wins over it.",
    ),
    Option("slo.ttft", kinds.THRESHOLD, "2.5s", "Time to first token that counts as good, or off."),
    Option("slo.itl", kinds.THRESHOLD, "off", "Inter-token latency that counts as good, or off."),
    Option("slo.e2e", kinds.THRESHOLD, "off", "Request latency that counts as good, or off."),
    Option("slo.errors", kinds.BOOLEAN, "true", "Count requests that ended in an error against the errors SLO."),
    Option(
        "hf-cache", kinds.PATH, "",
        "Hugging Face cache (the folder with models--*) in which the config.json of served models is looked up.",
    ),
    Option(
        "cost.price-file", kinds.PATH, "",
        "YAML file of what GPUs cost (docs/cost.md); read anew when it changes. Default: no cost series.",
    ),
    Option(
        "cost.method", kinds.choice("method", tuple(Method)), "roofline",
        "How busy GPU time is split into prefill and decode: roofline (seconds at the ceilings), flat, output_only, price_ratio, pools.",
    ),
    Option(
        "cost.decode-to-prefill-ratio", kinds.decimal("a number above 0, up to 1000", 0.0, 1000.0), "4",
        "How many computed prompt tokens a generated token weighs, for the method price_ratio.",
    ),
    Option(
        "cost.compute-efficiency", kinds.SHARE, "1",
        "Share of the compute peak that work is taken to reach, for the method roofline.",
    ),
    Option(
        "cost.bandwidth-efficiency", kinds.SHARE, "1",
        "Share of the bandwidth peak that decode is taken to reach, for the method roofline.",
    ),
    Option(
        "report.settings-file", kinds.PATH, "",
        "Settings file of the weekly cost review (docs/report.md), for one exporter to make it when it is due and to say when it was.",
    ),
    Option("report.run", kinds.BOOLEAN, "true", "Make the review; false where something else, such as a CronJob, does."),
    Option("state-file", kinds.PATH, "", "File in which the exporter keeps what must outlive a restart."),
    Option("drill.result-file", kinds.PATH, "", "File in which drills leave their results, for one exporter to publish."),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}
# keys beside the options below a top-level key, which others read: structured, so that no flag can hold them
_READ_ELSEWHERE: Mapping[str, tuple[str, ...]] = {"dcgm": ("auth", "headers", "tls")}


def add_flags(parser: argparse._ActionsContainer) -> None:
    """Adds every option as a flag to a parser or a group of one. Values stay text: `load` checks them and reports all problems together.

    The parser should be made with `allow_abbrev=False`, so that a later flag never changes what a short form means.
    """
    for option in OPTIONS:
        stated = f" Default: {option.default}." if option.default else ""
        description = f"{option.help}{stated} [{option.variable}]".replace("%", "%%")
        if option.repeatable:
            parser.add_argument(
                option.flag, dest=option.attribute, action="append", metavar="VALUE", help=f"{description} Repeatable."
            )
        elif option.kind is kinds.BOOLEAN:
            parser.add_argument(
                option.flag, dest=option.attribute, nargs="?", const="true", metavar="true|false", help=description
            )
            parser.add_argument(
                f"--no-{option.name}",
                dest=option.attribute,
                action="store_const",
                const="false",
                help=argparse.SUPPRESS,
            )
        else:
            parser.add_argument(option.flag, dest=option.attribute, metavar="VALUE", help=description)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was set. `from_file` is False for flags, environment variables and defaults."""

    value: Any
    place: Place
    from_file: bool = False


Settings = Mapping[str, Setting]


def from_flags(arguments: argparse.Namespace | None, problems: list[Problem]) -> dict[str, Setting]:
    """What the flags set, by option name; a repeatable option's value is a tuple of texts."""
    found = {}
    for option in OPTIONS:
        given = getattr(arguments, option.attribute, None)
        if given is not None:
            texts = given if option.repeatable else [given]
            found.update(_take(option, texts, Place(f"flag {option.flag}", "", problems)))
    return found


def from_environment(environ: Mapping[str, str], problems: list[Problem]) -> dict[str, Setting]:
    """What the environment sets, by option name. An empty variable sets nothing."""
    found = {}
    for option in OPTIONS:
        given = environ.get(option.variable, "")
        if given:
            texts = [part.strip() for part in given.split(",") if part.strip()] if option.repeatable else [given]
            found.update(_take(option, texts, Place(f"environment variable {option.variable}", "", problems)))
    return found


def _take(option: Option, texts: Iterable[str], place: Place) -> dict[str, Setting]:
    values = [parsed(text, place, option.kind) for text in texts]
    good = tuple(item for item in values if item is not None)
    if not good:
        return {}
    return {option.name: Setting(good if option.repeatable else good[0], place)}


def refuse_unknown_variables(environ: Mapping[str, str], expected: Collection[str], problems: list[Problem]) -> None:
    """Reports variables with our prefix that nothing reads. `expected`: those that the configuration names."""
    known = {option.variable for option in OPTIONS}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in known or name in expected:
            continue
        if _SERVICE_LINK.fullmatch(name.removeprefix(ENVIRONMENT_PREFIX)):
            continue
        near = did_you_mean(name, known)
        fix = near if near.startswith("Did") else "Unset it, or see --help for the variables there are."
        Place(f"environment variable {name}", "", problems).refuse("no option has this name", fix)


def file_keys() -> frozenset[str]:
    """The top-level YAML keys that options take."""
    return frozenset(option.keys[0] for option in OPTIONS if option.in_file)


def from_file(tree: Mapping[str, Node], place: Place) -> dict[str, Setting]:
    """What the file sets, by option name. `tree`: its top-level keys."""
    found: dict[str, Setting] = {}
    for key in [key for key in tree if key in file_keys()]:
        options = {option.keys[1:]: option for option in OPTIONS if option.in_file and option.keys[0] == key}
        _walk(tree[key], place.key(key), options, found, _READ_ELSEWHERE.get(key, ()))
    return found


def _walk(
    node: Node,
    place: Place,
    options: Mapping[tuple[str, ...], Option],
    found: dict[str, Setting],
    elsewhere: Collection[str] = (),
) -> None:
    if () in options:
        option = options[()]
        item = _values(node, place, option.kind) if option.repeatable else value(node, place, option.kind)
        if item is not None:
            found[option.name] = Setting(item, place, from_file=True)
        return
    # web: {config_file: …} is what the flag --web.config.file suggests
    nested = [keys for keys in options if len(keys) > 1]
    hints = {"_".join(keys): f"Write it nested: {': {'.join(keys)}: …{'}' * (len(keys) - 1)}." for keys in nested}
    section = mapping(node, place, {keys[0] for keys in options} | set(elsewhere), hints)
    for key, child in section.items():
        if key in elsewhere:
            continue
        below = {keys[1:]: option for keys, option in options.items() if keys[0] == key}
        _walk(child, place.key(key), below, found)


def _values(node: Node, place: Place, kind: Kind[Any]) -> tuple[Any, ...] | None:
    """The values of a list, or a single one. None where there is none to use, which is reported."""
    if not isinstance(node, list):
        single = value(node, place, kind)
        return None if single is None else (single,)
    if not node:
        place.refuse("the list is empty", f"Write {kind.expects}, or remove the line.")
    found = (value(element, at, kind) for element, at in elements(node, place, kind.expects))
    return tuple(item for item in found if item is not None) or None


def defaults(problems: list[Problem]) -> dict[str, Setting]:
    """The defaults of the options that have one."""
    return {
        option.name: Setting(
            (option.kind.parse(option.default),) if option.repeatable else option.kind.parse(option.default),
            Place("default", option.name, problems),
        )
        for option in OPTIONS
        if option.default
    }
