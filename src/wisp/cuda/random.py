"""The random numbers of GPUs, by their inner module."""

from wisp.cuda import get_rng_state, get_rng_state_all, initial_seed, manual_seed, seed, seed_all, set_rng_state, set_rng_state_all  # noqa: F401
from wisp.cuda import manual_seed as manual_seed_all  # noqa: F401
