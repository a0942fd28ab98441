"""How a process comes into the world of MPI, and how it leaves it.

Under `mpiexec` MPI knows rank and size. Without it, the ranks find each other as PyTorch's do (RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT, or
the arguments of init_process_group): rank 0 starts the meeting point of _pmi.py and MPI starts over it. A world of one needs no MPI.
Ranks know each other by WISP_SECRET, which `wisp launch`, `multiprocessing.spawn` and Ray's Trainer make; between machines it is the
user's to set.
"""

import atexit
import errno
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

from wisp.distributed._alone import Alone
from wisp.distributed._board import Board
from wisp.distributed._pmi import proof

_UNDER_MPI = ("PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
comm = None  # the communicator of all ranks; lives until the process ends
board = None  # what every rank of this machine does
failed = False  # an error ends this process: don't wait for the others
_link = None  # the connection to the meeting point, on which it tells when a rank is gone
_listener = None  # where the ranks will meet, if this process said so beforehand


def mpi():
    """The module mpi4py.MPI, or an error that says how to get it."""
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # `_leave` does that, without hanging on ranks that are gone
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            "wisp.distributed: more than one process needs MPI, and it could not be loaded "
            f"({error}); `pip install wisp[mpi]` brings mpi4py and MPICH"
        ) from None
    return MPI


def enter(rank, size, init_method, timeout):
    """The communicator of all ranks. Rank and size may be -1: MPI or the environment says."""
    global comm, board
    if comm is None:
        comm = _enter(rank, size, init_method, timeout)
        board = Board(comm)
        if comm.size > 1:
            atexit.register(_leave)
            _hook_errors()
    elif (rank >= 0 and rank != comm.rank) or (size >= 0 and size != comm.size):
        raise RuntimeError(
            f"init_process_group: this process is rank {comm.rank} of {comm.size} already, and can't become rank {rank} of "
            f"{size}: MPI starts once in a process"
        )
    return comm


def _number(name):
    try:
        return int(os.environ.get(name, -1))
    except ValueError:
        raise ValueError(f"init_process_group: the environment variable {name}={os.environ[name]!r} is not a number") from None


def _enter(rank, size, init_method, timeout):
    loaded = sys.modules.get("mpi4py.MPI")
    if any(name in os.environ for name in _UNDER_MPI) or (loaded and loaded.Is_initialized() and loaded.COMM_WORLD.size > 1):
        world = mpi().COMM_WORLD
        for what, want, has in (
            ("rank", rank, world.rank),
            ("world_size", size, world.size),
            ("RANK", _number("RANK"), world.rank),
            ("WORLD_SIZE", _number("WORLD_SIZE"), world.size),
        ):
            if want >= 0 and want != has:
                raise ValueError(
                    f"init_process_group: {what} is {want}, but mpiexec started this process as rank {world.rank} of "
                    f"{world.size}; leave {what} away"
                )
        return world.Dup() if world.size > 1 else Alone()
    rank = _number("RANK") if rank < 0 else rank
    size = _number("WORLD_SIZE") if size < 0 else size
    if size < 0:
        raise ValueError(
            "init_process_group: Error initializing torch.distributed using env:// rendezvous: environment variable WORLD_SIZE "
            "expected, but not set; start the program with `wisp launch -n 2 script.py` or `mpiexec -n 2 python script.py`"
        )
    if rank < 0 and size == 1:
        rank = 0
    if rank < 0:
        raise ValueError(
            "init_process_group: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
            "expected, but not set"
        )
    if rank >= size:
        raise ValueError(f"init_process_group: there is no rank {rank} in a world of {size} (ranks are 0 to {size - 1})")
    if size == 1:
        return Alone()
    if loaded and loaded.Is_initialized():
        raise RuntimeError(
            "init_process_group: mpi4py started MPI in this process alone, before the other ranks were known; import mpi4py.MPI after "
            "init_process_group, or start the program with mpiexec"
        )
    _meet(rank, size, init_method or "env://", timeout)
    try:
        world = mpi().COMM_WORLD
        if (world.rank, world.size) != (rank, size):  # another MPI, which did not ask where the ranks met
            raise RuntimeError(
                f"init_process_group: rank {rank} of {size} has met the others, but its MPI ({mpi().Get_library_version().strip()[:60]}) "
                f"made it rank {world.rank} of {world.size}: it takes no part in MPICH's start-up. `pip install wisp[mpi]` brings MPICH; "
                "with another MPI start the program with its mpiexec"
            )
        return world.Dup()
    finally:
        for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            os.environ.pop(name, None)  # not for programs that this one starts


