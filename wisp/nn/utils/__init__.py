"""Tools for training: clipping, parameter vectors, weight normalisation, parametrizations, sequences, pruning."""
