"""The meeting point of ranks that nobody but their environment introduced: a small server in a process of its own.

It waits until all ranks have said hello, then answers the questions of MPICH's start-up (the text protocol PMI 1: a table of keys and
values, and a barrier) on the same connections. No data of the program passes here. Run by rank 0 as `python _pmi.py FD SIZE TIMEOUT`.

The port is open to whoever reaches it. So a connection is first given a number to prove with that it knows the secret of the ranks
(WISP_SECRET, which the launcher puts into their environment); until it has, it has a few seconds, one short line and no influence.
"""

import hashlib
import hmac
import os
import secrets
import select
import socket
import sys
import time

LINE = 1024  # bytes of a hello
REQUEST = 1 << 20  # bytes of a question of a rank, which is known by then
PATIENCE = 10.0  # seconds for a hello, and for taking in an answer
STRANGERS = 256  # connections at once that have proven nothing


def proof(secret, *words):
    """What only those who know the secret can say about some words."""
    return hmac.new(secret.encode(), " ".join(map(str, words)).encode(), hashlib.sha256).hexdigest()


class Server:
    """One connection per rank; single-threaded, so that no two answers interleave."""

    def __init__(self, listener, size, timeout, secret=""):
        self.listener, self.size, self.secret, self.deadline = listener, size, secret, time.monotonic() + timeout
        self.name = f"wisp_{os.getpid()}_{time.time_ns():x}"  # MPICH names its shared memory after it
        self.ranks, self.hosts, self.answers, self.table, self.waiting = {}, {}, {}, {}, []
        self.strangers = {}  # connection -> (the number it was given, what it has said so far, when it must have said it)

    def meet(self):
        """Accept every rank's hello; False (and every rank told) when some never came or two are the same."""
        while len(self.ranks) < self.size:
            now = time.monotonic()
            for connection in [c for c, (_, _, end) in self.strangers.items() if end <= now]:
                self.dismiss(connection)
            soonest = min([self.deadline, *(end for _, _, end in self.strangers.values())])
            ready = select.select([self.listener, *self.strangers, *self.ranks.values()], [], [], max(soonest - now, 0))[0]
            if time.monotonic() >= self.deadline:
                missing = [rank for rank in range(self.size) if rank not in self.ranks]
                return self.refuse(f"ranks {missing} of {self.size} have not come")
            for connection in ready:
                if connection is self.listener:
                    self.accept()
                elif connection in self.strangers:
                    why = self.hear(connection)
                    if why:
                        return self.refuse(why, connection)
                else:
                    gone = [rank for rank, other in self.ranks.items() if other is connection]
                    return self.refuse(f"rank {gone[0]} has left again")
        for connection in list(self.strangers):
            self.dismiss(connection)
        nodes = sorted(set(self.hosts.values()), key=list(self.hosts.values()).index)
        blocks = ",".join(f"({nodes.index(self.hosts[rank])},1,1)" for rank in range(self.size))
        self.table["PMI_process_mapping"] = f"(vector,{blocks})"
        for rank, connection in self.ranks.items():
            connection.sendall(f"go {self.answers[rank]}\n".encode())
        return True

    def accept(self):
        try:
            connection = self.listener.accept()[0]
        except OSError:
            return
        if len(self.strangers) >= STRANGERS:
            self.dismiss(next(iter(self.strangers)))
        number = secrets.token_hex(16)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(PATIENCE)
            connection.sendall(f"wisp {number}\n".encode())  # fits into the buffer of a new connection
        except OSError:
            connection.close()
            return
        self.strangers[connection] = (number, b"", time.monotonic() + PATIENCE)

    def dismiss(self, connection):
        del self.strangers[connection]
        connection.close()

    def hear(self, connection):
        """What a stranger says. One that proves to be a rank becomes one; if it shows that the ranks can't meet, the reason."""
        number, said, end = self.strangers[connection]
        try:
            more = connection.recv(LINE)
        except OSError:
            more = b""
        said += more
        if not more or len(said) > LINE:
            return self.dismiss(connection)
        if not said.endswith(b"\n"):
            self.strangers[connection] = (number, said, end)
            return None
        words = said.decode("latin-1").split()
        if len(words) != 6 or words[0] != "wisp" or not hmac.compare_digest(words[5], proof(self.secret, number, *words[1:5])):
            return self.dismiss(connection)  # someone else's knock at the port
        rank, size, host, own = words[1:5]
        if not (rank.isdecimal() and size.isdecimal() and len(rank) < 10 and len(size) < 10):
            return self.dismiss(connection)
        rank, size = int(rank), int(size)
        del self.strangers[connection]
        if size != self.size:
            return f"rank {rank} says there are {size} ranks, rank 0 says {self.size}"
        if rank >= size:
            connection.close()
            return None
        if rank in self.ranks:
            return f"two processes say that they are rank {rank}"
        self.ranks[rank], self.hosts[rank], self.answers[rank] = connection, host, proof(self.secret, "go", own)
        return None

    def refuse(self, why, *more):
        for connection in (*self.ranks.values(), *more):
            try:
                connection.sendall(f"no {why}\n".encode())
            except OSError:
                pass
        return False

    def serve(self):
        """Answer until every rank is gone; when one goes without a farewell, all connections end."""
        open_, finished = {connection: b"" for connection in self.ranks.values()}, set()
        while open_:
            for connection in select.select(list(open_), [], [])[0]:
                try:
                    data = connection.recv(65536)
                except OSError:
                    data = b""
                if not data:
                    if connection not in finished:
                        return self.tell(connection)
                    del open_[connection]
                    continue
                *lines, open_[connection] = (open_[connection] + data).split(b"\n")
                if len(open_[connection]) > REQUEST:
                    return self.tell(connection)
                for line in lines:
                    try:
                        self.answer(connection, line.decode(errors="replace"), finished)
                    except OSError:
                        if connection not in finished:
                            return self.tell(connection)

    def tell(self, lost):
        """Who is gone; the connections end with this process."""
        rank = next(rank for rank, connection in self.ranks.items() if connection is lost)
        for connection in self.ranks.values():
            try:
                connection.sendall(f"gone {rank}\n".encode())
            except OSError:
                pass

    def answer(self, connection, line, finished):
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        command, key = words.get("cmd"), words.get("key")
        if command == "put":
            _, given, value = line.partition(" value=")
            if key and given:
                self.table[key] = value
            reply = "cmd=put_result rc=0 msg=success" if key and given else "cmd=put_result rc=-1 msg=no_key_or_value"
        elif command == "get":
            reply = (
                f"cmd=get_result rc=0 msg=success value={self.table[key]}"
                if key in self.table
                else "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            )
        elif command == "barrier_in":
            self.waiting.append(connection)
            if len(self.waiting) == self.size:
                for other in self.waiting:
                    other.sendall(b"cmd=barrier_out rc=0\n")
                self.waiting = []
            return
        elif command == "abort":
            raise OSError("a rank called abort")
        else:
            if command == "finalize":
                finished.add(connection)
            reply = {
                "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
                "get_maxes": "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
                "get_appnum": "cmd=appnum rc=0 appnum=0",
                "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self.name}",
                "get_universe_size": f"cmd=universe_size rc=0 size={self.size}",
                "finalize": "cmd=finalize_ack rc=0",
            }.get(command, f"cmd={command} rc=-1 msg=not_supported")
        connection.sendall((reply + "\n").encode())


def main():
    descriptor, size, timeout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    server = Server(socket.socket(fileno=descriptor), size, timeout, os.environ.get("WISP_SECRET", ""))
    os.set_blocking(descriptor, True)
    if server.meet():
        server.listener.close()
        server.serve()


if __name__ == "__main__":
    main()
