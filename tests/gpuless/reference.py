"""The examples of the reference that ask for a GPU, on a stand-in. Run by test_host.py; prints the names of those that fail."""

import doctest

import wisp
from wisp import _reference

_reference.about("abs", ())
examples = {entry["Example"]: path for path, entries in _reference._entries[0].items() for entry in entries if "Example" in entry}
runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
ran, failed = 0, []
for text, path in examples.items():
    if "wisp.cuda" in text:
        test = doctest.DocTestParser().get_doctest(text + "\n", {"wisp": wisp}, path, None, 0)
        failed += [path] if runner.run(test, out=lambda line: None).failed else []
        ran += 1
print(ran if wisp.cuda.is_available() else 0, *failed)
