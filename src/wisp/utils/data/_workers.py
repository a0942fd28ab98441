"""Worker processes of a DataLoader.

Each worker has one socket to the main process: tasks go in, finished batches come back, their memory as segments of
shared memory. A worker that dies, raises or stalls is reported with its id and the index it was working on.
"""

import contextlib
import faulthandler
import gc
import itertools
import os
import pickle
import queue
import random
import selectors
import signal
import sys
import threading
import time
import traceback
import warnings

import numpy

import wisp
from wisp.multiprocessing import shared
from wisp.multiprocessing.queues import forget_arrived
from wisp.multiprocessing.shared import parcels
from wisp.utils.data._fetch import make_fetch, stream_batches
from wisp.utils.data._one_copy import Shipment, exchanged, packed_lists
from wisp.utils.data._seeding import Seeds, after_fork
from wisp.utils.data._transport import Inbox, Outbox
from wisp.utils.data._worker_info import info_of, set_worker_info

STALL_SECONDS = 60
GRACE_SECONDS = 0.3  # for a worker to finish its sample when it is told to end
_END = "end of stream"
_DIRECT = 16384  # bytes of a message that surely fit into the socket


# ---------------------------------------------------------------- in the worker
def _watch_parent():
    """End with the main process, however it ended: a pipe's end may still be open in some other child of it."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Sender:
    """Sends messages; large ones in a thread, so that the next batch is prepared while one waits to be wanted."""

    def __init__(self, outbox):
        self.outbox, self._queue, self._thread = outbox, queue.Queue(), None

    def __call__(self, packed):
        if self._thread is None and len(packed[0]) <= _DIRECT:
            return self._send(packed)
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, daemon=True)
            self._thread.start()
        self._queue.put(packed)

    def _send(self, packed):
        try:
            self.outbox.send(packed)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)

    def _deliver(self):
        while (packed := self._queue.get()) is not None:
            self._send(packed)

    def finish(self):
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()


def _failure(error, worker_id):
    text = f"Caught {type(error).__name__} in DataLoader worker process {worker_id}.\nOriginal " + traceback.format_exc()
    return "error", (type(error), text)


class _Worker:
    """What a worker does with a task (epoch, number, indices); an epoch is its serial number and its seed."""

    def __init__(self, settings, dataset, worker_id, board):
        self.settings, self.dataset, self.id = settings, dataset, worker_id
        self.board, self.epoch, self.fetch, self.stream = board.numpy()[worker_id], None, None, None

    def begin_epoch(self, epoch):
        settings, self.epoch, seed = self.settings, epoch, epoch[1]
        set_worker_info(info_of(self.id, settings["num_workers"], seed + self.id, self.dataset))
        if not settings["seeded"]:
            self.seeds = None
            if settings["iterable"]:
                self.stream = stream_batches(self.dataset, settings["batch_size"], settings["drop_last"])
            else:
                self.fetch = make_fetch(self.dataset, settings["collate"], settings["batched"], None)
            return
        if settings["iterable"]:
            self.seeds = Seeds(seed, stream=self.id)
            with self.seeds:
                self.stream = stream_batches(self.dataset, settings["batch_size"], settings["drop_last"])
        else:
            self.seeds = Seeds(seed)
            self.fetch = make_fetch(self.dataset, settings["collate"], settings["batched"], self.seeds)
        self.seeds.report_progress(self.board[1:].ctypes.data)

    def answer(self, epoch, number, indices):
        self.board[:] = number, 0  # should we die, the main process can tell of what
        if epoch != self.epoch:
            self.begin_epoch(epoch)
        if not self.settings["iterable"]:
            return "batch", self.fetch(indices)
        with self.seeds or contextlib.nullcontext():
            batch = next(self.stream, _END)
            return (_END, None) if batch is _END else ("batch", self.settings["collate"](batch))


def _generators():
    """The states of the global generators, to be compared."""
    words = numpy.random.get_state()
    return random.getstate(), words[1].tobytes(), words[2:], wisp.get_rng_state().tolist()


class _OfDataset:
    """Stands for a method of the dataset, on the way to a worker that has one of its own."""

    def __init__(self, function):
        self.function = function


def _work(channel, board, worker_id, settings, dataset, first_seed):
    """The main function of a worker: answers each task with (epoch, number, kind, content)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    after_fork()
    gc.freeze()  # what the main process made stays in pages that we share with it
    _watch_parent()
    wisp.set_num_threads(1)
    outbox = Outbox(channel, settings["shared_memory"])
    send = _Sender(outbox)
    with open(shared._open_file(), "wb+") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        parcels.sending = [stacks.fileno()], None
        channel.send_bytes(b"stacks")
        first = Seeds(first_seed)
        first.seed_key(("worker", worker_id))
        wisp.manual_seed(first_seed + worker_id)
        set_worker_info(info_of(worker_id, settings["num_workers"], first_seed + worker_id, dataset))
        worker, failed = _Worker(settings, dataset, worker_id, board), None
        try:
            if settings["init"] is not None:
                before = _generators()
                if isinstance(settings["init"], _OfDataset):
                    settings["init"].function(dataset, worker_id)
                else:
                    settings["init"](worker_id)
                settings["seeded"] = _generators() == before  # a program that seeds its workers means it
        except Exception as error:
            failed = _failure(error, worker_id)
        while True:
            try:
                task = pickle.loads(channel.recv_bytes())
            except (EOFError, ConnectionResetError):
                break
            if task is None:
                break
            epoch, number, indices, dropped = task
            outbox.take_back(*dropped)
            try:
                packed = outbox.pack((epoch, number, *(failed or worker.answer(epoch, number, indices))))
            except Exception as error:
                kind, (cause, text) = _failure(error, worker_id)
                try:
                    packed = outbox.pack((epoch, number, kind, (cause, text)))
                except Exception:  # an exception class that can't be pickled
                    packed = outbox.pack((epoch, number, kind, (RuntimeError, text)))
            send(packed)
            del task, packed
        send.finish()