def _address(init_method, rank, deadline):
    """Host and port of the meeting point, and the file in which rank 0 writes them (for file://)."""
    parts = urllib.parse.urlparse(init_method)
    if parts.scheme == "env":
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(
                "init_process_group: Error initializing torch.distributed using env:// rendezvous: environment variable "
                f"{missing[0]} expected, but not set"
            )
        return os.environ["MASTER_ADDR"], _number("MASTER_PORT"), None
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return parts.hostname, parts.port, None
    if parts.scheme == "file":
        if rank == 0:
            return socket.gethostname(), 0, parts.path
        while time.monotonic() < deadline:
            if os.path.exists(parts.path) and os.path.getsize(parts.path):
                with open(parts.path) as file:
                    host, port, secret = file.read().split()
                os.environ.setdefault("WISP_SECRET", secret)
                return host, int(port), None
            time.sleep(0.02)
        raise RuntimeError(f"init_process_group: rank 0 has not written its address to {parts.path}")
    raise ValueError(f"init_process_group: init_method {init_method!r} is none of env://, tcp://host:port and file:///path")


def new_secret():
    """What the ranks of one world know and nobody else."""
    return secrets.token_hex(32)


def _server(host, port, size):
    """Listens where the others are told to come, and nowhere else; everywhere if that is no address of this machine's own (one that is
    translated on the way here)."""
    if host:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family, backlog=max(size, 16))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("", port), backlog=max(size, 16))


def reserve_port(host=""):
    """Listen already, so that others can be told where to meet rank 0 before it comes to init_process_group; the port."""
    global _listener
    _listener = _server(host, 0, 1024)
    return _listener.getsockname()[1]


def meet_through(store, rank, size):
    """The init_method of ranks that share a store: rank 0 listens, and leaves there its address and the secret of the ranks."""
    if size == 1:
        return None
    if rank == 0:
        host = getattr(store, "host", None) or socket.gethostname()
        address = f"tcp://{host}:{reserve_port(host)}"
        os.environ.setdefault("WISP_SECRET", new_secret())
        store.set("wisp/meeting", f"{address} {os.environ['WISP_SECRET']}")
    else:
        address, os.environ["WISP_SECRET"] = store.get("wisp/meeting").decode().split()
    return address


def _listen(host, port, size):
    if _listener is not None and _listener.getsockname()[1] == port:
        return _listener
    try:
        return _server(host, port, size)
    except OSError as error:
        raise RuntimeError(f"init_process_group: rank 0 can't listen at port {port}: {error}; choose another MASTER_PORT") from None


