"""Every operator with sizes that overflow: a process of its own, which a sanitizer ends at the first sum or product that does."""

import os
import pathlib
import subprocess
import sys


def test_every_operator_with_huge_sizes():
    program = pathlib.Path(__file__).parents[1] / "huge_sizes.py"
    options = os.environ.get("ASAN_OPTIONS", "") + ":allocator_may_return_null=1:max_allocation_size_mb=2000"
    sanitized = ["sanitized"] * ("asan" in os.environ.get("LD_PRELOAD", ""))
    result = subprocess.run(
        [sys.executable, program, "", *sanitized], capture_output=True, text=True, env={**os.environ, "ASAN_OPTIONS": options}
    )
    assert result.returncode == 0, result.stdout[-500:] + result.stderr[-3000:]
    assert "survived" in result.stdout
