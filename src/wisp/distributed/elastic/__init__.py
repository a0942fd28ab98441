"""What programs written for torchrun import."""
