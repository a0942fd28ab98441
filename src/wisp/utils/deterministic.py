"""Whether new memory is filled; it is not."""

fill_uninitialized_memory = True
