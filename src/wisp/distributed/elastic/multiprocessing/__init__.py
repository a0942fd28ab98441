"""Processes that torchrun starts; here `wisp launch` does."""
