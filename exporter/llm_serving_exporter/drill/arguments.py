"""The flags of `drill`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DESCRIPTION = """\
Loses a node on purpose, or waits for one to be lost, and measures through Prometheus what users noticed, whether
somebody was told, and how long it took to recover. Asks the recorded N-1 first and refuses where that says no or
unknown. docs/drill.md says how to plan one and what the verdict means."""

EPILOG = """\
examples:
  # what would be done, and whether it may be
  llm-serving-exporter drill --prometheus-url http://prometheus:9090 --model Qwen/Qwen3-32B --plan

  # drain a node, bring it back once the alert is there, give up where users suffer
  llm-serving-exporter drill --prometheus-url http://prometheus:9090 --model Qwen/Qwen3-32B --node gpu-7 \\
      --trigger-command 'kubectl drain gpu-7 --ignore-daemonsets --delete-emptydir-data' --restore-command 'kubectl uncordon gpu-7' \\
      --hold page --max-ttft 10s --max-errors-ratio 0.02 --alertmanager-url http://alertmanager:9093 \\
      --output drills/ --result-file /var/lib/llm-serving-exporter/drills.json

  # somebody else pulls the plug
  llm-serving-exporter drill --prometheus-url http://prometheus:9090 --model Qwen/Qwen3-32B --watch --loss-timeout 8h

exit status: 0 passed (--plan: may begin), 1 failed, aborted or not begun, 2 bad usage, 130 interrupted"""

APIS = ("prometheus", "alertmanager", "grafana")
WITH_BASIC_AUTH = ("prometheus", "alertmanager")


def parser(duration: Callable[[str], float], share: Callable[[str], float]) -> argparse.ArgumentParser:
    """`duration` and `share` read their texts; they raise argparse.ArgumentTypeError."""
    found = argparse.ArgumentParser(
        prog="llm-serving-exporter drill",
        usage="%(prog)s --prometheus-url URL --model NAME (--trigger-command COMMAND | --watch | --plan) [OPTIONS]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    say = found.add_argument_group("whose drill").add_argument
    say("--model", required=True, metavar="NAME", help="the model, as the label model_name has it")
    say(
        "--role",
        default="unified",
        choices=("unified", "prefill", "decode"),
        help="role of its replicas (default unified)",
    )
    say(
        "--selector",
        default="",
        metavar="MATCHERS",
        help="""identity labels that tell fleets apart, as in 'cluster="prod",namespace="llm"'""",
    )

    group = found.add_argument_group("what happens")
    say = group.add_argument
    how = group.add_mutually_exclusive_group()
    how.add_argument(
        "--trigger-command",
        metavar="COMMAND",
        help="loses the node; run without a shell, its output ends in the report",
    )
    how.add_argument("--watch", action="store_true", help="trigger nothing: wait for a loss, of whatever cause")
    say(
        "--plan",
        action="store_true",
        help="only say what would be done and whether it may be; nothing is run, nothing is written",
    )
    say(
        "--restore-command",
        metavar="COMMAND",
        help="undoes the trigger: run once in every drill, after --hold, when a bound is reached, on Ctrl-C, or at the end",
    )
    say("--shell", action="store_true", help="run both commands by /bin/sh")
    say("--command-timeout", type=duration, default=600.0, metavar="10m", help="of either command (default 10m)")
    say("--node", metavar="NAME", help="the node that is to go (default: the one with the most ready replicas)")
    say(
        "--hold",
        metavar="10m|page",
        help="how long the loss lasts before it is restored; page: until every expected alert has come "
        "(default: until the replicas come back without the restore command)",
    )
    say(
        "--force",
        action="store_true",
        help="begin although N-1 says no or unknown, or something else is amiss; the report says so",
    )

    say = found.add_argument_group("when it is broken off").add_argument
    say("--max-errors-ratio", type=share, default=0.05, metavar="SHARE", help="of failed requests in 5m (default 0.05)")
    say("--max-ttft", type=duration, metavar="10s", help="p99 time to first token over 5m (default: no bound)")
    say("--max-lost", type=_replicas, metavar="N", help="replicas that may go (default: as many as stand on the node)")
    say(
        "--max-duration",
        type=duration,
        default=1800.0,
        metavar="30m",
        help="time to recover, from the trigger on (default 30m)",
    )
    say(
        "--loss-timeout", type=duration, metavar="5m", help="time for the loss to be seen (default 5m, with --watch 1h)"
    )

    say = found.add_argument_group("what is measured").add_argument
    say(
        "--baseline",
        type=duration,
        default=600.0,
        metavar="10m",
        help="time before the loss to compare with (default 10m)",
    )
    say(
        "--objective",
        type=share,
        default=0.99,
        metavar="SHARE",
        help="share of good times to first token (default 0.99)",
    )
    say(
        "--expect-alert",
        action="append",
        metavar="NAME",
        help="an alert that has to come, once for each; none for nothing "
        "(default: LLMServingReplicaLost, LLMServingTargetsDown and LLMServingN1Critical where they are due)",
    )
    say(
        "--page-slack",
        type=duration,
        default=120.0,
        metavar="2m",
        help="how long after its `for` an alert may come (default 2m)",
    )
    say("--settle", type=duration, default=60.0, metavar="1m", help="time that a recovery must last (default 1m)")
    say("--interval", type=duration, default=5.0, metavar="5s", help="time between two looks (default 5s)")
    say(
        "--rate-window",
        type=duration,
        default=300.0,
        metavar="5m",
        help="range of the recorded 5m rates, where rules are rendered for a faster fleet",
    )

    group = found.add_argument_group(
        "whom it asks", "Secrets are read from files. No proxy and no netrc is heeded, no redirect followed."
    )
    say = group.add_argument
    say("--prometheus-url", required=True, metavar="URL", help="the one that evaluates the rules")
    say("--alertmanager-url", metavar="URL", help="asked whether it has the alert, and for whom")
    say(
        "--grafana-url",
        metavar="URL",
        help="gets an annotation over the time of the drill; wants --grafana-bearer-token-file",
    )
    for api in APIS:
        who = api.capitalize()
        say(f"--{api}-bearer-token-file", metavar="FILE", help=f"token for {who}")
        if api in WITH_BASIC_AUTH:
            say(f"--{api}-username", metavar="NAME", help=f"basic auth at {who}")
            say(f"--{api}-password-file", metavar="FILE", help="its password")
    say("--ca-file", metavar="FILE", help="certificates to trust instead of the system's")

    say = found.add_argument_group("what is left").add_argument
    say("--output", metavar="FOLDER", help="where the report goes, as JSON and Markdown (default: none is written)")
    say("--result-file", metavar="FILE", help="drill results that an exporter publishes (its drill.result_file)")
    return found


def _replicas(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:7]) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of replicas from 1 up")
    return int(text)
