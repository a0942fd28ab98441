"""Training on the machines of a Ray cluster (`pip install wisp[ray]`): workers are Ray's actors, in a process group of Wisp.

Whatever workers report comes together in the driver. When a worker dies, all are started anew from the last checkpoint: MPI and NCCL
have no world with a hole in it.
"""

import asyncio
import dataclasses
import io
import os
import sys
import time

try:
    import ray
    from ray.exceptions import RayActorError, RayTaskError
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise ImportError(f"wisp.distributed.ray needs Ray ({error}); `pip install wisp[ray]` brings it") from None

from wisp.distributed._work import DistError
from wisp.distributed._world import new_secret

__all__ = ["Result", "Trainer", "TrainingFailed", "get_checkpoint", "report"]
PATIENCE = 30.0  # seconds in which Ray tells that a process is gone, after others have noticed it
_session = None  # in a worker: where its reports go


@dataclasses.dataclass
class Result:
    """What a training left: rank 0's last `metrics` and all of them (`history`), the last `metrics_by_rank`, the last `checkpoint`, and
    what happened to workers that were replaced (`failures`).

    >>> from wisp.distributed.ray import Result                          # doctest: +SKIP
    >>> Result(history=[{"loss": 2.0}, {"loss": 1.0}]).metrics           # doctest: +SKIP
    {'loss': 1.0}
    """

    history: list = dataclasses.field(default_factory=list)
    checkpoint: object = None
    metrics_by_rank: dict = dataclasses.field(default_factory=dict)
    failures: list = dataclasses.field(default_factory=list)

    @property
    def metrics(self):
        return self.history[-1] if self.history else {}


class TrainingFailed(RuntimeError):
    """A training could not go on; `result` is what there was until then."""

    def __init__(self, message, result=None):
        super().__init__(message)
        self.result = result


@dataclasses.dataclass
class _Session:
    rank: int
    attempt: int
    mailbox: object
    checkpoint: bytes
    sent: object = None  # the last letter, on its way

    def send(self, *letter):
        """Letters must not overtake each other."""
        if self.sent is not None:
            ray.get(self.sent)
        self.sent = self.mailbox.put.remote(self.attempt, self.rank, *letter)


def _here(what):
    if _session is None:
        raise RuntimeError(f"wisp.distributed.ray.{what}: this process is no worker; call it in the train_fn of a Trainer")
    return _session


def report(metrics, checkpoint=None):
    """In a worker: send numbers, and perhaps a checkpoint (whatever `wisp.save` takes), to the driver. Rank 0's make the history and are
    the checkpoint; those of other ranks are seen in `Result.metrics_by_rank`. With a checkpoint it returns when it has arrived.

    >>> from wisp.distributed.ray import report                          # doctest: +SKIP
    >>> report({"loss": 0.5}, checkpoint={"step": 10})                   # doctest: +SKIP
    """
    session, data = _here("report"), None
    if not isinstance(metrics, dict):
        raise TypeError(f"wisp.distributed.ray.report: metrics must be a dict of names and numbers, got {type(metrics).__name__}")
    if checkpoint is not None and session.rank == 0:
        from wisp import save

        file = io.BytesIO()
        save(checkpoint, file)
        data = file.getvalue()
    metrics = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
    session.send(metrics, data)
    if data is not None:
        ray.get(session.sent)


def get_checkpoint():
    """In a worker: the last checkpoint that rank 0 reported before a worker died, or that the Trainer began with; else None.

    >>> from wisp.distributed.ray import get_checkpoint                  # doctest: +SKIP
    >>> start = get_checkpoint() or {"step": 0}                          # doctest: +SKIP
    """
    return _loaded(_here("get_checkpoint").checkpoint)


def _loaded(data):
    if data is None:
        return None
    from wisp import load

    return load(io.BytesIO(data))


class _Mailbox:
    """Reports on their way to the driver; an actor of its own, so that they outlive the worker that sent them."""

    def __init__(self):
        self.attempt, self.letters, self.there = 0, [], asyncio.Event()

    async def begin(self, attempt):
        """Letters of earlier attempts are not taken any more."""
        self.attempt = attempt

    async def put(self, attempt, *letter):
        if attempt == self.attempt:
            self.letters.append(letter)
            self.there.set()

    async def wake(self):
        """Let who waits for letters go."""
        self.there.set()

    async def take(self, wait):
        """All letters; with `wait`, not before there is one."""
        if wait:
            await self.there.wait()
        self.there.clear()
        letters, self.letters = self.letters, []
        return letters


