"""The meeting point of ranks stands against strangers: it listens where it is told to, wants a proof, and waits for nobody."""

import contextlib
import secrets
import socket
import threading
import time
import types

import pytest

from wisp.distributed import _pmi, _world


class Meeting:
    def __init__(self, size, timeout=20.0, secret="ours"):
        self.listener = _world._server("127.0.0.1", 0, 16)
        self.port = self.listener.getsockname()[1]
        self.server = _pmi.Server(self.listener, size, timeout, secret)
        self.met = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        self.met = self.server.meet()
        if self.met:
            self.server.serve()

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        number = connection.makefile("r").readline().split()[1]
        return connection, number

    def come(self, rank, size, secret="ours"):
        connection, number = self.connect()
        words = [str(rank), str(size), "host", secrets.token_hex(4)]
        connection.sendall((" ".join(["wisp", *words, _pmi.proof(secret, number, *words)]) + "\n").encode())
        return connection


def line(connection):
    return connection.makefile("r").readline()


def silent(meeting):
    return meeting.connect()[0]


def says(what):
    def attack(meeting):
        connection = meeting.connect()[0]
        connection.sendall(what)
        return connection

    return attack


def endless(meeting):
    connection = meeting.connect()[0]
    try:
        for _ in range(64):
            connection.sendall(b"x" * 65536)
    except OSError:
        pass  # it was cut off
    return connection


def leaves(meeting):
    meeting.connect()[0].close()


STRANGERS = {
    "silent": silent,
    "leaves": leaves,
    "TLS": says(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\n"),
    "a put": says(b"cmd=put key=x\n"),
    "an old hello": says(b"wisp 0 2 host\n"),
    "no numbers": says("wisp ² x host y z\n".encode()),
    "endless": endless,
    "another secret": lambda meeting: meeting.come(0, 2, "theirs"),
    "a rank out of range": lambda meeting: meeting.come(7, 2),
    "a proof used again": says(f"wisp 0 2 host own {_pmi.proof('ours', 'number', '0', '2', 'host', 'own')}\n".encode()),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_do_not_disturb(name):
    meeting = Meeting(2)
    stranger = STRANGERS[name](meeting)  # noqa: F841  (kept open)
    first, second = meeting.come(0, 2), meeting.come(1, 2)
    assert line(first).startswith("go ") and line(second).startswith("go ")


def test_a_silent_connection_is_closed(monkeypatch):
    monkeypatch.setattr(_pmi, "PATIENCE", 0.3)
    meeting = Meeting(2)
    connection = silent(meeting)
    begin = time.monotonic()
    assert connection.recv(1) == b"" and time.monotonic() - begin < 10


def test_an_endless_hello_is_cut_off(monkeypatch):
    monkeypatch.setattr(_pmi, "PATIENCE", 1000)
    connection = endless(Meeting(2, timeout=1000.0))
    connection.settimeout(60)
    with contextlib.suppress(ConnectionError):  # what was sent is lost with the connection
        assert connection.recv(1) == b""


def test_ranks_that_disagree_are_told():
    meeting = Meeting(2)
    first, again = meeting.come(0, 2), meeting.come(0, 2)
    assert "two processes say that they are rank 0" in line(first)
    assert "two processes say that they are rank 0" in line(again)


def test_questions_without_sense():
    meeting = Meeting(1)
    connection = meeting.come(0, 1)
    file = connection.makefile("r")
    assert file.readline().startswith("go ")
    for request, reply in (
        (b"cmd=put key=x\n", "rc=-1"),
        (b"cmd=put value=1\n", "rc=-1"),
        (b"\xff\xfe\n", "not_supported"),
        (b"cmd=get key=x\n", "key_not_found"),
        (b"cmd=put key=x value=a b\n", "rc=0"),
        (b"cmd=get key=x\n", "value=a b"),
    ):
        connection.sendall(request)
        assert reply in file.readline()


def test_an_endless_question_ends(monkeypatch):
    monkeypatch.setattr(_pmi, "REQUEST", 1 << 16)
    meeting = Meeting(1)
    connection = meeting.come(0, 1)
    assert line(connection).startswith("go ")
    try:
        for _ in range(1024):
            connection.sendall(b"x" * 65536)
    except OSError:
        pass
    meeting.thread.join(20)
    assert not meeting.thread.is_alive()


def test_it_listens_where_it_is_told_to():
    with _world._server("localhost", 0, 1) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with _world._server("127.0.0.1", 0, 1) as first, pytest.raises(OSError):
        _world._server("127.0.0.1", first.getsockname()[1], 1)


def test_another_secret_is_an_error(monkeypatch):
    meeting = Meeting(2, secret="ours")
    monkeypatch.setenv("WISP_SECRET", "theirs")
    with pytest.raises(RuntimeError, match="WISP_SECRET"):
        _world._meet(1, 2, f"tcp://127.0.0.1:{meeting.port}", 5)


def test_another_mpi_that_did_not_ask_is_told_of(monkeypatch):
    """It would leave every rank alone, as rank 0 of 1, and training would go on without the others."""
    world = types.SimpleNamespace(rank=0, size=1)
    other = types.SimpleNamespace(COMM_WORLD=world, Get_library_version=lambda: "Open MPI v4")
    monkeypatch.setattr(_world, "_meet", lambda *_: None)
    monkeypatch.setattr(_world, "mpi", lambda: other)
    for name in (*_world._UNDER_MPI, "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match=r"rank 1 of 2 .*\(Open MPI v4\) made it rank 0 of 1.*MPICH"):
        _world._enter(1, 2, "env://", 5.0)
