"""Parts of `torch.fx.experimental` that libraries ask; nothing is ever traced."""
