"""Until when a certificate is valid: the standard library reads that of a peer's certificate only, and not of one's own."""

from __future__ import annotations

import calendar
import ssl
import time
from typing import NamedTuple

_VERSION, _UTC_TIME = 0xA0, 0x17
# two digits of the year: below 50 they are of this century (RFC 5280, section 4.1.2.5.1)
_CENTURY_FROM = 50


class _Field(NamedTuple):
    tag: int  # what it is
    content: bytes  # may be made of fields itself
    rest: bytes  # what follows it


def read_expiry(pem: str) -> float | None:
    """When the first certificate of a PEM text expires, in Unix seconds; None where there is none that can be read."""
    begin, end = pem.find(ssl.PEM_HEADER), pem.find(ssl.PEM_FOOTER)
    if begin < 0 or end < begin:
        return None
    try:
        body = _read(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(ssl.PEM_FOOTER)])).content
        fields = _read(body).content  # TBSCertificate: RFC 5280, section 4.1
        if fields[:1] == bytes([_VERSION]):
            fields = _read(fields).rest
        for _ in ("serial number", "signature algorithm", "issuer"):
            fields = _read(fields).rest
        return _read_time(_read(_read(_read(fields).content).rest))
    except (ValueError, IndexError):
        return None


def _read(data: bytes) -> _Field:
    """The first field of DER data. Raises IndexError and ValueError for what is none."""
    tag, length, at = data[0], data[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(data[2:at], "big")
    if at + length > len(data):
        raise ValueError("a field is longer than what holds it")
    return _Field(tag, data[at : at + length], data[at + length :])


def _read_time(field: _Field) -> float:
    text = field.content.decode("ascii")
    if field.tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < _CENTURY_FROM else "19") + text
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
