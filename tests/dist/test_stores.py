"""Stores: tables that processes share, and process groups that meet through one."""

import datetime
import socket
import subprocess
import sys
import threading
import time

import pytest

import wisp
import wisp.distributed as dist
from wisp.distributed import _pmi

SHORT = datetime.timedelta(seconds=0.1)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "file":
        return dist.FileStore(str(tmp_path / "store"), 1)
    if request.param == "tcp":
        return dist.TCPStore("127.0.0.1", 0, is_master=True)
    return dist.HashStore() if request.param == "hash" else dist.PrefixStore("p", dist.HashStore())


def test_operations(store):
    store.set("a", "1")
    store.set("b", b"\x00\xff")
    assert store.get("a") == b"1" and store.get("b") == b"\x00\xff" and store.num_keys() == 2
    assert store.add("n", 3) == 3 and store.add("n", -1) == 2 and store.get("n") == b"2"
    store.append("a", "23")
    assert store.get("a") == b"123" and store.check(["a", "b"]) and not store.check(["a", "c"])
    assert store.compare_set("a", "no", "x") == b"123" and store.compare_set("a", "123", "x") == b"x"
    assert store.compare_set("new", "", "y") == b"y" and store.compare_set("absent", "z", "y") == b"z"
    assert store.delete_key("a") and not store.delete_key("a") and not store.check(["a"])
    store.multi_set(["x", "y"], ["1", "2"])
    assert store.multi_get(["y", "x"]) == [b"2", b"1"]
    with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms, keys: /missing"):
        store.wait(["x", "missing"], SHORT)
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    with pytest.raises(dist.DistStoreError, match="missing"):
        store.get("missing")
    threading.Timer(0.05, lambda: store.set("later", "now")).start()
    store.set_timeout(datetime.timedelta(seconds=30))
    assert store.get("later") == b"now"


def test_threads_count_together(store):
    counted = []
    threads = [threading.Thread(target=lambda: counted.extend(store.add("n", 1) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counted) == list(range(1, 81))


def test_strangers_end_nothing(monkeypatch):
    monkeypatch.setenv("WISP_SECRET", "known")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    for said in (b"", b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", store.port)) as stranger:
            stranger.sendall(said)
    monkeypatch.setenv("WISP_SECRET", "guessed")
    with pytest.raises(dist.DistNetworkError, match="WISP_SECRET"):
        dist.TCPStore("127.0.0.1", store.port, timeout=datetime.timedelta(seconds=20))
    assert not store.check(["a"])
    store.set("b", "2")
    assert store.get("b") == b"2"


def test_the_master_proves_itself_too(monkeypatch):
    """A process that took the port of the master would otherwise tell the others whom to meet."""
    monkeypatch.setenv("WISP_SECRET", "known")
    for answer in (b"", b"\x05\0\0\0\x01\0\0\0x", b"\xff" * 64):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def impostor(listener=listener, answer=answer):
                connection = listener.accept()[0]
                with connection:
                    connection.sendall(b"\x05\0\0\0\x01\0\0\0n" + answer)
                    try:
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(4096):
                            pass
                    except OSError:
                        pass  # it went away at once

            thread = threading.Thread(target=impostor)
            thread.start()
            with pytest.raises(dist.DistNetworkError, match="no master"):
                dist.TCPStore("127.0.0.1", listener.getsockname()[1], timeout=datetime.timedelta(seconds=20))
            thread.join()


def test_strangers_have_one_deadline_and_few_places(monkeypatch):
    monkeypatch.setattr(_pmi, "PATIENCE", 0.5)
    monkeypatch.setattr(_pmi, "STRANGERS", 4)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with socket.create_connection(("127.0.0.1", store.port), timeout=30) as dripping:
        dripping.recv(64)
        try:
            for _ in range(200):  # a byte now and then: each comes in time, all of them do not
                dripping.sendall(b"\x40" if _ == 0 else b"\0")
                time.sleep(0.1)
        except OSError:
            pass
        assert _ < 199
    monkeypatch.setattr(_pmi, "PATIENCE", 60)
    silent = [socket.create_connection(("127.0.0.1", store.port), timeout=30) for _ in range(9)]
    for connection in silent[:5]:
        while connection.recv(64):  # its number, and then the end
            pass
    assert len(store._server.strangers) <= 4
    dist.TCPStore("127.0.0.1", store.port, timeout=datetime.timedelta(seconds=20)).set("a", "1")
    assert store.get("a") == b"1"
    for connection in silent:
        connection.close()


PROGRAM = """
import sys, wisp, wisp.distributed as dist
kind, place, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "file":
    store = dist.FileStore(place, 2)
else:
    store = dist.TCPStore("127.0.0.1", int(place), 2, is_master=rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
x = wisp.tensor([rank + 1.0])
dist.all_reduce(x)
assert x.item() == 3, x
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_process_groups_meet_through_a_store(kind, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    place = str(tmp_path / "store") if kind == "file" else str(port)
    ranks = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, kind, place, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


def test_what_a_group_needs_beside_a_store():
    store = dist.HashStore()
    with pytest.raises(ValueError, match="rank and world_size"):
        dist.init_process_group("gloo", store=store)
    with pytest.raises(ValueError, match="both init_method and store"):
        dist.init_process_group("gloo", init_method="env://", store=store, rank=0, world_size=1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert wisp.distributed.get_world_size() == 1
    dist.destroy_process_group()
