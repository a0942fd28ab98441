"""The meeting point of ranks that nobody but their environment introduced: a small server in a process of its own.

It waits until all ranks have said hello, then answers the questions of MPICH's start-up (the text protocol PMI 1: a table of keys and
values, and a barrier) on the same connections. No data of the program passes here. Run by rank 0 as `python _pmi.py FD SIZE TIMEOUT`.
"""

import os
import select
import socket
import sys
import time


class Server:
    """One connection per rank; single-threaded, so that no two answers interleave."""

    def __init__(self, listener, size, timeout):
        self.listener, self.size, self.deadline = listener, size, time.monotonic() + timeout
        self.name = f"wisp_{os.getpid()}_{time.time_ns():x}"  # MPICH names its shared memory after it
        self.ranks, self.hosts, self.table, self.waiting = {}, {}, {}, []

    def meet(self):
        """Accept every rank's hello; False (and every rank told) when some never came or two are the same."""
        while len(self.ranks) < self.size:
            left = self.deadline - time.monotonic()
            ready = select.select([self.listener, *self.ranks.values()], [], [], max(left, 0))[0]
            if not ready:
                missing = [rank for rank in range(self.size) if rank not in self.ranks]
                return self.refuse(f"ranks {missing} of {self.size} have not come")
            for connection in ready:
                if connection is not self.listener:
                    gone = [rank for rank, other in self.ranks.items() if other is connection]
                    return self.refuse(f"rank {gone[0]} has left again")
                connection = self.listener.accept()[0]
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                words = connection.makefile("r").readline().split()
                if len(words) != 4 or words[0] != "wisp":
                    connection.close()  # someone else's knock at the port
                    continue
                rank, size, host = int(words[1]), int(words[2]), words[3]
                if size != self.size:
                    return self.refuse(f"rank {rank} says there are {size} ranks, rank 0 says {self.size}", connection)
                if rank in self.ranks:
                    return self.refuse(f"two processes say that they are rank {rank}", connection)
                self.ranks[rank], self.hosts[rank] = connection, host
        nodes = sorted(set(self.hosts.values()), key=list(self.hosts.values()).index)
        blocks = ",".join(f"({nodes.index(self.hosts[rank])},1,1)" for rank in range(self.size))
        self.table["PMI_process_mapping"] = f"(vector,{blocks})"
        for connection in self.ranks.values():
            connection.sendall(b"go\n")
        return True

    def refuse(self, why, *more):
        for connection in (*self.ranks.values(), *more):
            connection.sendall(f"no {why}\n".encode())
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
                for line in lines:
                    try:
                        self.answer(connection, line.decode(), finished)
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
            self.table[key] = line.split(" value=", 1)[1]
            reply = "cmd=put_result rc=0 msg=success"
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
    server = Server(socket.socket(fileno=descriptor), size, timeout)
    os.set_blocking(descriptor, True)
    if server.meet():
        server.listener.close()
        server.serve()


if __name__ == "__main__":
    main()
