"""Older paths of `fully_shard` and `checkpoint`."""
