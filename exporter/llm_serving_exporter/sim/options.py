"""Values of the options of `demo` and `simulate`. Each raises ArgumentTypeError."""

from __future__ import annotations

import argparse
import re

from llm_serving_exporter.sim.replay import split_address


def address(text: str) -> tuple[str, int]:
    """Option value host:port."""
    try:
        return split_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def port(text: str) -> int:
    """Option value: a port, 0 for a free one."""
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0-65535)")
    return int(text)


def speed(text: str) -> float:
    """Option value: how many times as fast."""
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not 0.01 <= float(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.01 to 1000")
    return float(text)


def seconds(text: str) -> float:
    """Option value: 10s, 5m or 1h in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 10s, 5m or 1h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]
