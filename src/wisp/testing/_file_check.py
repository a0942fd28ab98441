"""Looks for pieces of a text in order."""

import re


class FileCheck:
    """Checks that are noted one after another, of which `run(text)` raises RuntimeError at the first that fails.

    `check` wants a piece behind what was found before, `check_same` on its line, `check_next` on the line after it, `check_not` nowhere
    between what stands before and after, `check_count` several times (`exactly`: and not again), `check_dag` with its neighbours in any
    order, `check_regex` where an expression matches, and `check_source_highlighted` where the line below underlines it with `~`.

    >>> wisp.testing.FileCheck().check("a = 1").check_next("b").check_not("c").run("a = 1\\nb = 2")
    """

    def __init__(self):
        self._checks = []

    def _note(self, kind, pattern, count=1):
        self._checks.append((kind, pattern, count))
        return self

    def check(self, test_string):
        """The piece is behind what was found before."""
        return self._note("check", re.escape(test_string))

    def check_same(self, test_string):
        """The piece is on the line of what was found before, behind it."""
        return self._note("same", re.escape(test_string))

    def check_next(self, test_string):
        """The piece is on the line after that of what was found before."""
        return self._note("next", re.escape(test_string))

    def check_not(self, test_string):
        """The piece is not between what the checks before and after this find, or up to the end."""
        return self._note("not", re.escape(test_string))

    def check_count(self, test_string, count, exactly=False):
        """The piece is there so many times; with `exactly` not more often."""
        if count:
            self._note("check", re.escape(test_string), count)
        return self.check_not(test_string) if exactly else self

    def check_dag(self, test_string):
        """The piece is behind what was found before the checks of this kind that stand together."""
        return self._note("dag", re.escape(test_string))

    def check_regex(self, test_string):
        """What the expression matches is behind what was found before."""
        return self._note("check", test_string)

    def check_source_highlighted(self, test_string):
        """The piece is there, underlined on the line below."""
        return self._note("highlighted", re.escape(test_string))

    def run(self, test_string):
        """Check a text."""
        position, absent, start = 0, [], None
        for kind, pattern, count in self._checks:
            if kind == "not":
                absent.append(pattern)
                continue
            start = (position if start is None else start) if kind == "dag" else None
            begin, first = start if kind == "dag" else position, None
            for _ in range(count):
                found = self._find(kind, pattern, test_string, begin)
                first, begin = (found.start() if first is None else first), found.end()
            self._refuse(absent, test_string, position, first)
            position, absent = max(position, begin), []
        self._refuse(absent, test_string, position, len(test_string))

    def _find(self, kind, pattern, text, begin):
        end = len(text)
        if kind in ("same", "next"):
            end = (text + "\n").index("\n", begin)
            if kind == "next":
                begin, end = end + 1, (text + "\n\n").index("\n", min(end + 1, len(text) + 1))
        for found in re.compile(pattern).finditer(text, min(begin, len(text)), min(end, len(text))):
            if kind != "highlighted" or self._underlined(text, found):
                return found
        raise RuntimeError(f"Expected to find {pattern!r} ({kind}) but did not find it\nSearched:\n{text[begin:end]}")

    def _underlined(self, text, found):
        head = text.rfind("\n", 0, found.start()) + 1
        below = text[(text + "\n").index("\n", found.end()) + 1 :].partition("\n")[0]
        marks = below[found.start() - head : found.end() - head]
        return len(marks) == found.end() - found.start() > 0 and set(marks) <= {"~", "^"} and "~" in marks

    def _refuse(self, patterns, text, begin, end):
        for pattern in patterns:
            if re.search(pattern, text[begin:end]):
                raise RuntimeError(f"Expected to not find {pattern!r} but found it\nSearched:\n{text[begin:end]}")
