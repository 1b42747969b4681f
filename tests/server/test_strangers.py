"""What somebody tries who has no account: keep others out by connections that say nothing, or slowly."""

import asyncio
import socket
import ssl

import psycopg
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.hospital import COUNT, open_hospital
from server.processes import serving
from server.wire import RawClient, errors_in, running_listener, url


@pytest.fixture
def service(tmp_path):
    return open_hospital(tmp_path / "hospital", "port = 0\nwire_port = 0")


def connect(addresses):
    trust = ssl.create_default_context(cafile=addresses.certificate.certificate)
    plain = socket.create_connection((addresses.host, addresses.port), timeout=30)
    return trust.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "is_kept_alive"),
    [(b"", False), (b"GET / HTTP/1.1\r\nHost: l", False), (b"GET / HTTP/1.1\r\nHost: l", True)],
)
def test_connections_without_a_whole_request_are_closed(service, message, is_kept_alive):
    with serving(service, header_seconds=0.5) as addresses, connect(addresses) as stranger:
        if is_kept_alive:
            stranger.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stranger.recv(1 << 16).startswith(b"HTTP/1.1 200")
        stranger.sendall(message)
        while stranger.recv(1 << 16):
            pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "length"), [(b"1.1", b"Content-Length: 5\r\n"), (b"1.0", b"Connection: keep-alive\r\n")]
)
def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_read(service, version, length):
    hidden = b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(service) as addresses, connect(addresses) as stranger:
        stranger.sendall(
            b"POST /sign-in HTTP/" + version + b"\r\nHost: localhost\r\n" + length + b""
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
        )
        answers = b"".join(iter(lambda: stranger.recv(1 << 16), b""))

    assert [line for line in answers.split(b"\r\n") if line.startswith(b"HTTP/1.1")] == [
        b"HTTP/1.1 400 Bad Request"
    ]


@pytest.mark.slow
def test_a_request_that_waits_for_its_answer_is_not_closed(service):
    with serving(service, header_seconds=0.7) as addresses, connect(addresses) as client:
        body = b"user=nobody&password=x&next=%2F"
        head = (
            f"POST /sign-in HTTP/1.1\r\nHost: localhost:{addresses.port}\r\nOrigin: {addresses.url}\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        client.sendall(head.encode())
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):  # longer than headers may take, nothing is said and nothing closed
            client.recv(1)
        client.settimeout(30)
        client.sendall(body)

        assert client.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.slow
def test_the_end_of_an_answer_does_not_wait_for_the_client(service, monkeypatch):
    delays, accept = [], H11Protocol.connection_made

    def look(self, transport):
        option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        delays.append(not option)
        accept(self, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", look)
    with serving(service) as addresses, connect(addresses):
        pass

    assert delays == [False]


@pytest.mark.slow
def test_two_hundred_clients_connect_at_once(service):
    async def ask(port):
        async with await psycopg.AsyncConnection.connect(url(port, epsilon="0.1")) as connection:
            return await (await connection.execute(COUNT)).fetchone()

    async def ask_all(port):
        return await asyncio.gather(*(ask(port) for _ in range(200)))

    with running_listener(service) as port:
        answers = asyncio.run(ask_all(port))

    assert len(set(answers)) == 1
    service.close()


@pytest.mark.slow
def test_one_user_leaves_connections_to_others(service):
    with running_listener(service) as port:
        clients = [RawClient(port) for _ in range(251)]
        try:
            outcomes = [client.sign_in("ada") for client in clients]
            assert errors_in([outcomes[-1]])[0]["C"] == "53300"
            with RawClient(port) as other:
                assert len(other.sign_in("bob")) == 8
        finally:
            for client in clients:
                client.__exit__()
    service.close()
