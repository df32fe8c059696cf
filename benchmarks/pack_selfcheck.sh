#!/usr/bin/env bash
# Packs benchmarks/selfcheck.py for a machine without a network that has torch, torchvision, timm, OpenCV and SciPy:
#
#   bash benchmarks/pack_selfcheck.sh FOLDER [PYTHON_VERSION]     # 3.12
#   cd FOLDER && bash run.sh --device cuda                        # there: writes selfcheck/selfcheck.json
set -euo pipefail
folder=$(realpath -m "$1") version=${2:-3.12}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$folder/wheels" "$folder/tests/data"
git ls-files cvt_dense configs tools benchmarks/*.py tests/data/cvt_tiny_golden.safetensors setup.py |
    tar -c -T - | tar -x -C "$folder"
pinned() { grep -E "^$1==" requirements.txt | cut -d ' ' -f 1; }
python=${PYTHON:-.venv/bin/python}
"$python" -m pip wheel -q --no-deps -w "$folder/wheels" \
    "$(pinned onedl-mmengine)" "$(pinned onedl-mmdetection)" "$(pinned onedl-mmsegmentation)"  # of pure Python
"$python" -m pip download -q --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 -d "$folder/wheels" \
    "$(pinned pycocotools)" "$(pinned supervision)" addict termcolor terminaltables shapely prettytable wcwidth ftfy \
    defusedxml six yapf platformdirs
# mmcv has no wheel; where torch cannot be imported, its set-up makes one of pure Python
cp "${XDG_CACHE_HOME:-$HOME/.cache}"/cvt_dense/wheels/onedl-mmcv-*-pure/*.whl "$folder/wheels"
cat > "$folder/run.sh" <<'RUN'
cd "$(dirname "${BASH_SOURCE[0]}")"
python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target site wheels/*.whl
export PYTHONPATH=$PWD:$PWD/site
python3 -m cvt_dense.ops  # mmcv's operators
python3 benchmarks/selfcheck.py "$@"
RUN
du -sh "$folder"
