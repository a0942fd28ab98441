"""What the workflows run exists, and what a release writes into the metadata can be read."""

import os
import pathlib
import re
import subprocess

import pytest

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(path):
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_programs_exist(path):
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        for name in re.findall(r"(?:bash|python) ([\w./]+)", command):
            assert (ROOT / name).is_file(), f"{path.name} runs {command!r}"


def test_addresses_of_a_release(tmp_path):
    tomllib = pytest.importorskip("tomllib")
    (step,) = (step for step in steps(ROOT / ".github/workflows/wheels.yml") if "home" in step.get("env", {}))
    before = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(before)
    subprocess.run(["bash", "-ec", step["run"]], cwd=tmp_path, check=True, env={**os.environ, "home": "https://host/us/wisp"})
    after = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    added = {
        "Source": "https://host/us/wisp",
        "Issues": "https://host/us/wisp/issues",
        "Changelog": "https://host/us/wisp/blob/main/CHANGELOG.md",
    }
    project = tomllib.loads(before)["project"]
    assert after == {**project, "urls": {**project["urls"], **added}}


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_issue_templates(path):
    form = yaml.safe_load(path.read_text())
    if path.stem != "config":
        assert form["name"] and form["description"]
        assert all(part["id"] and part["attributes"]["label"] for part in form["body"])
