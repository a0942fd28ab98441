"""How much of the code the tests run: python tools/measure_coverage.py [--report FILE] [what pytest takes; tests/fast without it]

Builds the core so that it counts its lines (in build/coverage), runs the tests on it under coverage.py, programs that they start
included, and prints a table: of the lines that can run, how many did, in every folder of src/wisp and csrc. Needs what CONTRIBUTING.md
installs, and coverage; gcov comes with GCC. A test that fails does not end it: whether tests pass is for others to say.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

from develop import ROOT, tool

BUILD = ROOT / "build" / "coverage"
TREE = BUILD / "tree"  # the package with that core


def build():
    settings = [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DWISP_COVERAGE=ON"]
    subprocess.run([tool("cmake"), "-G", "Ninja", "-S", ROOT, "-B", BUILD, *settings], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tool("ninja"), "-C", BUILD], check=True)
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "wisp", TREE / "wisp", ignore=shutil.ignore_patterns("_core*", "__pycache__", "*.pyi"))
    for core in BUILD.glob("_core*.so"):
        shutil.copy(core, TREE / "wisp")


def run(arguments):
    """Run the tests; what was counted lies in TREE and beside the objects."""
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    settings = TREE / "coverage.ini"
    settings.write_text(f"[run]\nsource = {TREE / 'wisp'}\ndata_file = {TREE / 'counted'}\nparallel = True\npatch = subprocess\n")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    end = subprocess.run(command, cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(TREE))).returncode
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet", f"--rcfile={settings}"], cwd=TREE, check=True)
    subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", f"--rcfile={settings}", "-o", TREE / "counted.json"], check=True)
    return end


def python_lines():
    """File -> (lines that can run, lines that ran)."""
    counted = json.loads((TREE / "counted.json").read_text())["files"]
    places = {path: (ROOT / path).resolve() for path in counted}
    return {
        "src/" + str(place.relative_to(TREE.resolve())): (
            counted[path]["summary"]["num_statements"],
            counted[path]["summary"]["covered_lines"],
        )
        for path, place in places.items()
    }


def native_lines():
    """The same of the core. A line that is compiled several times, of a header or a template, ran if one of them did."""
    lines = collections.defaultdict(dict)

    def read(counts):
        command = ["gcov", "--json-format", "--stdout", counts]
        return subprocess.run(command, capture_output=True, text=True, cwd=BUILD).stdout.splitlines()

    # Where an object never ran there are no counts, and gcov reads its notes: none of its lines did.
    notes = [path for path in BUILD.rglob("*.gcno")]
    inputs = [path.with_suffix(".gcda") if path.with_suffix(".gcda").exists() else path for path in notes]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for documents in pool.map(read, inputs):
            for document in map(json.loads, documents):
                for file in document["files"]:
                    place = (BUILD / file["file"]).resolve()
                    if place.is_relative_to(ROOT / "csrc"):
                        known = lines[str(place.relative_to(ROOT))]
                        for line in file["lines"]:
                            known[line["line_number"]] = known.get(line["line_number"], False) or line["count"] > 0
    return {file: (len(known), sum(known.values())) for file, known in lines.items()}


def table(title, files):
    """Rows of a table in Markdown, a folder in each."""
    folders = collections.defaultdict(lambda: [0, 0])
    for file, counts in files.items():
        parts = file.split("/")
        depth = 3 if parts[0] == "src" else 2
        for name in ("/".join(parts[:depth]), "**all**"):
            for i in range(2):
                folders[name][i] += counts[i]
    rows = [f"| {title} | lines | ran | |", "|---|---:|---:|---:|"]
    for name in sorted(folders, key=lambda name: (name == "**all**", name)):
        total, ran = folders[name]
        rows += [f"| {name} | {total} | {ran} | {ran / total:.1%} |"] if total else []
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=pathlib.Path, help="write the table to this file, too")
    given, arguments = parser.parse_known_args()
    build()
    end = run(arguments or ["tests/fast"])
    rows = [*table("Python", python_lines()), "", *table("C++", native_lines())]
    rows += [f"\npytest ended with {end}: some of what it should have run may not be counted"] if end else []
    print("\n".join(rows))
    if given.report:
        given.report.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
