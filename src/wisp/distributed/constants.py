"""The time after which a collective gives up."""

from wisp.distributed import default_pg_timeout  # noqa: F401
