#!/usr/bin/env python3
"""Pack folders of recorded metrics pages into one reproducible .tar.xz: the same folders give the same bytes.

    scripts/pack_recordings.py SRC_DIR [SRC_DIR ...] OUT.tar.xz [--members GLOB ...] [--pages N]

Taken over: the pages (`NNNN.prom`), when each was fetched (`timestamps.tsv` or `.txt`), `events.txt`, what the load
client counted (`client/*.json`), the model's `config.json`, what was read of its GPU, and a few side endpoints. With
more than one folder every member's name starts with its folder's name. Standard library only, so that it runs without
the project's environment.
"""

from __future__ import annotations

import argparse
import io
import lzma
import sys
import tarfile
from pathlib import Path

DEFAULT_MEMBERS = (
    "*.prom",
    "timestamps.tsv",
    "timestamps.txt",
    "events.txt",
    "client/*.json",
    "client/*.jsonl",
    "config.json",
    "card.json",
    "witness.jsonl",
    "product.jsonl",
    "endpoints/version.body",
    "endpoints/v1_models.body",
    "endpoints/server_info*.body",
    "endpoints/metrics-openmetrics-slash.body",
    "endpoints/metrics-openmetrics1.0.0.body",
    "endpoints/metrics-gzip.body",
)


def thinned(pages: list[Path], count: int | None) -> list[Path]:
    """`count` of the pages, evenly spread, the first and the last among them; all where count is None."""
    if count is None or count >= len(pages):
        return pages
    if count == 1:
        return pages[:1]
    return [pages[round(i * (len(pages) - 1) / (count - 1))] for i in range(count)]


def members(folder: Path, patterns: tuple[str, ...], pages: int | None) -> list[Path]:
    """The files of one folder that go into the archive, sorted."""
    found = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    kept = set(thinned([path for path in found if path.suffix == ".prom"], pages))
    return [path for path in found if path.suffix != ".prom" or path in kept]


def pack(folders: list[Path], out: Path, patterns: tuple[str, ...], pages: int | None) -> int:
    """Write the archive and return how many files it holds."""
    entries: list[tuple[str, Path]] = []
    for folder in folders:
        prefix = f"{folder.name}/" if len(folders) > 1 else ""
        found = members(folder, patterns, pages)
        if not found:
            raise SystemExit(f"{folder}: nothing to pack (patterns: {' '.join(patterns)})")
        entries += [(prefix + path.relative_to(folder).as_posix(), path) for path in found]
    raw = io.BytesIO()
    # USTAR has no headers that depend on the machine; owner, mode and time are fixed for the same reason.
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in sorted(entries):
            content = path.read_bytes()
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), 0, 0o644
            archive.addfile(info, io.BytesIO(content))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return len(entries)


def main() -> int:
    """Read the command line and pack."""
    parser = argparse.ArgumentParser(description="Pack recorded metrics pages into a reproducible .tar.xz.")
    parser.add_argument("src", nargs="+", type=Path, help="a recording; several become folders inside")
    parser.add_argument("out", type=Path, help="archive to write")
    parser.add_argument("--members", nargs="+", metavar="GLOB", default=DEFAULT_MEMBERS, help="what to take of each")
    parser.add_argument("--pages", type=int, metavar="N", help="only N pages of each, evenly spread")
    args = parser.parse_args()
    for folder in args.src:
        if not folder.is_dir():
            raise SystemExit(f"{folder}: not a folder")
    count = pack(args.src, args.out, tuple(args.members), args.pages)
    sys.stdout.write(f"{args.out}: {count} files, {args.out.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
