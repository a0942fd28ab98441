"""Prints the table of results: python tools/pytorch_tests/summary.py RESULTS [BASELINE]"""

import collections
import json
import pathlib
import re
import sys

from scope import out_of_scope

BAD = ("failed", "error", "crashed", "hung")
PRIVATE = re.compile(
    r"Wisp has no (module )?torch(\.\w+)*\._\w|(no|not have the) attribute '_(?!_)\w+'|MISSING API: torch(\.\w+)*\._\w"
    r"|stub of the harness|<stub torch|cannot import name '_|HarnessStub|torch\.ops\.\w+|No module named 'torch(\.\w+)*\._"
    r"|TorchScript|torch\._C"
)
ABSENT = re.compile(r"AbsentDtype|no (dtype )?torch\.(complex32|float8|float4|chalf|q?u?int[1-7]?8?)")
COLUMNS = "collected run passed failed error skipped crashed hung out env private".split()
HEADINGS = "collected | run | passed | failed | error | skipped | crashed | hung | out of scope | fails on torch too | private API"


def category(record):
    """Of a test that did not pass."""
    kind, head = record.get("kind", ""), record.get("text", "").split("To execute this test")[0]
    if record["status"] in ("crashed", "hung"):
        return record["status"]
    if kind == "HarnessStub" or PRIVATE.search(head):
        return "private"
    if re.search(r"_(complex32|float8_\w+|float4_\w+)$", record.get("id", "")) or ABSENT.search(head):
        return "dtype"
    if kind == "AssertionError":
        if '" does not match "' in head:
            return "message"
        if re.search(r"Warning not triggered|warnings? (was|were) not", head):
            return "warning"
        return "not raised" if "not raised" in head else "values"
    lacking = ("MissingName", "MissingImport", "ModuleNotFoundError", "ImportError", "NotImplementedError")
    if kind in lacking or "has no attribute" in head or "MISSING API" in head:
        return "missing API"
    return "unexpected success" if kind == "UnexpectedSuccess" else "other error"


def load(folder):
    return {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))}


def count(records, baseline):
    """The numbers of a file's row, and the categories of what did not pass."""
    row, categories = collections.Counter(), collections.Counter()
    for key, record in records.items():
        if key == "__file__":
            row["collected"] = record.get("collected", 0)
            continue
        status = record["status"]
        if status in ("not run", "missing"):
            continue
        row["run"] += 1
        row[status] += 1
        if status == "skipped":
            continue
        if out_of_scope(key):
            row["out"] += 1
            continue
        if status in BAD:
            if baseline.get(key.replace("_wisp_nn_", "_nn_"), {}).get("status", "passed") in (*BAD, "skipped"):
                row["env"] += 1
                continue
            what = category(record)
            categories[what] += 1
            if what == "private":
                row["private"] += 1
                continue
        row["scope"] += 1
        row["scope_passed"] += status == "passed"
    row["collected"] = row["collected"] or sum(key != "__file__" for key in records)
    return row, categories


def percent(passed, ran):
    return 100 * passed / max(1, ran)


def table(results, baseline=None, names=None):
    """Prints the rows of `names` (all, without), and returns the percentage of the tests in scope that pass."""
    results, baseline = load(results), load(baseline) if baseline else {}
    listed = (pathlib.Path(__file__).parent / "files.txt").read_text().split()
    order = [name.replace("/", "__").removesuffix(".py") for name in listed]
    totals, categories = collections.Counter(), collections.Counter()
    print(f"| file | {HEADINGS} | in scope: passed/ran | % |")
    print("|---|" + "---:|" * (len(COLUMNS) + 2))

    def line(name, row):
        cells = " | ".join(str(row[column]) for column in COLUMNS)
        share = f"{row['scope_passed']}/{row['scope']} | {percent(row['scope_passed'], row['scope']):.1f}"
        print(f"| {name.replace('__', '/')} | {cells} | {share} |")

    for name in order + sorted(set(results) - set(order)):
        if name in results and (not names or name in names):
            row, kinds = count(results[name], baseline.get(name, {}))
            totals.update(row)
            categories.update(kinds)
            line(name, row)
    line("**all**", totals)
    rate = percent(totals["scope_passed"], totals["scope"])
    strict = percent(totals["scope_passed"], totals["scope"] + totals["private"])
    print(f"\nPass rate in scope: {rate:.1f} % (with the tests of private names counted as failures: {strict:.1f} %)")
    print("Not passed, by kind: " + ", ".join(f"{kind} {number}" for kind, number in categories.most_common()))
    return rate


if __name__ == "__main__":
    table(*sys.argv[1:3])
