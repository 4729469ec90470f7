"""Text from outside, made fit for labels, pages, logs and terminals, and secrets masked in it.

A known secret is masked wherever whoever got it repeats it; an unknown one is found by where it stands. `Masker` stands where answers come
in, `hide_credentials` where text goes out: messages, log lines, documents for people and programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

LABEL_LENGTH = 200  # characters of a label value; longer ones come from a mistake or an attack
# C0 and C1, line and paragraph separators, and halves of surrogate pairs, which cannot be encoded
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# where in its own source Python's TLS fails: another line in each version
_SOURCE = re.compile(r" \(_ssl\.c:\d+\)")

# an "@" as it is, in full width or small, as a URL, HTML or JSON writes it, each perhaps written so more than once, and as people hide it
_AT = r"(?:[@\uff20\ufe6b]|%(?:25)*40|&(?:amp;)*(?:\#0*64|\#x0*40|commat);?|\\(?:u00|x)40|[\[({<]\s*at\s*[\])}>])"
# something before and after it: whatever looks like an address is treated as one. One character of each is enough, and linear in the name's
# length: with "+" each of its characters would begin a search to its end
_ADDRESS = re.compile(rf"[^\s@]\s*{_AT}\s*[^\s@]", re.IGNORECASE)


def clean(text: str, longest: int = LABEL_LENGTH) -> str:
    """The text cut to `longest` characters, with U+FFFD for control characters, lone surrogates and other unprintable ones.

    A lone surrogate (JSON can carry one) has no UTF-8 form and would make a whole page impossible to send.
    """
    cut = text[:longest]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def has_control_characters(text: str) -> bool:
    """Whether the text holds a line break, another control character or half of a surrogate pair."""
    return _CONTROL.search(text) is not None


def has_address(text: str) -> bool:
    """Whether there is an e-mail address in the text, or what looks like one, also as a URL, HTML or JSON would write it."""
    return _ADDRESS.search(text) is not None


def blank_unprintable(text: str) -> str:
    """A blank for each character that has no picture, so that nothing breaks a line or moves a cursor; columns stay."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def on_one_line(text: str, longest: int | None = None) -> str:
    """One printable line: unprintable characters are blanks, runs of blanks are one; cut to `longest` characters with "…".

    Of an error of TLS the line of Python's source is left out.
    """
    line = _SOURCE.sub("", " ".join(blank_unprintable(text).split()))
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def count_nouns(number: int, noun: str, nouns: str = "") -> str:
    """`1 target`, `1,200 targets`. `nouns`: where more than one is not the noun with an "s"."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def escape_label_value(value: str) -> str:
    """A label's value as it stands between double quotes in the exposition format and in PromQL."""
    if "\\" in value or '"' in value or "\n" in value:  # most values need nothing, and a page has thousands
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


MASK = "***"
# a shorter secret may be a word of the page: it is masked only where a whole quoted text is the secret
SHORTEST_PART_OF_A_TEXT = 8
# a name outside quotes is masked for no shorter secret than this: the series that every page has are no secrets
_SHORTEST_BARE = 16
_SHORTEST_CUT = 4
# of a URL: RFC 3986, 2.3
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_BARE_MASK = b"redacted"
_QUOTED = re.compile(rb'"(?:[^"\\\n]|\\.)*+"')

# a password may hold a slash, against the rules for URLs, and a path that was made of a URL has one slash less
_USER = re.compile(
    r"""(://|https?:/)(?:[^\s/?#"'<>\\]*@|[^\s/:@"'<>,\\]+:[^\s@"'<>,\\]*@)""",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"""([?&](?:[\w.-]*(?:token|passw(?:or)?d|secret|signature|credential|api[_-]?key|access[_-]?key)[\w-]*|key|pwd|sig|auth)=)[^\s&#"'<>\\]+""",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"""(\b(?:proxy-)?authorization\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?(?:(?:bearer|basic|digest|token)\s+)?)[^\s"',;\\]+""",
    re.IGNORECASE,
)


def hide_credentials(text: str) -> str:
    """The text with a mask for the user and password of each URL, for values of a query that are called token, key or the like, and
    for what follows `Authorization:`."""
    if ":/" in text:
        text = _QUERY.sub(rf"\g<1>{MASK}", _USER.sub(rf"\g<1>{MASK}@", text))
    # most texts have neither, and a look for a word costs less than a pattern
    return _HEADER.sub(rf"\g<1>{MASK}", text) if "uthorization" in text or "UTHORIZATION" in text else text


class Masker:
    """Masks what a peer repeats of the secrets that it got. `secrets`: "" among them are left out.

    A secret is found as it is and as labels, JSON and URLs write it.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        self._patterns = [
            re.compile(re.escape(form), re.IGNORECASE) for secret in self._secrets for form in _forms(secret)
        ]
        # as the bytes of a body have it, and whether it may be a part of a longer text there
        self._bodies = [
            (form.encode(), len(secret) >= SHORTEST_PART_OF_A_TEXT)
            for secret in self._secrets
            for form in _forms(secret)
        ]
        self._bare = [
            secret.encode()
            for secret in self._secrets
            if len(secret) >= _SHORTEST_BARE and any(character.isalpha() for character in secret)
        ]

    def mask_text(self, text: str) -> str:
        """A message with each secret masked, in any case (a host name comes back in lower case).

        Where the text was cut inside a secret, the part at its end is masked too.
        """
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        for secret in self._secrets:
            for size in range(min(len(secret), len(text)), _SHORTEST_CUT - 1, -1):
                if text.endswith(secret[:size]):
                    return text[:-size] + MASK
        return text

    def mask_body(self, body: bytes) -> bytes:
        """A page or JSON document with each secret masked in the texts between double quotes: label values, JSON strings.

        Outside them only one that no name of a series can be by chance. The same object where there is none, as in nearly every body.
        """
        forms = [(form, part) for form, part in self._bodies if form in body]
        if not forms:
            return body

        def mask(match: re.Match[bytes]) -> bytes:
            text = match[0]
            for form, part in forms:
                if part:
                    text = text.replace(form, MASK.encode())
                elif text == b'"' + form + b'"':
                    return f'"{MASK}"'.encode()
            return text

        masked = _QUOTED.sub(mask, body)
        for secret in self._bare:
            masked = masked.replace(secret, _BARE_MASK)
        return masked


def secrets_of_url(url: str) -> tuple[str, ...]:
    """What tells a URL that is a secret as a whole, as a webhook's is: with and without its query, and what stands behind its host.

    A secret that is no URL stays as it is.
    """
    scheme, _, rest = url.partition("://")
    host, slash, behind = rest.partition("/")
    bare = url.partition("?")[0]
    path = f"/{behind}" if slash and len(behind) >= SHORTEST_PART_OF_A_TEXT else ""
    return (url, bare, path, path.partition("?")[0]) if scheme and host else (url,)


def _forms(secret: str) -> list[str]:
    """A secret as it is, between the quotes of a label and of JSON, and in a URL."""
    label = secret.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    written = json.dumps(secret)[1:-1]
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    forms = (secret, label, plain, written, written.replace("/", r"\/"), _percent_encoded(secret))
    # the longest first: of one that begins with a quote the bare form is the end of the escaped one, whose backslash would stay
    return sorted(dict.fromkeys(form for form in forms if form), key=len, reverse=True)


def _percent_encoded(text: str) -> str:
    return "".join(chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in text.encode(errors="replace"))
