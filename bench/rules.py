"""What evaluating the rules costs: `make bench`, or `python -m bench.rules --targets 200 --hours 24` for one fleet.

Every rule is asked once of a real Prometheus, one after the other, over blocks with the history of everything that rules read. CPU is that
of Prometheus' process meanwhile: nanoseconds of its threads, the least of a few runs. A round is the time between two scrapes, in which a
group with a longer interval has its share. Answers are sent instead of stored. A fixed query in the same run says how fast the machine is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.cycle import say
from bench.rule_costs import Result, measure
from bench.rule_fleet import simulate
from llm_serving_alerts.render import rule_groups
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.model.record import replace
from tests.simweek.build import week_settings

# targets and hours of history
SIZES = ((200, 24), (1000, 24), (200, 2), (1000, 2), (3000, 2))
# of the project: CPU seconds of 1,000 targets; samples of a query of 3,000
MOST_A_ROUND, MOST_A_GROUP, MOST_SAMPLES = 4.0, 2.0, 10_000_000


def report(result: Result, shown: int) -> None:
    """A table of the groups and rules that cost most of a round."""
    total, fixed = result.round_cpu_seconds, result.fixed_cpu_seconds
    print(
        f"\n{result.targets} targets, {result.hours} h: {total:.2f} CPU s a round of {result.interval_seconds:g} s,",
        end=" ",
    )
    print(f"{total / fixed:.1f} x the fixed query ({fixed:.3f} s)")
    print(f"{'group':<52}{'CPU s':>8}{'x fixed':>9}{'a round':>9}{'peak samples':>14}")
    for group in sorted(result.groups, key=lambda group: -result.of_group(group.name) * result.share(group))[:shown]:
        cost = result.of_group(group.name)
        peak = max(rule.samples for rule in result.rules if rule.group.name == group.name)
        print(f"{group.name:<52}{cost:>8.2f}{cost / fixed:>9.1f}{cost * result.share(group):>9.2f}{peak:>14,}")
    print(f"{'rule':<90}{'CPU s':>8}{'a round':>9}{'series':>8}{'peak samples':>14}")
    for rule in sorted(result.rules, key=lambda rule: -rule.cpu_seconds * result.share(rule.group))[:shown]:
        part = rule.cpu_seconds * result.share(rule.group)
        print(f"{rule.name:<90}{rule.cpu_seconds:>8.3f}{part:>9.3f}{rule.series:>8}{rule.samples:>14,}")
    peak = max(result.rules, key=lambda rule: rule.samples)
    print(f"most samples at once: {peak.samples:,}, {peak.name}")
    sys.stdout.flush()


def fit(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The line through some points by least squares: its value at 0 and its slope."""
    known = list(points)
    mean_x, mean_y = (sum(point[axis] for point in known) / len(known) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in known)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in known) / spread
    return mean_y - slope * mean_x, slope


def summarise(results: Sequence[Result]) -> None:
    """The lines through sizes of the same history, and the project's bounds."""
    print()
    for hours in sorted({result.hours for result in results}):
        of_hours = [result for result in results if result.hours == hours]
        if len(of_hours) < 2:
            continue
        line = _line(of_hours, "CPU s a round", lambda result: result.round_cpu_seconds, "{:.2f}")
        peaks = _line(of_hours, "peak samples", lambda result: max(rule.samples for rule in result.rules), "{:,.0f}")
        print(f"{hours} h: {line}; {peaks}")
    for result in results:
        if result.targets >= 1000 and result.hours >= 24:
            per = 1000 / result.targets
            dearest = result.groups[0]
            print(
                f"of 1,000 targets: {result.round_cpu_seconds * per:.2f} CPU s a round (at most {MOST_A_ROUND:g}), "
                f"{result.of_group(dearest.name) * per:.2f} in {dearest.name} (at most {MOST_A_GROUP:g})"
            )


def _line(results: Sequence[Result], what: str, value: Callable[[Result], float], form: str) -> str:
    points = [(float(result.targets), float(value(result))) for result in results]
    base, slope = fit(points)
    off = max(abs(base + slope * x - y) / y for x, y in points)
    at = base + slope * 3000
    bound = f" (at most {MOST_SAMPLES:,})" if what.startswith("peak") else ""
    found = f"{what} {form.format(base)} + {form.format(1000 * slope)} a thousand targets (off by {off:.0%} at most)"
    return f"{found}; of 3,000 {form.format(at)}{bound}"


def settings_at_scrape() -> Settings:
    """The defaults with every objective set."""
    return replace(week_settings(), scrape_interval_seconds=default_settings().scrape_interval_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rules", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--targets", type=int, nargs="+", help="default: 200 and 1000 by 24 h, 200, 1000 and 3000 by 2 h"
    )
    parser.add_argument(
        "--hours", type=int, default=24, help="of history with --targets, an even number up to 26 (default 24)"
    )
    parser.add_argument("--shown", type=int, default=12, help="groups and rules in a table (default 12)")
    arguments = parser.parse_args()
    if arguments.hours % 2 or not 2 <= arguments.hours <= 26:
        parser.error("--hours must be an even number from 2 to 26")
    sizes = [(targets, arguments.hours) for targets in arguments.targets] if arguments.targets else SIZES
    settings = settings_at_scrape()
    groups = [group for found in rule_groups(settings).values() for group in found]
    interval_ms = round(1000 * settings.scrape_interval_seconds)
    say("simulating two models and everything that is recorded of them, a minute or two …")
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        fleet = simulate(groups, interval_ms, Path(name), say)
    results = []
    for targets, hours in sizes:
        results.append(measure(fleet, groups, interval_ms, targets, hours))
        report(results[-1], arguments.shown)
    summarise(results)


if __name__ == "__main__":
    main()
