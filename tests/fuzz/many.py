"""Very many mutated inputs, in parts that an interruption does not lose.

    nice -n 15 .venv/bin/python -m tests.fuzz.many pages --until 1000000

A finished part is a line in build/fuzz/KIND.SEED.parts; started again it goes on with the others. Whatever does not hold is written to
build/fuzz/found with its traceback, and the run goes on: an input that made a fault belongs into tests/fuzz/corpus, with a telling name.
Ends with 1 where something was found in this run or an earlier one. FUZZ_SEED tries other inputs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from tests.fuzz.harness import be_quiet
from tests.fuzz.inputs import KINDS, SEED, make_configuration, make_page, make_request, make_successors, make_ticks
from tests.support.builders.exposition_oracle import remembered_labels
from tests.support.paths import ROOT

FOLDER = ROOT / "build" / "fuzz"
PART_INPUTS = 1000
# of the processor for one input: the slowest honest one takes a hundredth of it
MOST_SECONDS = 20.0
# kind -> the pieces of the input of a number, as they are kept where something does not hold
PIECES = {
    "pages": lambda number: [make_page(number)],
    "successors": make_successors,
    "ticks": make_ticks,
    "configurations": lambda number: [make_configuration(number)],
    "requests": lambda number: [make_request(number)],
}


class TooSlowError(BaseException):
    """An input that does not come to an end; no `except Exception` takes it for something else."""


def end_input(*_: object) -> NoReturn:
    """Raises what ends an input whose time is over."""
    raise TooSlowError


def try_part(kind: str, part: int, until: int) -> int:
    """Tries the inputs of a part; how many of them did not hold."""
    found = 0
    signal.signal(signal.SIGVTALRM, end_input)
    with be_quiet(), remembered_labels():
        for number in range(part * PART_INPUTS, min(until, (part + 1) * PART_INPUTS)):
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
                KINDS[kind](number)
            except (Exception, TooSlowError):  # whatever it is, it is what is looked for
                keep(kind, number, traceback.format_exc())
                found += 1
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return found


def keep(kind: str, number: int, what: str) -> None:
    """Keeps an input beside what came of it."""
    folder = FOLDER / "found"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{kind}-{SEED}-{number}"
    (folder / f"{name}.txt").write_text(what)
    for at, piece in enumerate(PIECES[kind](number)):
        (folder / f"{name}.{at}").write_bytes(piece)


def read_finished(file: Path) -> dict[int, tuple[int, int]]:
    """Part -> how many inputs of it were tried, and how many of them did not hold."""
    if not file.exists():
        return {}
    lines = [line.split() for line in file.read_text().splitlines()]
    return {int(line[0]): (int(line[1]), int(line[2])) for line in lines if len(line) == 4 and line[3] == "."}


def main(argv: list[str]) -> int:
    """Tries what is left of a kind; 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument(
        "--until", type=int, default=1_000_000, help="numbers from 0 to before this one (default 1000000)"
    )
    parser.add_argument("--processes", type=int, default=1, help="side by side (default 1)")
    arguments = parser.parse_args(argv)
    kind, until = arguments.kind, arguments.until
    file = FOLDER / f"{kind}.{SEED}.parts"
    file.parent.mkdir(parents=True, exist_ok=True)
    sizes = {at: min(PART_INPUTS, until - at * PART_INPUTS) for at in range(-(-until // PART_INPUTS))}
    finished = read_finished(file)
    left = [at for at, size in sizes.items() if finished.get(at, (0, 0))[0] < size]
    began = time.monotonic()
    with multiprocessing.Pool(arguments.processes) as pool, file.open("a") as lines:
        print(file=lines)  # after a line that was being written when a run ended
        tried = [(at, pool.apply_async(try_part, (kind, at, until))) for at in left]
        for done, (at, part) in enumerate(tried, 1):
            finished[at] = (sizes[at], part.get())
            print(at, *finished[at], ".", file=lines, flush=True)
            seconds = (time.monotonic() - began) / done * (len(left) - done)
            print(
                f"{kind} {done} of {len(left)} parts, {finished[at][1]} found, {seconds / 60:.0f} min to go", flush=True
            )
    count, found = (sum(column) for column in zip(*(finished[at] for at in sizes), strict=True))
    print(f"{kind}: {count} inputs of seed {SEED}, {found} for which something did not hold (build/fuzz/found)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