class _Worker:
    """A rank."""

    def where(self):
        """The machine (Ray's name, its address) and a port of this process there, at which ranks can meet."""
        from wisp.distributed import _world

        address = ray.util.get_node_ip_address()
        return ray.get_runtime_context().get_node_id(), address, _world.reserve_port(address)

    def run(self, rank, attempt, mailbox, checkpoint, environment, backend, threads, train_fn, config):
        global _session
        import wisp

        # the class is pickled by reference, so this is the module that train_fn imports
        _session = _Session(rank, attempt, mailbox, checkpoint)
        os.environ.update(environment)
        wisp.set_num_threads(threads)
        if backend == "nccl":
            wisp.cuda.set_device(0)  # Ray shows each worker its own GPU only
        wisp.distributed.init_process_group(backend)
        train_fn(config)
        if _session.sent is not None:
            ray.get(_session.sent)
        wisp.distributed.destroy_process_group()


class Trainer:
    """Runs `train_fn(config)` as `num_workers` ranks on the machines of a Ray cluster: `fit()` starts them and returns a `Result`.

    In a worker the process group is initialised (NCCL with `use_gpu`, one GPU each; MPI otherwise). A worker that dies is replaced, and all
    begin anew from the last checkpoint, up to `max_failures` times; an error that train_fn raises ends the training at once, since it
    would come again. Without `ray.init` before, the cluster is that of RAY_ADDRESS, or one on this machine.

    config: passed to train_fn.          cpus_per_worker: processors (and threads) of each.
    checkpoint: what to begin with.      storage_path: a file in which the last checkpoint is kept, too.
    on_report(metrics): called in the driver for each report of rank 0; without it, a line is printed about once a second.

    >>> from wisp.distributed.ray import Trainer, report                                              # doctest: +SKIP
    >>> result = Trainer(lambda config: report({"loss": config["lr"]}), 2, config={"lr": 0.1}).fit()  # doctest: +SKIP
    >>> result.metrics                                                                                # doctest: +SKIP
    {'loss': 0.1}
    """

    def __init__(
        self,
        train_fn,
        num_workers=1,
        use_gpu=False,
        *,
        config=None,
        max_failures=3,
        cpus_per_worker=1,
        checkpoint=None,
        storage_path=None,
        on_report=None,
        backend=None,
        placement_timeout=300.0,
    ):
        if not callable(train_fn):
            raise TypeError(f"Trainer: train_fn must be a function of the config, got {type(train_fn).__name__}")
        if int(num_workers) < 1:
            raise ValueError(f"Trainer: num_workers must be at least 1, got {num_workers}")
        self.train_fn, self.num_workers, self.use_gpu, self.config = train_fn, int(num_workers), use_gpu, config
        self.max_failures, self.cpus_per_worker, self.storage_path = max_failures, cpus_per_worker, storage_path
        self.on_report, self.backend = on_report or _Lines(), backend or ("nccl" if use_gpu else "mpi")
        self.placement_timeout, self._first = placement_timeout, checkpoint

    def fit(self):
        """Train to the end, whatever happens to workers; raises TrainingFailed when it can't."""
        if not ray.is_initialized():
            ray.init()
        self._result, self._kept, self._checkpoint, self._news = Result(), 0, None, None
        if self._first is not None:
            from wisp import save

            file = io.BytesIO()
            save(self._first, file)
            self._checkpoint = file.getvalue()
        mailbox, attempt = ray.remote(num_cpus=0)(_Mailbox).remote(), 0
        try:
            while True:
                try:
                    ray.get(mailbox.begin.remote(attempt))
                    self._attempt(attempt, mailbox)
                    self._read_all(mailbox)
                    break
                except _Died as died:
                    self._read_all(mailbox)
                    self._result.failures.append(str(died))
                    attempt += 1
                    if attempt > self.max_failures:
                        raise self._failed(f"{died}; max_failures={self.max_failures} allows no further restart") from None
                    print(
                        f"Trainer: {died}; all workers start anew from "
                        + ("the last checkpoint" if self._checkpoint is not None else "the beginning: there was no checkpoint yet"),
                        file=sys.stderr,
                    )
                    # what came after the checkpoint will come again
                    del self._result.history[self._kept :]
        except TrainingFailed:
            self._read_all(mailbox)
            raise
        finally:
            self._result.checkpoint = _loaded(self._checkpoint)
            ray.kill(mailbox)
        return self._result

    def _failed(self, message):
        return TrainingFailed(f"Trainer: {message}", self._result)

    def _attempt(self, attempt, mailbox):
        """One life of all workers; _Died when one did."""
        need = {"CPU": self.cpus_per_worker, **({"GPU": 1} if self.use_gpu else {})}
        place, workers = placement_group([need] * self.num_workers, strategy="PACK"), []
        try:
            if not place.wait(self.placement_timeout):
                raise self._failed(
                    f"{self.num_workers} workers of {need} found no room in {self.placement_timeout:g} s; the cluster has "
                    f"{ray.cluster_resources()}, of which {ray.available_resources()} are free"
                )
            for index in range(self.num_workers):
                strategy = PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=index)
                actor = ray.remote(num_cpus=need["CPU"], num_gpus=need.get("GPU", 0), scheduling_strategy=strategy)(_Worker)
                workers.append(actor.remote())
            self._follow(self._start(attempt, workers, mailbox), mailbox)
        except RayActorError as error:
            raise _Died(f"a worker died while it started: {_line(error)}") from None
        finally:
            for worker in workers:
                ray.kill(worker)
            remove_placement_group(place)

    def _start(self, attempt, workers, mailbox):
        """Ranks of one machine are neighbours; their numbers there are LOCAL_RANK."""
        places = ray.get([worker.where.remote() for worker in workers])
        order = sorted(range(len(workers)), key=lambda index: [place[0] for place in places].index(places[index][0]))
        machines, runs = {}, {}
        checkpoint, secret = ray.put(self._checkpoint), new_secret()
        for rank, index in enumerate(order):
            machines.setdefault(places[index][0], []).append(rank)
        for rank, index in enumerate(order):
            neighbours = machines[places[index][0]]
            environment = {
                "RANK": rank,
                "WORLD_SIZE": len(workers),
                "LOCAL_RANK": neighbours.index(rank),
                "LOCAL_WORLD_SIZE": len(neighbours),
                "GROUP_RANK": list(machines).index(places[index][0]),
                "MASTER_ADDR": places[order[0]][1],
                "MASTER_PORT": places[order[0]][2],
                "WISP_SECRET": secret,
            }
            environment = {name: str(value) for name, value in environment.items()}
            run = workers[index].run.remote(
                rank, attempt, mailbox, checkpoint, environment, self.backend, max(1, int(self.cpus_per_worker)), self.train_fn, self.config
            )
            runs[run] = rank
        return runs

    def _follow(self, runs, mailbox):
        """Read reports until every worker is done, or one failed."""
        left, self._news = list(runs), mailbox.take.remote(True)
        while left:
            for ready in ray.wait([self._news, *left])[0]:
                if ready == self._news:
                    self._read(ray.get(ready))
                    self._news = mailbox.take.remote(True)
                    continue
                left.remove(ready)
                try:
                    ray.get(ready)
                except (RayActorError, RayTaskError) as error:
                    self._explain(runs, runs[ready], error, left)

    def _explain(self, runs, rank, error, left):
        """Raise what was the cause: a process that is gone, or else an error of train_fn that is not about other ranks."""
        end = time.monotonic() + PATIENCE
        while left and isinstance(error, DistError) and time.monotonic() < end:
            done, left = ray.wait(left, timeout=max(0.0, end - time.monotonic()))
            for run in done:
                try:
                    ray.get(run)
                except (RayActorError, RayTaskError) as other:
                    if not isinstance(other, DistError):
                        rank, error = runs[run], other
        if isinstance(error, RayActorError):
            raise _Died(f"rank {rank} died: {_line(error)}")
        raise self._failed(f"rank {rank} raised an error:\n{error}")

    def _read_all(self, mailbox):
        """What is still in the mailbox, and what was asked for already, in their order."""
        if self._news is not None:
            mailbox.wake.remote()
            self._read(ray.get(self._news))
            self._news = None
        self._read(ray.get(mailbox.take.remote(False)))

    def _read(self, letters):
        for rank, metrics, checkpoint in letters:
            self._result.metrics_by_rank[rank] = metrics
            if rank != 0:
                continue
            self._result.history.append(metrics)
            if checkpoint is not None:
                self._checkpoint, self._kept = checkpoint, len(self._result.history)
                if self.storage_path is not None:
                    with open(f"{self.storage_path}.new", "wb") as file:
                        file.write(checkpoint)
                    os.replace(f"{self.storage_path}.new", self.storage_path)
            self.on_report(metrics)


class _Died(Exception):
    """A worker's process is gone."""


class _Lines:
    """Rank 0's numbers on stderr, about once a second."""

    def __init__(self):
        self.next, self.count = 0.0, 0

    def __call__(self, metrics):
        self.count += 1
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + 1
            numbers = "  ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items())
            print(f"report {self.count}  {numbers}", file=sys.stderr)


def _line(error):
    return " ".join(str(error).split())[:500]