# ---------------------------------------------------------------- in the main process
class _Lines(str):
    """A text that a KeyError shows as it is: it shows the repr of its argument, which would have the lines escaped."""

    __repr__ = str.__str__


def _reraise(kind, text):
    if issubclass(kind, KeyError):
        text = _Lines(text)
    try:
        error = kind(text)
    except Exception:
        error = RuntimeError(text)
    raise error


def _preflight():
    """Whether there is shared memory; a warning says why not."""
    try:
        os.close(shared.new_file(1 << 20))
        return True
    except OSError as error:
        warnings.warn(f"DataLoader: {error}; batches will travel through pipes, which is slower", RuntimeWarning, stacklevel=6)
        return False


class Workers:
    """The worker processes of one loader."""

    processes = ()

    def __init__(self, loader, seed):
        context = loader._worker_context()
        settings = dict(
            num_workers=loader.num_workers,
            iterable=loader._iterable,
            batched=loader._auto_collation,
            batch_size=loader.batch_size,
            drop_last=loader.drop_last,
            collate=loader.collate_fn,
            init=loader.worker_init_fn,
            seeded=True,
            shared_memory=_preflight(),
        )
        self.timeout, self.processes, self.inboxes, self.warned = loader.timeout, [], [], False
        self.stacks = [None] * loader.num_workers
        self.pending = [{} for _ in range(loader.num_workers)]  # unanswered tasks: number -> indices
        self.selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)()
        self.user = None  # the iterator that may use the workers
        forked = context.get_start_method() == "fork"
        board = wisp.zeros(loader.num_workers, 2, dtype=wisp.int64)  # each worker's task number and samples begun
        try:
            board.share_memory_()
        except OSError:
            pass  # reports will not know the index
        self.board = board
        cargo = loader.dataset if forked else Shipment(loader.dataset)
        if not forked and getattr(settings["init"], "__self__", None) is loader.dataset:
            settings["init"] = _OfDataset(settings["init"].__func__)  # it would arrive with a copy of its own
        # Ctrl-C while a worker starts would make it speak up too: it begins with the signal blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with exchanged(packed_lists(loader.dataset)), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # our threads survive a fork
                for i in range(loader.num_workers):
                    ours, theirs = wisp.multiprocessing.Pipe()
                    process = context.Process(target=_work, daemon=True, args=(theirs, board, i, settings, cargo, seed))
                    self.inboxes.append(Inbox(ours, loader.prefetch_factor + 2))
                    process.start()
                    theirs.close()
                    self.processes.append(process)
            for i, process in enumerate(self.processes):
                self.selector.register(self.inboxes[i].channel, selectors.EVENT_READ, (i, True))
                self.selector.register(process.sentinel, selectors.EVENT_READ, (i, False))
        except BaseException as error:
            self.close(at_once=True)
            if not forked and isinstance(error, (TypeError, AttributeError, pickle.PicklingError)):
                warnings.warn(
                    "Got pickle error when attempting to start a worker Process: what the loader is made of must be picklable where "
                    f"processes start by {context.get_start_method()!r}. You can also try multiprocessing.set_start_method('fork').",
                    stacklevel=2,
                )
            raise
        finally:
            if not forked:
                cargo.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def close(self, at_once=False):
        """End the workers. One that is in the middle of a sample gets a moment to finish it."""
        processes, self.processes = self.processes, []
        self.selector.close()
        for inbox in self.inboxes:
            try:
                inbox.channel.send_bytes(pickle.dumps(None))
            except (OSError, ValueError):
                pass
            inbox.channel.close()
        for stack in self.stacks:
            if stack is not None:
                os.close(stack)
        self.stacks, self.inboxes = [], []
        deadline = time.monotonic() + (0 if at_once else GRACE_SECONDS)
        for patience, end in ((deadline, "terminate"), (deadline + 1, "kill"), (None, None)):
            for process in processes:
                process.join(None if patience is None else max(0, patience - time.monotonic()))
            processes = [process for process in processes if process.is_alive()]
            for process in processes:
                getattr(process, end)()

    def __del__(self, exiting=sys.is_finalizing):
        if self.processes and not exiting():
            self.close()

    def give(self, worker, epoch, number, indices):
        self.pending[worker][epoch, number] = indices
        try:
            inbox = self.inboxes[worker]
            inbox.channel.send_bytes(pickle.dumps((epoch, number, indices, inbox.dropped()), pickle.HIGHEST_PROTOCOL))
        except OSError:
            self.report_death(worker)

    def _doing(self, worker):
        """What a worker was doing last, in words."""
        number, begun = self.board[worker].tolist()
        for (_, given), indices in self.pending[worker].items():
            if given == number and indices is not None:
                if isinstance(indices, list) and 0 < begun <= len(indices):
                    return f" while it loaded index {indices[begun - 1]!r} of batch {indices}"
                return f" while it loaded {indices}"
        return ""

    def report_death(self, worker):
        process = self.processes[worker]
        process.join(1)
        code = process.exitcode
        if code is not None and code < 0:
            how = f"was killed by signal {signal.Signals(-code).name}"
        else:
            how = f"exited unexpectedly with exit code {code}"
        hint = {
            -signal.SIGKILL: "\nThe kernel does this to a process when memory runs out: fewer workers, a smaller "
            "batch or a smaller prefetch_factor need less.",
            -signal.SIGSEGV: "\nIt crashed in native code of the dataset or collate_fn; run it with num_workers=0 to see where.",
        }.get(code, "")
        raise RuntimeError(f"DataLoader worker {worker} (pid {process.pid}) {how}{self._doing(worker)}.{hint}")

    def stack_of(self, worker):
        """The Python stack of a worker at this moment, as text."""
        file = self.stacks[worker]
        if file is None:
            return "(it has not come to loading yet)"
        os.ftruncate(file, 0)
        os.kill(self.processes[worker].pid, signal.SIGUSR1)
        for _ in range(20):
            time.sleep(0.02)
            if text := os.pread(file, 1 << 16, 0).lstrip(b"\0"):
                return text.decode(errors="replace")
        return "(it does not answer)"

    def take(self):
        """Wait for the next answer of any worker -> worker, (epoch, number, kind, content)."""
        timeout = self.timeout or STALL_SECONDS
        waiting_since = time.monotonic()
        while True:
            ready = self.selector.select(max(0, waiting_since + timeout - time.monotonic()))
            for key, _ in ready:
                worker, is_channel = key.data
                if is_channel and (answer := self._receive(worker)) is not None:
                    del self.pending[worker][answer[:2]]
                    return worker, answer
            talking = {key.data[0] for key, _ in ready if key.data[1]}
            for key, _ in ready:
                if key.data[0] not in talking:
                    self.report_death(key.data[0])
            if ready or time.monotonic() < waiting_since + timeout:
                continue
            busy = [i for i, tasks in enumerate(self.pending) if tasks]
            text = "".join(
                f"\nWorker {i} (pid {self.processes[i].pid}) is busy{self._doing(i)}; its stack:\n" + self.stack_of(i) for i in busy
            )
            if self.timeout:
                raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds.{text}")
            warnings.warn(f"DataLoader has waited {timeout} s for a batch.{text}", RuntimeWarning, stacklevel=5)
            waiting_since = time.monotonic()

    def _receive(self, worker):
        inbox = self.inboxes[worker]
        try:
            if self.stacks[worker] is None:
                inbox.channel.recv_bytes()
                self.stacks[worker] = os.dup(parcels.arrived[0])
                forget_arrived()
                return None
            answer, no_room = inbox.receive()
        except (EOFError, ConnectionResetError):
            self.report_death(worker)
        if no_room and not self.warned:
            self.warned = True
            warnings.warn(f"DataLoader: {no_room}; such batches travel through pipes, which is slower", RuntimeWarning, stacklevel=6)
        return answer


