"""`torch.ao`: quantization, as far as it goes without quantized tensors."""
