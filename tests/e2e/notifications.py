"""Who is told what of each situation, as a table: `python -m tests.e2e.notifications [NAME …] [--slow]`."""

import argparse
import tempfile
from pathlib import Path

from tests.e2e.situations.listed import SITUATIONS
from tests.e2e.situations.play import play
from tests.e2e.situations.table import write_table


def main() -> None:
    """Prints the table of the situations that are named, or of all but the slow ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(SITUATIONS)}")
    parser.add_argument("--slow", action="store_true", help="also those that only the soak test plays")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="where samples stay: other rules are judged by them at once, as long as the simulator and the situations are the same",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SITUATIONS.keys():
        parser.error(f"there is no situation {sorted(unknown)[0]}")
    names = arguments.names or [name for name, one in SITUATIONS.items() if arguments.slow or not one.slow]
    with tempfile.TemporaryDirectory() as folder:
        found = play([SITUATIONS[name] for name in names], arguments.keep or Path(folder))
    print(write_table(found[name] for name in names), end="")


if __name__ == "__main__":
    main()
