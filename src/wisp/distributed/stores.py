"""Stores: small tables of keys and bytes that processes share, for meeting and agreeing.

All of them are one table with the same few operations (`_Table`), which a store brings to where the table is: this process, a file that
is locked while it changes, or a thread of the master's process. Waiting is asking again.
"""

import datetime
import fcntl
import json
import os
import secrets
import socket
import struct
import threading
import time

from wisp.distributed import _pmi
from wisp.distributed._pmi import proof
from wisp.distributed._work import DistNetworkError, DistStoreError

__all__ = ["Store", "HashStore", "FileStore", "TCPStore", "PrefixStore"]

_MOST = 64 << 20  # bytes of one message


def _bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def _keys(operation, words):
    """How many of an operation's words are keys: all of `count`'s, the first of any other."""
    return len(words) if operation == "count" else 1


class _Table(dict):
    """The operations of a store; each is one change that nothing comes between."""

    def set_(self, key, value):
        self[key] = value

    def read(self, key):
        return self.get(key)

    def add(self, key, amount):
        number = int(self.get(key, b"0")) + int(amount)
        self[key] = str(number).encode()
        return self[key]

    def append(self, key, value):
        self[key] = self.get(key, b"") + value

    def compare_set(self, key, expected, desired):
        if self.get(key) == expected or (key not in self and not expected):
            self[key] = desired
        return self.get(key, expected)

    def remove(self, key):
        return b"1" if self.pop(key, None) is not None else b"0"

    def count(self, *keys):
        return str(sum(key in self for key in keys) if keys else len(self)).encode()

    def do(self, operation, *words):
        """An operation by its name."""
        if operation not in ("set_", "read", "add", "append", "compare_set", "remove", "count"):
            raise ValueError(f"a store has no operation {operation!r}")
        keys = _keys(operation, words)
        return getattr(self, operation)(*(word.decode() for word in words[:keys]), *words[keys:])


class Store:
    """A table of keys and bytes that processes share. `get` and `wait` wait for keys, at most for `timeout`.

    >>> import wisp
    >>> store = wisp.distributed.HashStore()
    >>> store.set("color", "green")
    >>> store.get("color"), store.add("visits", 2), store.check(["color", "shape"])
    (b'green', 2, False)
    """

    _timeout = datetime.timedelta(seconds=300)

    def _do(self, operation, *words):
        raise NotImplementedError(f"{type(self).__name__}: a store is a HashStore, a FileStore, a TCPStore or a PrefixStore")

    timeout = property(lambda self: self._timeout, doc="How long `get` and `wait` wait.")

    def set_timeout(self, timeout):
        """How long `get` and `wait` wait from now on: a timedelta."""
        self._timeout = timeout

    def set(self, key, value):
        """Writes a value: text or bytes."""
        self._do("set_", _bytes(key), _bytes(value))

    def get(self, key):
        """The value of a key as bytes; waits until there is one."""
        self.wait([key])
        return self._do("read", _bytes(key))

    def add(self, key, amount):
        """Adds to a counter, which begins at 0, and returns it."""
        return int(self._do("add", _bytes(key), str(int(amount)).encode()))

    def append(self, key, value):
        """Puts bytes behind those of a key."""
        self._do("append", _bytes(key), _bytes(value))

    def compare_set(self, key, expected_value, desired_value):
        """Writes `desired_value` if the key has `expected_value` (or, where that is empty, no value); what it has now."""
        return self._do("compare_set", _bytes(key), _bytes(expected_value), _bytes(desired_value))

    def delete_key(self, key):
        """Forgets a key; whether there was one."""
        return self._do("remove", _bytes(key)) == b"1"

    def num_keys(self):
        """How many keys there are."""
        return int(self._do("count"))

    def check(self, keys):
        """Whether all of these keys have values."""
        return not keys or int(self._do("count", *map(_bytes, keys))) == len(keys)

    def wait(self, keys, timeout=None):
        """Waits until all of these keys have values."""
        patience = (self._timeout if timeout is None else timeout).total_seconds()
        end, pause = time.monotonic() + patience, 0.0005
        while not self.check(keys):
            if time.monotonic() >= end:
                missing = [key for key in keys if not self.check([key])]
                raise DistStoreError(f"{type(self).__name__}: wait timeout after {patience * 1000:.0f}ms, keys: /{', /'.join(missing)}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def multi_get(self, keys):
        """The values of several keys; waits for all of them."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys, values):
        """Writes several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self):
        """True: `append`, `multi_get` and `multi_set` are there."""
        return True