class WorkerBatches:
    """The batches of one epoch, loaded by worker processes."""

    workers = None
    serial = itertools.count()

    def __init__(self, loader, seed, tasks):
        self.loader, self.tasks = loader, tasks
        self.epoch = next(self.serial), seed  # two epochs may have the same seed
        self.depth = max(1, loader.prefetch_factor) * loader.num_workers
        self.answers, self.given, self.wanted, self.number = {}, {}, 0, None
        self.exhausted = False
        self.alive, self.turn = list(range(loader.num_workers)), itertools.count()
        self._start()

    def _start(self):
        loader = self.loader
        self.workers = loader._workers or Workers(loader, self.epoch[1])
        if loader.persistent_workers:
            loader._workers = self.workers
        self.workers.user = id(self)
        for number, indices in self.given.items():  # after a failure: what was under way
            self._give(number, indices)
        self._fill()

    def _give(self, number, indices):
        if self.loader._iterable:  # the order of batches follows from the order of turns
            worker = self.alive[next(self.turn) % len(self.alive)]
        else:
            worker = min(range(len(self.workers.pending)), key=lambda i: len(self.workers.pending[i]))
        self.workers.give(worker, self.epoch, number, indices)

    def _fill(self):
        while not self.exhausted and len(self.given) + len(self.answers) < self.depth and self.alive:
            task = next(self.tasks, None)
            if task is None:
                self.exhausted = True
                return
            self.given[task[0]] = task[1]
            self._give(*task)

    def __next__(self):
        if self.workers is None:
            if self.exhausted and not self.given and not self.answers:
                raise StopIteration
            self._start()
        elif self.workers.user != id(self):
            raise RuntimeError("a newer iteration of this DataLoader has taken over its persistent workers")
        try:
            return self._next()
        except StopIteration:
            if not self.loader.persistent_workers:
                self.close()
            raise
        except BaseException:
            self.loader._workers = None
            self.close(at_once=True)
            if self.loader._iterable:  # a stream can't be begun again in the middle
                self.exhausted, self.given, self.answers = True, {}, {}
            raise

    def _next(self):
        while True:
            self._fill()
            if not self.given and not self.answers:
                raise StopIteration
            first = self._first()
            if first in self.answers:
                worker, kind, content = self.answers.pop(first)
                if kind == _END:  # in its turn, so that the order does not depend on who was quicker
                    self._retire(worker)
                    continue
                if kind == "error":
                    _reraise(*content)
                self.number = first
                self._fill()
                return content
            worker, (epoch, number, kind, content) = self.workers.take()
            if epoch != self.epoch:
                continue  # left over from an epoch that was not finished
            del self.given[number]
            self.answers[number] = (worker, kind, content)

    def _first(self):
        """The number of the batch that is due."""
        if not self.loader.in_order and self.answers:
            return next(iter(self.answers))
        return min(itertools.chain(self.given, self.answers))

    def _retire(self, worker):
        """Take a worker out of the round, so that the others keep their order."""
        if worker not in self.alive:
            return
        position = next(self.turn) % len(self.alive)
        place = self.alive.index(worker)
        self.alive.remove(worker)
        self.turn = itertools.count(position - (place < position))

    def close(self, at_once=False):
        """End the workers, if they are ours alone."""
        workers, self.workers = self.workers, None
        if workers is not None:
            workers.close(at_once)

    def __del__(self, exiting=sys.is_finalizing):
        if self.workers is not None and not self.loader.persistent_workers and not exiting():
            self.close()
