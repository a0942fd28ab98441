"""The same work in several Python threads at once, for tests of threads and of races."""

import threading


def in_threads(work, count=4):
    """-> what `work(i)` returned in each thread; all start at once, and an exception in one is raised here."""
    results, errors, start = [None] * count, [], threading.Barrier(count)

    def run(i):
        try:
            start.wait()
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
