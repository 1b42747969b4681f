"""A listener of the PostgreSQL wire in this process, and a client that sends whatever bytes it is told to."""

import asyncio
import base64
import hashlib
import hmac
import socket
import struct
import threading
from contextlib import contextmanager

from hubbub.server.pgwire.listener import WireListener
from server.hospital import PASSWORD


@contextmanager
def running_listener(service, tls=None, **options):
    """Listen on a free port of loopback, in a thread of its own; the port is the value."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listener = WireListener(service, tls, **options)

    def wait(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    port = wait(listener.start("127.0.0.1", 0))
    try:
        yield port
    finally:
        wait(listener.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def url(port, user="ada", database="visits", epsilon="0.01"):
    password = PASSWORD.replace(" ", "%20")
    options = f"?options=-c%20hubbub.epsilon%3D{epsilon}" if epsilon else ""
    return f"postgresql://{user}:{password}@127.0.0.1:{port}/{database}{options}"


def message(kind, payload=b""):
    return kind + struct.pack(">i", len(payload) + 4) + payload


def text(*words):
    return b"".join(word.encode() + b"\0" for word in words)


def startup(user="ada", database="visits", **settings):
    words = [word for pair in settings.items() for word in pair]
    payload = struct.pack(">i", 3 << 16) + text("user", user, "database", database, *words) + b"\0"
    return struct.pack(">i", len(payload) + 4) + payload


def parse(sql, name="", types=()):
    return message(b"P", text(name, sql) + struct.pack(f">h{len(types)}i", len(types), *types))


def bind(portal="", name="", values=(), formats=(), results=()):
    out = text(portal, name) + struct.pack(f">h{len(formats)}h", len(formats), *formats)
    out += struct.pack(">h", len(values))
    for value in values:
        out += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return message(b"B", out + struct.pack(f">h{len(results)}h", len(results), *results))


def execute(portal="", limit=0):
    return message(b"E", text(portal) + struct.pack(">i", limit))


SYNC = message(b"S")


def query(sql):
    return message(b"Q", text(sql))


class RawClient:
    """A connection that is read message by message."""

    def __init__(self, port, timeout=30):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def read(self):
        """The next message as its type and its payload; None at the end."""
        try:
            kind = self.file.read(1)
            if not kind:
                return None
            (size,) = struct.unpack(">i", self.file.read(4))
            return kind, self.file.read(size - 4)
        except ConnectionError:
            return None

    def read_until(self, *kinds):
        """All messages up to one of these types, or to the end."""
        out = []
        while (one := self.read()) is not None:
            out.append(one)
            if one[0] in kinds:
                break
        return out

    def ask(self, *parts):
        """Send messages, and read up to ReadyForQuery."""
        self.send(*parts)
        return self.read_until(b"Z")

    def sign_in(self, user="ada", password=PASSWORD, **settings):
        """Sign in by SCRAM, in code that shares nothing with the server's; return the cancel key."""
        self.send(startup(user, settings.pop("database", "visits"), **settings))
        kind, payload = self.read()
        if kind != b"R" or payload[:4] != struct.pack(">i", 10):
            return kind, payload
        first = "n=,r=rOprNGfwEbeRWgbNEkqO"
        initial = f"n,,{first}".encode()
        self.send(message(b"p", text("SCRAM-SHA-256") + struct.pack(">i", len(initial)) + initial))
        kind, payload = self.read()
        if kind != b"R":
            return kind, payload
        challenge = payload[4:].decode()
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={fields['r']}"
        signed = f"{first},{challenge},{last}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        self.send(message(b"p", f"{last},p={proof}".encode()))
        kind, payload = self.read()
        if kind != b"R":
            return kind, payload
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        assert payload == struct.pack(">i", 12) + b"v=" + base64.b64encode(server)
        messages = self.read_until(b"Z", b"E")
        if messages[-1][0] == b"E":
            return messages[-1]
        return next(payload for kind, payload in messages if kind == b"K")


def fields_of(payload):
    """The fields of an error or a notice, by their letters."""
    return {part[:1].decode(): part[1:].decode() for part in payload.split(b"\0") if part}


def errors_in(messages):
    return [fields_of(payload) for kind, payload in messages if kind == b"E"]


def rows_in(messages):
    """The rows of text results."""
    out = []
    for kind, payload in messages:
        if kind != b"D":
            continue
        (count,) = struct.unpack_from(">h", payload)
        place, row = 2, []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", payload, place)
            place += 4
            row.append(None if size < 0 else payload[place : place + size].decode())
            place += max(size, 0)
        out.append(tuple(row))
    return out


def kinds_of(messages):
    return b"".join(kind for kind, _ in messages)
