"""What the operators of the core do, a sentence and an example each: the second half of their docstrings.

The texts lie in the .txt files here (`= name`, the sentence, the example) and are read when somebody asks for a docstring.
The first half, the signatures, comes from the registration.
"""

import functools
import pathlib

__all__ = ["describe", "texts"]


@functools.lru_cache(None)
def texts():
    """Path of an operator ("add", "nn.functional.pad") -> its text."""
    found = {}
    for file in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        for entry in file.read_text(encoding="utf-8").split("\n= "):
            name, _, text = entry.removeprefix("= ").partition("\n")
            sentence, _, example = text.strip().partition("\n")
            found[name] = f"{sentence}\n\n{example}"
    return found


def describe(space, name, inplace=False):
    """The text of an operator of a module ("wisp", "wisp.nn.functional"), or "" if there is none."""
    path = f"{space.removeprefix('wisp.')}." if space != "wisp" else ""
    text = texts().get(path + name) or texts().get(name) or texts().get("nn.functional." + name)
    if text is None and name.endswith("_"):
        return describe(space, name[:-1], True)
    if text is None:
        return ""
    return "Like the following, but the tensor itself is changed.\n\n" + text if inplace else text