def _start_meeting(host, port, size, timeout, file):
    """Rank 0: starts the meeting point; where this process reaches it."""
    global _listener
    if file is not None:
        os.environ.setdefault("WISP_SECRET", new_secret())
    with _listen(host, port, size) as listener:
        bound, port = listener.getsockname()[:2]
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_pmi.py")
        subprocess.Popen(
            [sys.executable, "-S", "-E", script, str(listener.fileno()), str(size), str(timeout)],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    _listener = None
    if file is not None:
        # a new file that only we can read: others may write to the folder, and have put one or a link there
        handle, new = tempfile.mkstemp(dir=os.path.dirname(file) or ".")
        with open(handle, "w") as out:
            out.write(f"{socket.gethostname()} {port} {os.environ['WISP_SECRET']}")
        os.replace(new, file)
    return "localhost" if bound in ("0.0.0.0", "::") else bound, port


def _read_line(connection, most=1024):
    line = b""
    while not line.endswith(b"\n"):
        more = connection.recv(1)
        if not more or len(line) >= most:
            raise ConnectionError("the meeting point at rank 0 is gone")
        line += more
    return line.decode(errors="replace").split()


def _meet(rank, size, init_method, timeout):
    global _link, _listener
    deadline = time.monotonic() + timeout
    host, port, file = _address(init_method, rank, deadline)
    if rank == 0:
        host, port = _start_meeting(host, port, size, timeout, file)
    elif _listener is not None:  # another rank became the first
        _listener.close()
        _listener = None
    secret, own = os.environ.get("WISP_SECRET", ""), secrets.token_hex(16)
    connection = _connect(host, port, rank, deadline)
    connection.settimeout(max(deadline - time.monotonic(), 0) + 30)
    try:
        greeting = _read_line(connection)
        if len(greeting) != 2 or greeting[0] != "wisp":
            raise ConnectionError("something else answers there")
        words = [str(rank), str(size), socket.gethostname(), own]
        connection.sendall(" ".join(["wisp", *words, proof(secret, greeting[1], *words)]).encode() + b"\n")
        reply = _read_line(connection)
    except OSError as error:
        raise RuntimeError(
            f"init_process_group: rank {rank} waited for the others at {host}:{port}: {error}"
            + (" (it refuses processes whose WISP_SECRET is not that of rank 0)" if isinstance(error, ConnectionError) else "")
        ) from None
    if reply[0] == "no":
        raise RuntimeError(f"init_process_group: rank {rank} of {size} at {host}:{port}: {' '.join(reply[1:])} (timeout {timeout:g} s)")
    if reply != ["go", proof(secret, "go", own)]:
        raise RuntimeError(f"init_process_group: rank {rank} at {host}:{port}: what answers there is not rank 0's meeting point")
    connection.settimeout(None)
    _link = connection.dup()
    os.environ.update(PMI_FD=str(connection.detach()), PMI_RANK=str(rank), PMI_SIZE=str(size))


def _connect(host, port, rank, deadline):
    while True:
        try:
            return socket.create_connection((host, port), timeout=5)
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"init_process_group: rank {rank} does not reach rank 0 at {host}:{port}: {error}") from None
            time.sleep(0.05)


def left(ranks):
    """In words, who of some ranks is gone; None while all are there. Of other machines the meeting point tells."""
    gone = board.gone(ranks)
    if not gone and _link is not None:
        try:
            said = _link.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT).decode(errors="replace").split()
        except BlockingIOError:
            return None
        except OSError:
            said = []
        if said[:1] not in ([], ["gone"]):
            return None  # an answer for MPI
        gone = [int(rank) for rank in said[1:2]]
        if gone and gone[0] not in ranks:
            return None
    elif not gone:
        return None
    names = "rank " + ", ".join(map(str, gone)) if gone else "some rank"
    return f"{names} is gone: the process has ended"


def fail():
    """This process ends with an error: leave without waiting for the other ranks."""
    global failed
    failed = True


def _hook_errors():
    before = sys.excepthook

    def hook(kind, error, trace):
        fail()
        before(kind, error, trace)

    sys.excepthook = hook


def _shared_files():
    """The files of MPICH's shared memory that this process has mapped."""
    try:
        with open("/proc/self/maps") as maps:
            return {line.split(None, 5)[-1].strip() for line in maps if "/dev/shm/mpich_shm_" in line}
    except OSError:
        return set()


def forget_shared_files():
    """Unlink MPICH's shared memory: those who mapped it keep it, and nothing stays behind when a rank is killed."""
    for path in _shared_files():
        try:
            os.unlink(path)
        except OSError:
            pass


def _leave():
    """The end of the process: together, if all come to it; alone, if this rank failed or another one is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    if not failed:
        slot = board.read(board.rank)
        board.write(f"leaves the program ({slot[2] if slot else ''})")
    from mpi4py import MPI

    if not failed and not MPI.Is_finalized():
        request, pause = comm.Ibarrier(), 1e-4
        while not request.Test():
            if left(range(comm.size)):
                break
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        else:
            MPI.Finalize()
