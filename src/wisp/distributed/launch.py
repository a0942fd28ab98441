"""The older name of `wisp.distributed.run`."""

from wisp.distributed.run import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
