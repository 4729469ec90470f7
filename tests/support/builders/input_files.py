"""The files that a row of `tests/unit/wrong_inputs` or `tests/same/inputs` has its command find."""

from pathlib import Path

# in a row's files
A_FOLDER, BYTES = "DIR", "HEX "


def write_input(path: Path, text: str) -> None:
    """A file with this text, with the bytes that it states in hexadecimal, or a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if text == A_FOLDER:
        path.mkdir()
    elif text.startswith(BYTES):
        path.write_bytes(bytes.fromhex(text.removeprefix(BYTES)))
    else:
        path.write_text(text, encoding="utf-8")
