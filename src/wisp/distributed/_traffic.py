"""Counts what a rank moves: how many operations, on how many bytes, and how many of them it has to send."""

import collections
import contextlib

_counting = []


class Traffic:
    """What was moved while `count_traffic` was counting, by operation.

    `calls` and `payload` say how many operations there were and the bytes of the tensors handed to them: the whole one for an all_reduce
    or a broadcast, the large side (one part per rank) for gathers, scatters and all_to_all. `sent` is what this rank must send for them
    with an algorithm that sends no byte twice: for n ranks 2 (n-1)/n of the payload for all_reduce, (n-1)/n for all_gather, reduce_scatter
    and all_to_all, and for broadcast and reduce (n-1)/n on average over the ranks. The headers in which ranks compare their
    calls are counted apart, as "header".

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> with wisp.distributed.count_traffic() as traffic:
    ...     wisp.distributed.all_reduce(wisp.ones(5))
    >>> traffic.calls["all_reduce"], traffic.payload["all_reduce"], traffic.total_sent
    (1, 20, 0)
    >>> wisp.distributed.destroy_process_group()
    """

    def __init__(self):
        self.calls, self.payload, self.sent = collections.Counter(), collections.Counter(), collections.Counter()

    @property
    def total_sent(self):
        """The bytes of data that this rank sent, without headers."""
        return sum(count for name, count in self.sent.items() if name != "header")

    def __repr__(self):
        return (
            "Traffic("
            + ", ".join(f"{name}: {count} calls, {self.payload[name]} bytes, {self.sent[name]} sent" for name, count in self.calls.items())
            + ")"
        )


@contextlib.contextmanager
def count_traffic():
    """Count the operations begun in the block, of all groups; gives a `Traffic`.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> with wisp.distributed.count_traffic() as traffic:
    ...     wisp.distributed.broadcast(wisp.ones(5), 0)
    >>> traffic
    Traffic(broadcast: 1 calls, 20 bytes, 0 sent)
    >>> wisp.distributed.destroy_process_group()
    """
    traffic = Traffic()
    _counting.append(traffic)
    try:
        yield traffic
    finally:
        _counting[:] = [other for other in _counting if other is not traffic]


def _average(payload, size, mine):
    return payload * (size - 1) // size


_SENT = {
    "all_reduce": lambda payload, size, mine: 2 * payload * (size - 1) // size,
    "gather": lambda payload, size, mine: 0 if mine else payload // size,
    "scatter": lambda payload, size, mine: payload * (size - 1) // size if mine else 0,
    "send": lambda payload, size, mine: payload,
    "recv": lambda payload, size, mine: 0,
    "header": lambda payload, size, mine: payload * (size - 1),
}


def moved(name, payload, size, mine=False, sent=None):
    """An operation of a group of `size` ranks begins; `mine`: this one is its root; `sent`: where the formula is not enough."""
    for traffic in _counting:
        traffic.calls[name] += 1
        traffic.payload[name] += payload
        traffic.sent[name] += _SENT.get(name, _average)(payload, size, mine) if sent is None else sent
