"""Malformed messages: no crash, no hang, bounded memory, and nothing but errors before signing in."""

import asyncio
import contextlib
import random
import resource
import struct

import pytest

from hubbub.server.pgwire.catalog import Catalog
from hubbub.server.pgwire.messages import WireError
from hubbub.server.pgwire.query_routing import ServiceAnswers
from hubbub.server.pgwire.session import Session
from hubbub.server.pgwire.variables import Variables
from server.hospital import COUNT, PASSWORD, open_hospital
from server.wire import SYNC, bind, execute, message, parse, query, running_listener, startup, text

TEXTS = (
    *(
        "SELECT 1",
        "SELECT $1::int",
        COUNT,
        "SELECT relname FROM pg_class LIMIT $1",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
    ),
    *("SET hubbub.epsilon = 0.1", "SHOW ALL", "RESET ALL", "DECLARE c CURSOR FOR SELECT 1", "FETCH 1 FROM c"),
    *("CLOSE ALL", "DEALLOCATE ALL", "DISCARD ALL", "SAVEPOINT a", "ROLLBACK TO a", "", ";", "'", "/*", "$$"),
    *(
        "COPY (SELECT 1) TO STDOUT (FORMAT csv, HEADER)",
        "COPY (SELECT 1) TO STDOUT BINARY",
        "EXPLAIN SELECT 1",
    ),
    *(
        f"EXPLAIN {COUNT}",
        "SELECT '{1,2}'::int[]",
        "SELECT * FROM hubbub.budget",
        "SELECT (((((1)))))",
        "SET x.y=1",
    ),
)


def make_messages(draw):
    """A few messages, most of them well formed."""
    sql = draw.choice(TEXTS)
    if draw.random() < 0.2:
        place = draw.randrange(len(sql) + 1)
        sql = (
            sql[:place] + draw.choice(["\x00", "'", '"', "(", "$9", "é", ";", "--", "\\", "{"]) + sql[place:]
        )
    values = draw.choice([[], [b"1"], [None], [b"\x00\x00\x00\x01"], [b"x" * 100]])
    name = draw.choice(["", "a", "b"])
    return draw.choice(
        [
            query(sql),
            parse(sql, name, draw.choice([[], [23], [701], [1700], [1007], [99999]])),
            bind(name, name, values, draw.choice([[], [0], [1], [2]]), draw.choice([[], [0], [1], [1, 1]])),
            message(b"D", draw.choice([b"S", b"P", b"X"]) + text(name)),
            execute(name, draw.choice([0, 1, -1, 2**31 - 1])),
            message(b"C", draw.choice([b"S", b"P", b"X"]) + text(name)),
            SYNC,
            message(b"H"),
            message(b"F", b"\0" * 12),
            message(draw.choice([b"d", b"c", b"f", b"?", b"p"]), b"x"),
        ]
    )


def spoil(draw, raw):
    """The bytes with some changed, lost, repeated, or with another length."""
    out = bytearray(raw)
    how = draw.randrange(6)
    if how == 0 and out:
        for _ in range(draw.randrange(1, 4)):
            out[draw.randrange(len(out))] = draw.randrange(256)
    elif how == 1:
        del out[draw.randrange(len(out) + 1) :]
    elif how == 2 and len(out) >= 5:
        out[1:5] = struct.pack(">i", draw.choice([-1, 0, 3, 4, 5, 1 << 20, (1 << 20) + 5, 2**31 - 1]))
    elif how == 3:
        out += draw.randbytes(draw.randrange(20))
    return bytes(out)


class Writer:
    """Takes what is sent, and keeps its beginning and its length."""

    def __init__(self):
        self.head, self.size = b"", 0

    def write(self, raw):
        self.size += len(raw)
        if len(self.head) < 1 << 16:
            self.head += raw

    async def drain(self):
        await asyncio.sleep(0)


def types_in(raw):
    """The types of the messages in what was sent."""
    place, kinds = 0, []
    while place + 5 <= len(raw):
        kinds.append(raw[place : place + 1])
        place += 1 + struct.unpack_from(">i", raw, place + 1)[0]
    return kinds


async def converse(service, catalog, draw, count):
    """One session after it has signed in, and what it sends; the number of messages."""
    reader, writer = asyncio.StreamReader(), Writer()
    ada = service.auth.sign_in("ada", PASSWORD) if converse.principal is None else converse.principal
    converse.principal = ada
    answers = ServiceAnswers(service, ada, "visits", catalog)
    session = Session(reader, writer, answers, Variables("ada", "0.01"))
    number = draw.randrange(1, count)
    for _ in range(number):
        raw = make_messages(draw)
        reader.feed_data(spoil(draw, raw) if draw.random() < 0.15 else raw)
    reader.feed_eof()
    with contextlib.suppress(asyncio.IncompleteReadError, WireError):
        await asyncio.wait_for(session.run(), 60)
    assert set(types_in(writer.head)) <= {bytes([kind]) for kind in b"123CDEGHIKNRSTZcdnstv"}
    return number


converse.principal = None


def fuzz_sessions(service, total, seed):
    draw = random.Random(seed)
    catalog = Catalog("visits", service.describe(service.auth.sign_in("ada", PASSWORD), "visits").tables)

    async def main():
        sent = 0
        while sent < total:
            sent += await converse(service, catalog, draw, 40)

    asyncio.run(main())


def fuzz_strangers(port, total, seed):
    """Bytes of somebody who has not signed in: the answers are errors, or the first step of signing in."""
    draw = random.Random(seed)
    first = message(b"p", text("SCRAM-SHA-256") + struct.pack(">i", 14) + b"n,,n=,r=abcdef")
    last = message(b"p", b"c=biws,r=abcdef,p=" + b"A" * 43 + b"=")

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        parts = [startup(f"u{draw.randrange(10**9)}"), first, last, query(COUNT), parse(COUNT), SYNC]
        number = draw.randrange(1, len(parts))
        for part in parts[:number]:
            writer.write(spoil(draw, part) if draw.random() < 0.5 else part)
        with contextlib.suppress(OSError):
            writer.write_eof()
        try:
            kinds = types_in(await asyncio.wait_for(reader.read(), 60))
        except ConnectionError:  # closed while we were still writing
            kinds = []
        assert set(kinds) <= {b"R", b"E", b"N", b"v", b"S"}
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return number

    async def main():
        sent = 0
        while sent < total:
            sent += sum(await asyncio.gather(*(one() for _ in range(20))))

    asyncio.run(main())


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("fuzz") / "hospital", "requests_per_minute = 10000000")
    yield service
    service.close()


@pytest.mark.slow
def test_malformed_messages_crash_nothing(service, caplog):
    fuzz_sessions(service, 2000, seed=1)

    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.slow
def test_strangers_see_errors_only(service, caplog):
    with running_listener(service) as port:
        fuzz_strangers(port, 400, seed=2)

    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.long
def test_hundred_thousand_messages_crash_nothing_and_take_no_memory(service, caplog):
    fuzz_sessions(service, 5_000, seed=3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz_sessions(service, 90_000, seed=4)
    with running_listener(service) as port:
        fuzz_strangers(port, 10_000, seed=5)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert after - before < 200_000, "kilobytes"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
