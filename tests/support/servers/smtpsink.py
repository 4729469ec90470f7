"""A mail server on loopback that keeps what it is given: ESMTP with STARTTLS and AUTH (RFC 5321, 3207, 4954), for one client at a time."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage

from tests.support.waiting import PATIENCE_SECONDS


class SmtpSink:
    """`with SmtpSink(tls=context) as sink:`; `sink.mails` are those that arrived whole. `refuse`: a recipient that it does not know."""

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None, refuse: str = ""
    ) -> None:
        self._tls, self._login, self._refuse = tls, login, refuse
        self.mails: list[EmailMessage] = []
        self.encrypted: list[bool] = []
        self.recipients: list[list[str]] = []

    def __enter__(self) -> SmtpSink:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_SECONDS)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.settimeout(PATIENCE_SECONDS)
            with contextlib.suppress(OSError), contextlib.ExitStack() as open_:
                open_.callback(client.close)
                self._talk(client, open_)

    def _talk(self, client: socket.socket, open_: contextlib.ExitStack) -> None:
        encrypted, allowed = False, self._login is None
        to: list[str] = []
        client.sendall(b"220 sink\r\n")
        reader = open_.enter_context(client.makefile("rb"))
        while line := reader.readline():
            word, _, rest = line.decode().strip().partition(" ")
            match word.upper():
                case "EHLO":
                    offers = ["sink"]
                    offers += ["STARTTLS"] if self._tls and not encrypted else []
                    offers += ["AUTH PLAIN"] if self._login else []
                    marks = ["-"] * (len(offers) - 1) + [" "]
                    said = "".join(f"250{mark}{offer}\r\n" for mark, offer in zip(marks, offers, strict=True))
                case "STARTTLS":
                    client.sendall(b"220 go on\r\n")
                    client = open_.enter_context(self._tls.wrap_socket(client, server_side=True))
                    reader, encrypted = open_.enter_context(client.makefile("rb")), True
                    continue
                case "AUTH":
                    given = tuple(base64.b64decode(rest.split()[-1]).decode().split("\0")[1:])
                    allowed = given == self._login
                    # some servers repeat what they refuse
                    said = "235 welcome\r\n" if allowed else f"535 who are you, {given} or {rest.split()[-1]}\r\n"
                case "MAIL":
                    to, said = [], "250 ok\r\n" if allowed else "530 authenticate first\r\n"
                case "RCPT":
                    known = self._refuse not in rest if self._refuse else True
                    to += [rest.partition("<")[2].partition(">")[0]] if known else []
                    said = "250 ok\r\n" if known else "550 no such user\r\n"
                case "DATA":
                    client.sendall(b"354 go on\r\n")
                    lines = []
                    while (part := reader.readline()) not in (b".\r\n", b""):
                        lines.append(part.removeprefix(b"."))
                    found = message_from_bytes(b"".join(lines), policy=policy.default)
                    assert isinstance(found, EmailMessage)
                    self.mails.append(found)
                    self.encrypted.append(encrypted)
                    self.recipients.append(to)
                    said = "250 kept\r\n"
                case "QUIT":
                    client.sendall(b"221 bye\r\n")
                    return
                case _:
                    said = "250 ok\r\n"
            client.sendall(said.encode())
