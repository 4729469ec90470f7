"""How a file of a bill is packed and written -> its text. Programs say both in the first bytes, whatever the file is called.

AWS writes reports as .gz or .zip (https://docs.aws.amazon.com/cur/latest/userguide/cur-create.html); people pack what they send on with
bzip2 or xz; spreadsheets save "Unicode text" as UTF-16.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

# in each file of Office Open XML (ECMA-376, part 2), such as .xlsx, which is a zip file
_WORKBOOK = "[Content_Types].xml"
# what damage is to the programs that unpack
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile)


class PackingError(Exception):
    """A file that cannot be unpacked here."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def _open_zip(file: io.BufferedReader) -> Any:
    """The one file in it; folders and what macOS adds are none."""
    packed = zipfile.ZipFile(file)
    names = [one for one in packed.namelist() if not one.endswith("/") and not one.startswith("__MACOSX/")]
    if _WORKBOOK in names:
        raise PackingError("the file is a workbook of a spreadsheet program", "Save it as CSV.")
    if len(names) != 1:
        raise PackingError(f"the zip file has {len(names):,} files in it, not one", "Unpack it, and give the folder.")
    try:
        return packed.open(names[0])
    except (RuntimeError, NotImplementedError):  # a password, or a way of packing that Python does not have
        raise PackingError("the zip file has a password or is packed in a way that is not read", "Unpack it.") from None


# by their first bytes; of the formats' own definitions
_PACKINGS: tuple[tuple[bytes, Callable[[io.BufferedReader], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"PK\x03\x04", _open_zip),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
# that no library which is here can unpack
_NOT_READ = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x04\x22\x4d\x18", "lz4"), (b"7z\xbc\xaf\x27\x1c", "7-Zip"))
# what a store packs for sending, some programs leave packed once more
_MOST_LAYERS = 2
# what is no UTF-8 is in names, which no sum needs
_ENCODINGS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def open_text(file: io.BufferedReader) -> io.TextIOWrapper:
    """The text of a file, unpacked as it is read, with a byte order mark or without. Raises PackingError and what DAMAGE lists."""
    raw = file
    for _ in range(_MOST_LAYERS):
        begin = raw.peek(8)[:8]
        for magic, name in _NOT_READ:
            if begin.startswith(magic):
                raise PackingError(f"the file is packed with {name}", "Unpack it, or pack it with gzip.")
        unpack = next((one for magic, one in _PACKINGS if begin.startswith(magic)), None)
        if unpack is None:
            break
        # of the interface of raw streams it has what a reader needs; a larger buffer loses more before a damage
        raw = io.BufferedReader(unpack(raw))
    start = raw.peek(2)[:2]
    encoding = next((name for mark, name in _ENCODINGS if start == mark), "utf-8-sig")
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="")
