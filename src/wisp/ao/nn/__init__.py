"""Layers of quantized models."""

from wisp.ao.nn import qat as qat
