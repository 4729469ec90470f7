"""A fuzzer that is guided by the code that its inputs reach: what it finds belongs into tests/fuzz/corpus.

    scripts/setup.sh venv fuzz
    .venv/bin/python -m tests.fuzz.guided pages --seconds 600

Ends at the first input for which something does not hold, and says where it is; it is kept in the corpus, so that `make test` tries it
from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["llm_serving_exporter"]):
    from tests.fuzz import harness
    from tests.fuzz.harness import CORPUS
    from tests.fuzz.inputs import REQUESTS
    from tests.fuzz.mutations import seeds
    from tests.support.paths import ROOT

# a longer input says the same more slowly
MOST_BYTES = {"pages": 20_000, "configurations": 8_000, "requests": 4_000}


def first_inputs(door: str) -> list[bytes]:
    """What is mutated at the beginning."""
    kept = [path.read_bytes() for path in sorted((CORPUS / door).glob("*"))]
    if door == "pages":
        return kept + [page[: MOST_BYTES[door]].rpartition(b"\n")[0] + b"\n" for page in seeds(1)]
    if door == "configurations":
        return kept + [path.read_bytes() for path in sorted((ROOT / "deploy").glob("*.example.yml"))]
    return kept + list(REQUESTS)


def main(argv: list[str]) -> None:
    """Fuzzes one door until it finds something or its time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("door", choices=sorted(harness.DOORS))
    parser.add_argument("--seconds", type=int, default=60, help="how long (default 60)")
    arguments = parser.parse_args(argv)
    check = harness.DOORS[arguments.door]

    def once(data: bytes) -> None:
        try:
            check(data)
        except BaseException:
            path = CORPUS / arguments.door / hashlib.sha256(data).hexdigest()[:16]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            print(f"found: {path}", file=sys.stderr)
            raise

    with harness.be_quiet(), tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(first_inputs(arguments.door)):
            Path(folder, f"{number:04}").write_bytes(data)
        words = [
            sys.argv[0], folder, f"-max_total_time={arguments.seconds}", f"-max_len={MOST_BYTES[arguments.door]}",
            "-timeout=20",
        ]  # fmt: skip
        # it leaves artefacts beside the corpus's copy, which are the same bytes
        atheris.Setup([*words, f"-artifact_prefix={folder}/"], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
