"""Values of the options of `demo` and `simulate`. Each raises ArgumentTypeError."""

from __future__ import annotations

import argparse
import re

from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.flags import duration_once_bare
from llm_serving_exporter.settings.problems import InvalidValueError
from llm_serving_exporter.web.listen import split_address

_PROMETHEUS_PORT = 9090


def add_listening(parser: argparse.ArgumentParser, exporter: str) -> None:
    """Adds what both demos have: where the exporter listens (default host:port in words), Prometheus, and when it ends."""
    parser.add_argument(
        "--web.listen-address",
        dest="listen_addresses",
        type=address,
        action="append",
        metavar="HOST:PORT",
        help=f"where the exporter listens (default {exporter}); repeatable",
    )
    parser.add_argument("--prometheus-port", type=port, default=_PROMETHEUS_PORT, metavar="PORT")
    parser.add_argument("--no-prometheus", action="store_true", help="start none even where one is installed")
    parser.add_argument(
        "--duration", type=duration_once_bare("--duration"), metavar="10m", help="end by itself after this long"
    )


def address(text: str) -> tuple[str, int]:
    """Option value host:port, as the daemon's --web.listen-address: the host is "" for every interface."""
    try:
        return split_address(kinds.LISTEN_ADDRESS.parse(text))
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def port(text: str) -> int:
    """Option value: a port, 0 for a free one."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port (0-65535). Write one such as 8000, or 0 for a free one."
        )
    return int(text)


def speed(text: str) -> float:
    """Option value: how many times as fast."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not 0.01 <= float(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.01 to 1000. Write one such as 10.")
    return float(text)
