#!/usr/bin/env bash
# setup.sh GIT_DIR [TAG]: brings PyTorch's tests, the Python files of its release and an environment for them to $WISP_PYTORCH_TESTS
# (~/.cache/wisp/pytorch_tests).
# GIT_DIR is a clone that has the release's tag; Wisp itself is not installed there: run.py uses the one of the checkout.
set -euo pipefail
git=$1 tag=${2:-v2.13.0} home=${WISP_PYTORCH_TESTS:-${XDG_CACHE_HOME:-$HOME/.cache}/wisp/pytorch_tests}
mkdir -p "$home/src" "$home/whl"
git --git-dir="$git" archive "$tag" test torch/testing | tar x -C "$home/src"
pip download --quiet --no-deps --dest "$home/whl" torch==2.13.0
(cd "$home/whl" && unzip -q -o torch-2.13.0*.whl 'torch/*.py' 'torchgen/*' 'functorch/*' && rm torch-2.13.0*.whl)
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet pytest expecttest hypothesis numpy scipy scipy-openblas32 psutil typing_extensions sympy pyyaml pillow tensorboard
