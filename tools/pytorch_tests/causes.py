"""Groups what did not pass by its message, largest first: python tools/pytorch_tests/causes.py RESULTS [FILE] [--all] [--ids]

FILE is a pattern such as 'test_sparse*'; --all counts what is out of scope too; --ids lists every test of a group.
"""

import argparse
import collections
import json
import pathlib
import re

from scope import out_of_scope

DTYPES = "bfloat16|float16|float32|float64|int8|int16|int32|int64|uint8|complex64|complex128|bool"


def key(record):
    text = re.sub(r"\n*To execute this test.*", "", record.get("text", ""), flags=re.S)
    text = re.sub(r"Caused by sample input.*", "", text, flags=re.S)
    text = text.strip().split("\n")[0] if "not close" not in text else "Tensor-likes are not close"
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"/tmp/[\w/.:]+", "PATH", text)
    text = re.sub(rf"\b({DTYPES})\b", "DT", text)
    text = re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "N", text)
    return f"{record['status']} {record.get('kind', '')}: {text[:160]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results")
    parser.add_argument("file", nargs="?", default="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ids", action="store_true")
    options = parser.parse_args()
    groups = collections.defaultdict(list)
    for path in sorted(pathlib.Path(options.results).glob(f"{options.file}.json")):
        for name, record in json.loads(path.read_text()).items():
            passed = record["status"] in ("passed", "skipped", "not run") or name == "__file__"
            if not passed and (options.all or not out_of_scope(name)):
                groups[key(record)].append((name, record))
    for label, items in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"{len(items):5} {label}")
        for name, record in items if options.ids else items[:1]:
            print(f"        {name.split('.', 1)[1]} @ {record.get('line', '')[:110]}")


if __name__ == "__main__":
    main()
