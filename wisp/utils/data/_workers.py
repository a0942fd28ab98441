"""Worker processes of a DataLoader.

Each worker has one pipe to the main process: tasks go in, finished batches come back. A worker that dies, raises or
stalls is reported with its id and the indices it was working on. Before each sample all random generators are seeded
from (seed of the epoch, index), so that what is loaded does not depend on the number of workers.
"""
import faulthandler
import io
import itertools
import multiprocessing
import os
import pickle
import queue
import random
import signal
import threading
import traceback
import warnings
from multiprocessing.connection import wait

import numpy

import wisp
from wisp.utils.data._worker_info import WorkerInfo, set_worker_info
from wisp.utils.data.dataloader import fetch_samples, stream_batches

STALL_SECONDS = 60
_END = "end of stream"


# ---------------------------------------------------------------- batches on their way through a pipe
def _rebuild_tensor(array, dtype, requires_grad):
    tensor = wisp.from_numpy(array)
    if tensor.dtype != dtype:
        tensor = tensor.view(dtype)
    return tensor.requires_grad_() if requires_grad else tensor


class _Pickler(pickle.Pickler):
    def reducer_override(self, value):
        if not isinstance(value, wisp.Tensor):
            return NotImplemented
        plain = value.detach().cpu().contiguous()
        array = plain.view(wisp.int16).numpy() if plain.dtype == wisp.bfloat16 else plain.numpy()
        return _rebuild_tensor, (array, value.dtype, value.requires_grad)


def send(connection, value):
    """Send a nested value; the memory of tensors and arrays goes without a copy."""
    buffers, stream = [], io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    raw = [buffer.raw() for buffer in buffers]
    connection.send((stream.getvalue(), [part.nbytes for part in raw]))
    for part in raw:
        if part.nbytes:
            connection.send_bytes(part)


def receive(connection):
    data, sizes = connection.recv()
    buffers = []
    for size in sizes:
        buffer = bytearray(size)
        if size:
            connection.recv_bytes_into(buffer)
        buffers.append(buffer)
    return pickle.loads(data, buffers=buffers)


# ---------------------------------------------------------------- in the worker
def _seed_everything(seed):
    random.seed(seed)
    wisp.manual_seed(seed)
    numpy.random.seed(seed % 2 ** 32)


def _sample_seed(seed, index):
    return hash((seed, index if isinstance(index, int) else repr(index))) % 2 ** 62


class _SeededDataset:
    """Seeds the generators before each sample."""

    def __init__(self, dataset, seed):
        self.dataset, self.seed = dataset, seed
        get = getattr(dataset, "__getitems__", None)
        if callable(get):
            self.__getitems__ = lambda indices: (_seed_everything(_sample_seed(seed, tuple(indices))), get(indices))[1]

    def __getitem__(self, index):
        _seed_everything(_sample_seed(self.seed, index))
        return self.dataset[index]


