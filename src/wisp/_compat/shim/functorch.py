"""Found by the processes that a program under `wisp run` starts: functorch means Wisp there too."""

import importlib
import sys

from wisp._compat import alias

alias.install()
sys.modules[__name__] = importlib.import_module(alias.own_name(__name__))
