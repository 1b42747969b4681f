import os
import ssl
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from hubbub import noise
from hubbub.errors import Refused
from hubbub.noise import entropy
from hubbub.noise.entropy import random_bits, random_bytes
from internals import inject_bits
from noise.bits import Tape

pytestmark = pytest.mark.fresh_bits

# Two honest streams of 256 bits agree with probability 2^-256: no false alarm.


def _child(task):
    """What `task` returns in a forked child, as bytes."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads are the point here
        pid = os.fork()
    if pid == 0:
        try:
            os.write(theirs, task())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        output = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return output


def test_children_and_parent_have_separate_streams():
    random_bytes(64)  # the parent's generator is running before it forks
    streams = [_child(lambda: random_bytes(32)) for _ in range(4)]
    streams += [_child(lambda: _child(lambda: random_bytes(32))) for _ in range(2)]
    streams += [random_bytes(32) for _ in range(4)]
    assert {len(stream) for stream in streams} == {32}
    assert len(set(streams)) == len(streams)


def test_fork_does_not_repeat_samples():
    def draw():
        return noise.discrete_laplace(2**40, size=100).tobytes() + bytes(str(noise.geometric(2**48)), "ascii")

    draw()  # tables and generator are warm, and shared with the children
    draws = [_child(draw) for _ in range(3)] + [draw(), draw()]
    assert len(set(draws)) == len(draws)


def test_a_fork_from_a_thread_has_its_own_stream():
    streams = []

    def work():
        random_bytes(8)
        streams.extend([_child(lambda: random_bytes(32)), random_bytes(32)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(set(streams)) == 2


def test_threads_have_separate_streams():
    gate = threading.Barrier(8)

    def work(_):
        gate.wait()
        return [random_bytes(16) for _ in range(200)]

    with ThreadPoolExecutor(8) as pool:
        draws = [block for blocks in pool.map(work, range(8)) for block in blocks]
    assert len(set(draws)) == 1600


def test_threads_share_the_samplers_without_harm():
    gate = threading.Barrier(8)

    def work(_):
        gate.wait()  # all build the same table at once
        return noise.rounded_gaussian(17.25, size=1000).tobytes()

    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(work, range(8)))
    assert len(set(draws)) == 8


def test_bits_are_read_from_the_top():
    with inject_bits(Tape(b"\x01\x02\x03")):
        assert random_bits(24) == 0x010203
    with inject_bits(Tape(b"")):
        assert random_bits(0) == 0


def test_bytes_come_from_openssl(monkeypatch):
    monkeypatch.setattr(ssl, "RAND_bytes", lambda count: b"x" * count)
    assert random_bytes(5) == b"xxxxx"
    assert random_bytes(0) == b""


def test_a_request_beyond_a_c_int_is_made_in_parts(monkeypatch):
    assert 2 * entropy._MAX_BYTES <= 2**31
    calls = []

    def rand(count):
        calls.append(count)
        return bytes([len(calls)]) * count

    monkeypatch.setattr(ssl, "RAND_bytes", rand)
    monkeypatch.setattr(entropy, "_MAX_BYTES", 10)
    assert random_bytes(10) == b"\x01" * 10
    assert random_bytes(25) == b"\x02" * 10 + b"\x03" * 10 + b"\x04" * 5
    assert calls == [10, 10, 10, 5]


@pytest.mark.parametrize("count", [8, 25])
def test_failing_generator_is_an_error(monkeypatch, count):
    def broken(_):
        raise ssl.SSLError("not seeded")

    monkeypatch.setattr(ssl, "RAND_bytes", broken)
    monkeypatch.setattr(entropy, "_MAX_BYTES", 10)
    with pytest.raises(Refused, match="random generator failed") as caught:
        random_bytes(count)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert caught.value.why == "without fresh random bits nothing is hidden"
    assert caught.value.fix == "check that the operating system's entropy source works, then try again"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: noise.uniform(6),
        lambda: noise.uniform(6, size=3),
        lambda: noise.bernoulli(0.5),
        lambda: noise.bernoulli_exp(1, size=3),
        lambda: noise.geometric(3),
        lambda: noise.discrete_laplace(3, size=100),
        lambda: noise.discrete_laplace(300, size=100),
        lambda: noise.rounded_gaussian([3, 4]),
        lambda: noise.discrete_gaussian(3),
    ],
)
def test_no_sampler_goes_on_without_bits(monkeypatch, draw):
    def broken(_):
        raise ssl.SSLError

    monkeypatch.setattr(ssl, "RAND_bytes", broken)
    with pytest.raises(Refused):
        draw()


def test_injected_bits_end_with_their_context():
    with inject_bits(lambda count: b"a" * count):
        assert random_bytes(3) == b"aaa"
        with inject_bits(lambda count: b"b" * count):
            assert random_bytes(3) == b"bbb"
        assert random_bytes(3) == b"aaa"
    assert entropy._injected.get() is None
    with pytest.raises(ZeroDivisionError), inject_bits(lambda count: 1 // 0):
        random_bytes(1)
    assert entropy._injected.get() is None


def test_injected_bits_are_local_to_their_context():
    with inject_bits(lambda count: b"a" * count), ThreadPoolExecutor(1) as pool:
        # A thread of another context.
        assert pool.submit(entropy._injected.get).result() is None
        assert pool.submit(random_bytes, 32).result() != b"a" * 32


def test_bit_injection_is_not_public():
    assert entropy.__all__ == ["random_bits", "random_bytes"]
    assert "_inject_bits" not in dir(noise)
