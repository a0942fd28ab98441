"""Python imports this at its start, in the workers and in what their tests start: run.py puts the folder on the path."""

import ptshim

ptshim.install()
