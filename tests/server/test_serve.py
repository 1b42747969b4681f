"""`hubbub serve` and `hubbub user`, as processes and as commands."""

import json
import re
import shlex
import socket
import ssl
import subprocess
import urllib.request
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from hubbub.cli.all_commands import app
from hubbub.config import read_config
from hubbub.errors import InvalidInput
from hubbub.server.certificates import find_certificate, make_certificate
from hubbub.server.settings import ServerSettings, read_settings
from server.hospital import write_hospital
from server.processes import Process


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# Settings


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("colour = 1", "server.colour is not known"),
        ("port = true", "server.port is not a whole number"),
        ("port = 70000", "server.port is not between"),
        ('host = ""', "server.host is not a text"),
        ("slots = 0", "server.slots is not between"),
        ("epsilon = 0", "in server.epsilon"),
        ('allowed_hosts = "x"', "in server.allowed_hosts"),
        ('certificate = "x.pem"', "without its key"),
    ],
)
def test_server_sections_are_read_strictly(tmp_path, entry, message):
    is_slots = "slots" in entry
    file = write_hospital(tmp_path, "" if is_slots else entry, slots=int(not is_slots))

    with pytest.raises(InvalidInput, match=message):
        read_settings(read_config(file))


@pytest.mark.parametrize("deadlines", ["[0]", "[2, 1]", "[1, 1]", "1", '["x"]'])
def test_deadlines_are_seconds_in_order(tmp_path, deadlines):
    with pytest.raises(InvalidInput, match=r"server\.deadlines"):
        read_settings(read_config(write_hospital(tmp_path, deadlines=deadlines)))


def test_addresses_beyond_this_machine_need_a_certificate(tmp_path):
    settings = ServerSettings(host="0.0.0.0", state=str(tmp_path / "server.db"))  # noqa: S104 - it is refused

    with pytest.raises(InvalidInput, match="without a certificate"):
        find_certificate(settings)


def test_certificates_of_the_server_are_for_this_machine_and_private(tmp_path):
    certificate = make_certificate(tmp_path / "server.pem")

    assert certificate.key.stat().st_mode & 0o777 == 0o600
    assert certificate.context().minimum_version == ssl.TLSVersion.TLSv1_2
    before = certificate.certificate.read_bytes()
    assert make_certificate(tmp_path / "server.pem").certificate.read_bytes() == before


def test_certificates_of_the_server_are_valid_by_another_implementation(tmp_path):
    certificates = [make_certificate(tmp_path / f"{number}.pem") for number in range(3)]

    for each in certificates:
        certificate = x509.load_pem_x509_certificate(each.certificate.read_bytes())
        key = serialization.load_pem_private_key(each.key.read_bytes(), None)
        certificate.verify_directly_issued_by(certificate)
        assert key.public_key() == certificate.public_key()
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["localhost"]
        assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert [usage.value.digital_signature, usage.value.key_cert_sign, usage.value.crl_sign] == [
            True, True, False,
        ]  # fmt: skip
        assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= timedelta(days=398)
    assert len({each.key.read_bytes() for each in certificates}) == 3


def test_certificates_that_end_soon_or_are_broken_are_made_anew(tmp_path, monkeypatch):
    certificate = make_certificate(tmp_path / "server.pem")
    before = certificate.certificate.read_bytes()
    certificate.certificate.write_bytes(before[:200])
    again = make_certificate(tmp_path / "server.pem").certificate.read_bytes()
    assert again != before

    monkeypatch.setattr(ssl, "cert_time_to_seconds", lambda _: 0)  # it ended long ago
    assert make_certificate(tmp_path / "server.pem").certificate.read_bytes() != again


# People


def test_people_are_added_listed_and_locked(tmp_path):
    config = write_hospital(tmp_path)
    process = run("user", "add", "olga", "--role", "owner", "--config", config)
    assert re.search(r"password, shown once: [0-9a-f]{24}", process)
    run("user", "add", "ada", "--epsilon", "1", "--config", config)

    assert run("user", "list", "--config", config) == "ada: analyst of visits\nolga: owner of visits\n"
    assert "hub_" in run("user", "token", "ada", "--config", config)
    run("user", "role", "ada", "reader", "--config", config)
    run("user", "lock", "olga", "--config", config)
    assert run("user", "list", "--config", config) == "ada: reader of visits\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "ada", "--role", "king"], "role"),
        (["add", "Ada Lovelace"], "name of the user"),
        (["add", "ada", "--dataset", "nothing"], "dataset is not declared"),
        (["lock", "nobody"], "no such user"),
        (["token", "nobody"], "no such user"),
    ],
)
def test_wrong_commands_about_people_are_refused(tmp_path, arguments, message):
    with pytest.raises(InvalidInput, match=message):
        run("user", *arguments, "--config", write_hospital(tmp_path))


# Processes


@pytest.mark.slow
def test_a_server_answers_over_tls_and_stops_gracefully(tmp_path):
    config = write_hospital(tmp_path)
    run("user", "add", "olga", "--role", "owner", "--config", config)
    token = run("user", "token", "olga", "--role", "owner", "--config", config).split()[-1]
    server = Process("serve", config, "--port", "0", "--wire-port", "0")
    try:
        [address] = [line.split()[-1] for line in server.read_until("certificate:") if "REST" in line]
        trust = ssl.create_default_context(cafile=tmp_path / "server.pem")
        request = urllib.request.Request(  # noqa: S310 - our own address
            f"{address}/api/v1/datasets", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, context=trust) as answer:  # noqa: S310
            assert json.loads(answer.read())["datasets"][0]["role"] == "owner"
            assert answer.headers["strict-transport-security"]
    finally:
        code, errors = server.stop()
    assert code == 0
    assert token not in errors


@pytest.mark.slow
def test_the_commands_of_the_demo_work_as_they_stand():
    server = Process("serve", "--demo", "--port", free_port(), "--wire-port", free_port())
    try:
        lines = server.read_until("Ctrl-C")
        commands = [line for line in lines if line.startswith(("psql ", "curl "))]
        assert [command.split()[0] for command in commands] == ["psql", "curl"]
        for command in commands:
            process = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
            assert process.returncode == 0, process.stderr
            assert "North" in process.stdout, process.stdout
    finally:
        code, _ = server.stop()
    assert code == 0
