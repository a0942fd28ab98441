"""Runs a script of the comparison with PyTorch's databases with each check in a compiled region of its own.

    python tools/in_regions.py PATH/ops.py --package wisp --second [--device cuda]

In such a region operators on tensors of any size are noted. Whatever a check calls must give what it gives at once.
"""

import os
import pathlib
import sys

# Processes that are spawned read it there.
SCRIPT = os.environ.setdefault("WISP_SCRIPT_IN_REGIONS", sys.argv[1] if len(sys.argv) > 1 else "")
if not SCRIPT:
    sys.exit(__doc__)
if sys.argv[1:2] == [SCRIPT]:
    del sys.argv[1]
sys.path.insert(0, str(pathlib.Path(SCRIPT).resolve().parent))

import common  # noqa: E402  beside the script

import wisp  # noqa: E402

at_once = common.Recorder.__call__


def record(self, category, sub, i, check):
    wisp._core._set_worth_noting(0)
    at_once(self, category, sub, i, wisp.compile(check))


common.Recorder.__call__ = record
exec(compile(pathlib.Path(SCRIPT).read_text(), SCRIPT, "exec"))  # in this module, where processes that are spawned find its functions