class HashStore(Store):
    """A store within this process, for its threads.

    >>> import wisp
    >>> wisp.distributed.HashStore().num_keys()
    0
    """

    def __init__(self):
        self._table, self._lock = _Table(), threading.Lock()

    def _do(self, operation, *words):
        with self._lock:
            return self._table.do(operation, *words)


class FileStore(Store):
    """A store in a file, for processes that see the same folder. The file stays when they end.

    >>> import wisp
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> wisp.distributed.FileStore(folder + "/store", 2).set("color", "green")
    >>> wisp.distributed.FileStore(folder + "/store", 2).get("color")
    b'green'
    """

    def __init__(self, file_name, world_size=-1):
        self.path, self.world_size = os.fspath(file_name), world_size
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _do(self, operation, *words):
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read()
            old = json.loads(text) if text else {}
            table = _Table({key: value.encode("latin-1") for key, value in old.items()})
            result = table.do(operation, *words)
            if operation not in ("read", "count"):
                file.seek(0)
                file.write(json.dumps({key: value.decode("latin-1") for key, value in table.items()}).encode())
                file.truncate()
            return result


class TCPStore(Store):
    """A store in the process of the master, which the others reach by its address. With `world_size`, everybody waits for all.

    >>> import wisp
    >>> from datetime import timedelta
    >>> master = wisp.distributed.TCPStore("127.0.0.1", 0, is_master=True)
    >>> client = wisp.distributed.TCPStore("127.0.0.1", master.port, timeout=timedelta(seconds=10))
    >>> client.set("color", "green")
    >>> master.get("color")
    b'green'
    """

    def __init__(
        self,
        host_name,
        port=29500,
        world_size=None,
        is_master=False,
        timeout=Store._timeout,
        wait_for_workers=True,
        multi_tenant=False,
        master_listen_fd=None,
        use_libuv=True,
    ):
        self.host, self._timeout, self._server = host_name, timeout, None
        if is_master:
            listener = socket.socket(fileno=master_listen_fd) if master_listen_fd is not None else socket.create_server((host_name, port))
            self._server, port = _Server(listener), listener.getsockname()[1]
        self.port, self._lock = port, threading.Lock()
        self._connection = self._connect()
        if world_size is not None and world_size > 0 and wait_for_workers:
            came, end = self.add("wisp/came", 1), time.monotonic() + timeout.total_seconds()
            while came < world_size:
                if time.monotonic() >= end:
                    raise DistStoreError(f"TCPStore: {came} of {world_size} processes came to {self.host}:{self.port} in time")
                time.sleep(0.005)
                came = self.add("wisp/came", 0)

    def _connect(self):
        end = time.monotonic() + self._timeout.total_seconds()
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), timeout=self._timeout.total_seconds())
                break
            except OSError as error:
                if time.monotonic() >= end:
                    message = f"TCPStore: no master answers at {self.host}:{self.port} ({error})"
                    raise DistNetworkError(message) from None
                time.sleep(0.05)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secret, own = os.environ.get("WISP_SECRET", ""), secrets.token_hex(16)
        try:
            (number,) = _receive(connection, _pmi.LINE, end)
            _send(connection, own.encode(), proof(secret, number.decode(), own).encode())
            (answer,) = _receive(connection, _pmi.LINE, end)
            known = secrets.compare_digest(answer, proof(secret, "go", own).encode())
        except (OSError, ValueError, struct.error):
            known = False
        if not known:  # what it says is believed later on, so it has to prove that it knows the secret, too
            connection.close()
            raise DistNetworkError(
                f"TCPStore: what answers at {self.host}:{self.port} is no master whose WISP_SECRET is that of this process"
            )
        connection.settimeout(self._timeout.total_seconds())
        return connection

    def _do(self, operation, *words):
        with self._lock:
            _send(self._connection, operation.encode(), *words)
            answer = _receive(self._connection)
        return answer[0] if answer else None


