#!/usr/bin/env bash
# Packs benchmarks/selfcheck.py for a machine without a network that has torch, torchvision, timm, OpenCV, SciPy and
# Matplotlib:
#
#   bash benchmarks/pack_selfcheck.sh FOLDER [PYTHON_VERSION]     # 3.12
#   cd FOLDER && bash run.sh --device cuda                        # there: writes selfcheck/selfcheck.json
set -euo pipefail
folder=$(realpath -m "$1") version=${2:-3.12}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rm -rf "$folder"/{cvt_dense,configs,benchmarks,wheels,site,tmp}
mkdir -p "$folder"
git ls-files cvt_dense configs benchmarks/*.py tests/data/cvt_tiny_golden.safetensors | tar -c -T - | tar -x -C "$folder"
pinned() { grep -oE "^$1==\S+" requirements.txt; }
python=${PYTHON:-.venv/bin/python}
"$python" -m pip wheel -q --no-deps -w "$folder/wheels" \
    "$(pinned onedl-mmengine)" "$(pinned onedl-mmdetection)" "$(pinned onedl-mmsegmentation)"  # of pure Python
# mmcv has no wheel; where torch cannot be imported, its set-up makes one of pure Python
cp "${XDG_CACHE_HOME:-$HOME/.cache}"/cvt_dense/wheels/onedl-mmcv-*-pure/*.whl "$folder/wheels"
"$python" -m pip install -q --no-deps --no-compile --target "$folder/site" --only-binary=:all: \
    --python-version "$version" --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux_2_17_x86_64 "$folder"/wheels/*.whl "$(pinned pycocotools)" "$(pinned supervision)" addict \
    termcolor terminaltables shapely prettytable wcwidth ftfy defusedxml six yapf platformdirs
PYTHONPATH=$folder/site "$python" -m cvt_dense.ops  # mmcv's operators
tar -czf "$folder/site.tar.gz" -C "$folder" site
rm -r "$folder"/{site,wheels}
cat > "$folder/run.sh" <<'RUN'
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONPATH=$PWD:$PWD/site TMPDIR=$PWD/tmp  # nothing is written outside of this folder
[ -e tmp ] || { tar -xzf site.tar.gz && mkdir tmp; }
exec python3 benchmarks/selfcheck.py "$@"
RUN
du -sh "$folder"
