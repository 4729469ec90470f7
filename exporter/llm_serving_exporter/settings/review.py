"""What the daemon needs of the weekly review's settings: when it is due, and where it goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.config import Config, ReviewSchedule, hash_of
from llm_serving_exporter.settings.document import read_document
from llm_serving_exporter.settings.options import Context, Host
from llm_serving_exporter.settings.problems import Place


def with_review(config: Config, environ: Mapping[str, str]) -> Config:
    """The configuration with the review of `report_settings_file`. Raises ConfigError with everything that is wrong with that file."""
    path = config.report_settings_file
    assert path is not None
    problems: list[Problem] = []
    place = Place(path, "", problems)
    # a relative path of the file is of its folder, however the file was named
    context = Context(Host("", ""), environ, (), os.path.dirname(os.path.abspath(path)))
    # the pack is loaded by name: a daemon without a review never reads it
    review = import_module("llm_serving_review.settings.file")
    settings = review.read_settings(read_document(path, place), place, context)
    if not problems:
        if not settings.server.url:
            place.refuse("there is no Prometheus to ask", "Write prometheus: {url: http://prometheus:9090}.")
        if settings.schedule is None:
            place.refuse("there is no schedule", 'Write schedule: "0 7 * * mon" for Mondays at 7.')
        if not os.path.isabs(settings.out):
            place.refuse("there is no folder for the reviews", "Write out: /var/lib/llm-serving-exporter/reviews.")
    if problems:
        raise ConfigError(*problems)
    schedule = ReviewSchedule(path, settings.out, settings.schedule, settings.timezone, config.report_run)
    reviewed = replace(config, review=schedule, warnings=(*config.warnings, *context.warnings))
    return replace(reviewed, config_hash=hash_of(reviewed))
