"""Secrets of commands: one line of text in a file or an environment variable. No message ever shows one."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.target import Secret

LARGEST_SECRET_BYTES = 16 * 2**10


class SecretError(LLMServingExporterError):
    """A secret that cannot be used. `where` names its file or variable; `what` completes a sentence: "cannot be read: …"."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where} {what}")
        self.where = where
        self.what = what


def read_secret(named: Secret, environ: Mapping[str, str]) -> str:
    """What the file or the environment variable holds, without the end of its line. Raises SecretError."""
    where = f"file {named.file}" if named.file is not None else f"environment variable {named.env}"
    if named.file is None:
        text = environ.get(named.env or "", "")
    else:
        try:
            with open(named.file, "rb") as file:
                text = file.read(LARGEST_SECRET_BYTES + 1).decode("ascii")
        except OSError as error:
            raise SecretError(where, f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SecretError(where, "has characters that no HTTP header may carry") from None
        except ValueError:  # a null byte in the path
            raise SecretError(where, "cannot be read: this is not a path") from None
    text = text.rstrip("\r\n")
    if not text:
        raise SecretError(where, "is empty")
    if len(text) > LARGEST_SECRET_BYTES or not text.isprintable() or not text.isascii():
        raise SecretError(where, "does not hold a single line of plain text")
    return text
