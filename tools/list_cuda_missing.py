"""Writes tests/cuda/missing.txt: the operators whose example says, on the GPU, that there is no kernel for it.

python tools/list_cuda_missing.py    (on a machine with a GPU, or with a stand-in for its driver)
"""

import contextlib
import doctest
import io
import pathlib
import warnings

import wisp
from wisp import _core

PATH = pathlib.Path(__file__).parent.parent / "tests" / "cuda" / "missing.txt"


def is_missing(body):
    space = {"wisp": wisp}
    for example in doctest.DocTestParser().get_examples(body + "\n"):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example.source, "example", "single"), space)
        except NotImplementedError as error:
            return "there is no kernel" in str(error)
        except Exception:  # another error: the tests tell
            return False
    return False


def main():
    warnings.simplefilter("ignore")
    wisp.set_default_device("cuda")
    names = set()
    for name, text in _core._operator_texts().items():
        if is_missing(text):
            names.add(name)
    PATH.write_text("".join(name + "\n" for name in sorted(names)))
    print(f"{PATH}: {len(names)} operators")


if __name__ == "__main__":
    main()
