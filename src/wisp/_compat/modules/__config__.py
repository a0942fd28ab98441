"""How Wisp was built, in words: `torch.__config__.show()`."""

__all__ = ["parallel_info", "show"]


def show():
    """A line each about the release, the compiler's instruction sets and the libraries.

    >>> import wisp.__config__
    >>> "Wisp" in wisp.__config__.show()
    True
    """
    import wisp

    return (
        f"Wisp built with:\n  - Wisp {wisp.version.__version__}\n  - C++20, kernels for AVX-512, AVX2 and the baseline\n"
        "  - USE_MKL=OFF, USE_MKLDNN=OFF, USE_CUDA=found at run time, LAPACK_INFO=OpenBLAS"
    )


def parallel_info():
    """A line about the threads."""
    import wisp

    return f"Wisp's thread pool: {wisp.get_num_threads()} threads"


def _cxx_flags():
    return "-std=c++20 -O3"