class _Server:
    """The master's side: a thread for whoever has proven to know the secret of the ranks. Until then a connection has PATIENCE seconds and
    a short line, and the oldest of too many goes."""

    def __init__(self, listener):
        self.table, self.lock, self.listener, self.strangers = _Table(), threading.Lock(), listener, {}
        self.secret = os.environ.get("WISP_SECRET", "")  # as it is now: a process group may choose one later
        threading.Thread(target=self.accept, name="wisp store", daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                if len(self.strangers) >= _pmi.STRANGERS:
                    oldest = next(iter(self.strangers))
                    del self.strangers[oldest]
                    _end(oldest)
                self.strangers[connection] = True
            threading.Thread(target=self.serve, args=(connection,), name="wisp store", daemon=True).start()

    def serve(self, connection):
        try:
            with connection:
                try:
                    if not self.knows(connection):
                        return
                finally:
                    with self.lock:
                        self.strangers.pop(connection, None)
                connection.settimeout(None)
                while True:
                    operation, *words = _receive(connection)
                    with self.lock:
                        result = self.table.do(operation.decode(), *words)
                    _send(connection, *([] if result is None else [result]))
        except (OSError, ValueError, TypeError, struct.error):
            return  # it has left, or says what no store says

    def knows(self, connection):
        """Whether the other side knows the secret; if so, it is told that this side does."""
        number = secrets.token_hex(16)
        connection.settimeout(_pmi.PATIENCE)
        _send(connection, number.encode())
        own, answer = _receive(connection, _pmi.LINE, time.monotonic() + _pmi.PATIENCE)
        if not secrets.compare_digest(answer, proof(self.secret, number, own.decode()).encode()):
            return False
        _send(connection, proof(self.secret, "go", own.decode()).encode())
        return True

    def close(self):
        """Listens no more; those who came stay."""
        _end(self.listener)
        self.listener.close()


def _end(connection):
    """Whoever waits at it wakes up."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _send(connection, *words):
    body = b"".join(struct.pack("<I", len(word)) + word for word in words)
    connection.sendall(struct.pack("<I", len(body)) + body)


def _receive(connection, most=_MOST, end=None):
    (length,) = struct.unpack("<I", _exactly(connection, 4, end))
    if length > most:
        raise ValueError(f"a message of {length} bytes")
    body, words, at = _exactly(connection, length, end), [], 0
    while at < length:
        (size,) = struct.unpack_from("<I", body, at)
        words.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return words


def _exactly(connection, length, end=None):
    parts = []
    while length:
        if end is not None:  # for all of it: a byte now and then does not buy time
            connection.settimeout(max(end - time.monotonic(), 0.001))
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise ConnectionError("the store's other side has left")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class PrefixStore(Store):
    """Another store, whose keys here begin with `prefix`.

    >>> import wisp
    >>> store = wisp.distributed.HashStore()
    >>> wisp.distributed.PrefixStore("a", store).set("x", "1")
    >>> store.get("a/x")
    b'1'
    """

    def __init__(self, prefix, store):
        self.prefix, self.underlying_store, self._timeout = prefix, store, store.timeout

    def _do(self, operation, *words):
        keys = _keys(operation, words)
        return self.underlying_store._do(operation, *(f"{self.prefix}/".encode() + key for key in words[:keys]), *words[keys:])
