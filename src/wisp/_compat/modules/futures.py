"""A value that is set later."""

import threading
import traceback

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that another thread sets; `wait()` gives it.

    >>> from wisp.futures import Future
    >>> future = Future()
    >>> future.set_result(3)
    >>> future.then(lambda done: done.value() + 1).wait()
    4
    """

    def __class_getitem__(cls, kind):
        return cls  # Future[Tensor] in annotations

    def __init__(self, *, devices=None):
        self._ready, self._lock, self._callbacks = threading.Event(), threading.Lock(), []
        self._value = self._error = None

    def done(self):
        """Whether the value or an exception is there."""
        return self._ready.is_set()

    def wait(self):
        """Wait for the value and return it; an exception that was set is raised."""
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def value(self):
        """The value, which must be there."""
        if not self.done():
            raise RuntimeError("Future.value(): the value is not there yet; use wait()")
        return self.wait()

    def _finish(self, value, error):
        with self._lock:
            if self._ready.is_set():
                raise RuntimeError("Future can only be marked completed once")
            self._value, self._error = value, error
            self._ready.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback):
        """A callback's error concerns nobody who waits for the value: it is shown."""
        try:
            callback(self)
        except Exception:
            print(f"Got the following error when running the callback: {traceback.format_exc()}")

    def __getstate__(self):
        raise RuntimeError("Can not pickle torch.futures.Future")

    def set_result(self, result):
        """Set the value, once."""
        self._finish(result, None)

    def set_exception(self, result):
        """Set an exception, which `wait()` raises."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def add_done_callback(self, callback):
        """Call `callback(self)` when the value is there, or now if it is."""
        with self._lock:
            if not self._ready.is_set():
                self._callbacks.append(callback)
                return
        self._call(callback)

    def then(self, callback):
        """The future of `callback(self)`."""
        result = Future()

        def call(done):
            try:
                result.set_result(callback(done))
            except Exception as error:
                told = f"Got the following error when running the callback: {type(error).__name__}: {error}\n\n{traceback.format_exc()}"
                result.set_exception(RuntimeError(told))

        self.add_done_callback(call)
        return result


def collect_all(futures):
    """A future whose value is the list of the futures, all of them done."""
    if None in futures:
        raise RuntimeError("Future can't be None")
    result, left, lock = Future(), [len(futures)], threading.Lock()

    def one(_):
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            result.set_result(futures)

    for future in futures:
        future.add_done_callback(one)
    if not futures:
        result.set_result(futures)
    return result


def wait_all(futures):
    """The values of all futures."""
    return [future.wait() for future in collect_all(futures).wait()]