def _work(connection, working_on, worker_id, num_workers, dataset, collate, options, first_seed):
    """The main function of a worker: answers each task (epoch, number, indices) with (epoch, number, kind, content)."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends us
    wisp.set_num_threads(1)
    outbox = queue.Queue()

    def deliver():  # in a thread: a large batch waits in the pipe until it is wanted, and the next one is prepared
        try:
            while (item := outbox.get()) is not None:
                send(connection, item)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)

    sender = threading.Thread(target=deliver, daemon=True)
    sender.start()
    batched, iterable, batch_size, drop_last, init = options
    epoch, stream = None, None
    _seed_everything(first_seed + worker_id)
    set_worker_info(WorkerInfo(worker_id, num_workers, first_seed + worker_id, dataset))
    failed = None
    try:
        if init is not None:
            init(worker_id)
    except Exception as error:
        failed = error
    while True:
        try:
            task = connection.recv()
        except (EOFError, ConnectionResetError):
            break
        if task is None:
            break
        seed, number, indices = task
        working_on[worker_id] = number  # should we die, the main process can tell of what
        try:
            if failed is not None:
                raise failed
            if seed != epoch:
                epoch = seed
                set_worker_info(WorkerInfo(worker_id, num_workers, seed + worker_id, dataset))
                if iterable:
                    _seed_everything(seed + worker_id)
                    stream = stream_batches(dataset, batch_size, drop_last)
            if iterable:
                batch = next(stream, _END)
                answer = (_END, None) if batch is _END else ("batch", collate(batch))
            elif batched:
                answer = "batch", collate(fetch_samples(_SeededDataset(dataset, seed), indices))
            else:
                answer = "batch", collate(_SeededDataset(dataset, seed)[indices])
        except Exception as error:
            text = f"Caught {type(error).__name__} in DataLoader worker process {worker_id}.\nOriginal " \
                   + traceback.format_exc()
            answer = "error", (type(error), text)
        outbox.put((seed, number, *answer))
    outbox.put(None)
    sender.join()


# ---------------------------------------------------------------- in the main process
def _reraise(kind, text):
    try:
        error = kind(text)
    except Exception:
        error = RuntimeError(text)
    raise error from None


class Workers:
    """The worker processes of one loader."""

    def __init__(self, loader, seed):
        context = loader.multiprocessing_context or multiprocessing.get_context(
            "fork" if "fork" in multiprocessing.get_all_start_methods() else None)
        options = (loader._auto_collation, loader._iterable, loader.batch_size, loader.drop_last, loader.worker_init_fn)
        self.loader, self.connections, self.processes = loader, [], []
        self.working_on = context.RawArray("q", loader.num_workers)  # the number of each worker's task, written by it
        self.pending = [[] for _ in range(loader.num_workers)]  # unanswered tasks (seed, number, indices)
        for i in range(loader.num_workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, daemon=True, args=(
                theirs, self.working_on, i, loader.num_workers, loader.dataset, loader.collate_fn, options, seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # our threads survive a fork
                process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)

    def close(self):
        for connection in self.connections:
            try:
                connection.send(None)
            except OSError:
                pass
            connection.close()
        for process in self.processes:
            process.join(5 if process.is_alive() else None)
            if process.is_alive():
                process.terminate()
                process.join()
        self.processes, self.connections = [], []

    def give(self, worker, task):
        self.pending[worker].append(task)
        try:
            self.connections[worker].send(task)
        except OSError:
            self.report_death(worker)

    def report_death(self, worker):
        process = self.processes[worker]
        process.join(1)
        code = process.exitcode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        tasks = [task[2] for task in self.pending[worker] if task[1] == self.working_on[worker]]
        raise RuntimeError(f"DataLoader worker {worker} (pid {process.pid}) exited unexpectedly with {how}"
                           + (f" while it loaded {tasks[0]}" if tasks else ""))

    def take(self):
        """Wait for the next answer of any worker -> worker, (seed, number, kind, content)."""
        timeout = self.loader.timeout or STALL_SECONDS
        busy = [i for i, tasks in enumerate(self.pending) if tasks]
        while True:
            ready = wait([self.connections[i] for i in busy] + [self.processes[i].sentinel for i in busy], timeout)
            for i in busy:
                if self.connections[i] in ready:
                    try:
                        answer = receive(self.connections[i])
                    except (EOFError, ConnectionResetError):
                        self.report_death(i)
                    self.pending[i].pop(0)
                    return i, answer
            for i in busy:
                if self.processes[i].sentinel in ready:
                    self.report_death(i)
            if self.loader.timeout:
                raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds")
            for i in busy:
                warnings.warn(f"DataLoader worker {i} (pid {self.processes[i].pid}) has been busy for {timeout} s with "
                              f"{self.pending[i][0][2]}; its stack follows on stderr", RuntimeWarning, stacklevel=4)
                os.kill(self.processes[i].pid, signal.SIGUSR1)

    def epoch(self, seed, skip):
        """The batches of an epoch, from number `skip` on."""
        loader, count = self.loader, len(self.processes)
        depth = max(1, loader.prefetch_factor) * count
        if loader._iterable:
            tasks = ((number, None) for number in itertools.count())
        else:
            tasks = enumerate(loader._index_batches(seed, skip))
        alive = list(range(count))
        turn, given, exhausted = 0, 0, False
        answers, nothing = {}, object()
        wanted = 0
        to_skip = skip if loader._iterable else 0
        while True:
            while not exhausted and given - wanted < depth and alive:
                task = next(tasks, None)
                if task is None:
                    exhausted = True
                    break
                worker = alive[turn % len(alive)]
                turn += 1
                given += 1
                self.give(worker, (seed, *task))
            if wanted == given:
                return
            if not loader.in_order and answers:
                number = next(iter(answers))
            else:
                number = wanted
            answer = answers.pop(number, nothing)
            if answer is nothing:
                worker, (answered, number, kind, content) = self.take()
                if answered != seed:
                    continue  # left over from an epoch that was not finished
                if kind == "error":
                    _reraise(*content)
                if kind == _END and worker in alive:
                    turn = _next_turn(alive, turn, worker)
                answers[number] = (kind, content)
                continue
            wanted += 1
            kind, content = answer
            if kind == _END:
                continue
            if to_skip:
                to_skip -= 1
                continue
            yield content


def _next_turn(alive, turn, worker):
    """Take a worker out of the round, so that the others keep their order."""
    position = turn % len(alive)
    place = alive.index(worker)
    alive.remove(worker)
    return position - (place < position)


def iterate(loader, seed, skip):
    """The batches of one epoch, loaded by worker processes."""
    workers = loader._workers or Workers(loader, seed)
    loader._workers = workers if loader.persistent_workers else None
    try:
        yield from workers.epoch(seed, skip)
    except RuntimeError:
        loader._workers = None
        workers.close()
        raise
    finally:
        if not loader.persistent_workers:
            workers.close()
