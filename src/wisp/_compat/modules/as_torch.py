"""`import wisp.as_torch`: from here on, `import torch` and `import torchvision` give Wisp, in a notebook too.

>>> import wisp.as_torch
>>> import torch
>>> torch.ones(2)
tensor([1., 1.])
"""

from wisp._compat import alias

alias.install()
