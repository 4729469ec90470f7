"""`ceiling --from-prometheus`: flags -> question -> what Prometheus has -> table or JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import closing
from functools import partial

from llm_serving_exporter.clients.http import SecretError, read_secret
from llm_serving_exporter.clients.json_api import Access, ApiError, JsonApi, Prometheus
from llm_serving_exporter.commands.ceiling import question as kinds
from llm_serving_exporter.commands.what_if.answer import (
    USUAL_SHARE,
    Asked,
    answer,
    as_document,
    as_table,
    watch,
)
from llm_serving_exporter.commands.what_if.week import UnansweredError, read_week
from llm_serving_exporter.errors import ConfigError, FactsError
from llm_serving_exporter.facts import loader
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.settings import kinds as settings_kinds
from llm_serving_exporter.settings.facts import KV_CACHE_DTYPE, WEIGHT_FORMAT
from llm_serving_exporter.settings.flags import FlagReader
from llm_serving_exporter.settings.kinds import Kind, parse_url
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message

_TIMEOUT_SECONDS = 120.0
_PROMETHEUS = Kind(
    "a URL such as http://prometheus:9090", partial(parse_url, secrets="give --bearer-token-file"), is_text=True
)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The exit status: 0 answered, 1 there is no answer, which is said. Raises ConfigError with every fault of the flags."""
    flags = FlagReader(arguments)
    kinds.refuse_flags_of_the_other_question(flags)
    url, over = flags.value("--from-prometheus", _PROMETHEUS), flags.value("--over", settings_kinds.DURATION)
    token, ca_file = (flags.value(flag, settings_kinds.PATH) for flag in ("--bearer-token-file", "--ca-file"))
    model, catalogue, cache = (flags.text(flag) for flag in ("--model", "--model-catalogue", "--hf-cache"))
    if not model:
        flags.refuse("--model", "it is missing", "Write the name that it is served under.")
    asked = _asked(flags, model or "", cache or loader.hub_cache(environ), catalogue)
    if flags.problems:
        raise ConfigError(*flags.problems)
    assert url is not None
    assert over is not None
    try:
        secret = None if token is None else read_secret(Secret(file=token), environ)
        access = Access("Prometheus", f"{url.url}{url.path or ''}", "--from-prometheus", secret, None, ca_file)
        prometheus = Prometheus(JsonApi(access, _TIMEOUT_SECONDS))
        with closing(prometheus):
            week = read_week(prometheus, model, flags.text("--role"), over)
        found = answer(watch(week, asked), asked)
    except (ApiError, UnansweredError, FactsError, SecretError) as error:
        print_message(f"error: {error}")
        return EXIT_FAILED
    text = json.dumps(as_document(found), indent=2, allow_nan=False) if arguments.json else as_table(found)
    return EXIT_OK if print_line(text) else EXIT_FAILED


def _asked(flags: FlagReader, model: str, cache: str | None, catalogue: str | None) -> Asked:
    return Asked(
        model, cache, catalogue, flags.value("--traffic", kinds.TRAFFIC) or 1.0, flags.text("--gpu"),
        flags.value("--tp", kinds.COUNT),
        flags.value("--dtype", WEIGHT_FORMAT), flags.value("--kv-dtype", KV_CACHE_DTYPE), flags.value("--replicas", kinds.SEQUENCES),
        flags.value("--input-tokens", kinds.INPUT_TOKENS), flags.value("--output-tokens", kinds.INPUT_TOKENS),
        flags.value("--batch-limit", kinds.SEQUENCES), flags.value("--price", kinds.USD),
        flags.value("--objective", kinds.SHARE) or USUAL_SHARE,
    )  # fmt: skip
