"""Layers of quantized models."""
