#!/usr/bin/env bash
# Makes the virtual environment that `make demo` and `make test` run in; called by the Makefile.
#
#   [VENV=.venv] [REQUIREMENTS=requirements.txt] [PYTHON=python3.11] bash tools/setup.sh
#
# Run again it takes a second; interrupted, it goes on where it stopped. mmcv's operators are compiled once
# per mmcv version, torch build and Python: the wheel is kept in ${XDG_CACHE_HOME:-~/.cache}/cvt_dense.
# pip follows your own pip configuration and PIP_* variables, also in which build of torch it takes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${VENV:-.venv}
requirements=${REQUIREMENTS:-requirements.txt}
python=$venv/bin/python
stamp=$venv/setup_done  # its first line says for what set-up was done, the rest is the table of versions
log=$venv.log
offered=$venv/offered_wheel
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/cvt_dense/wheels
mmcv=$(sed -nE 's/^((onedl-)?mmcv==[0-9.]+).*/\1/p' "$requirements")  # for example onedl-mmcv==2.3.6
mmcv_name=${mmcv%%==*}
is_3_11='import sys; sys.exit(sys.version_info[:2] != (3, 11))'

say() { printf '== %s\n' "$*"; }
fail() {
    printf '\nset-up: %s\n' "$*" | fold -s -w 100 >&2
    exit 1
}
trap 'printf "\nset-up: interrupted; run the same command again and it goes on.\n" >&2; exit 130' INT TERM

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3 python /usr/bin/python3.11}; do
        if "$candidate" -c "$is_3_11" 2>/dev/null; then
            "$candidate" -c 'import ensurepip, venv' 2>/dev/null ||
                fail "$candidate has no venv module. Install it (Debian, Ubuntu: python3.11-venv) and run" \
                    'again.'
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 was found (looked for: ${PYTHON:-python3.11, python3, python}). Install it, or say" \
        'where it is: make setup PYTHON=/path/to/python3.11. The pinned versions are tested with 3.11; with' \
        "another Python install into an environment of your own: pip install -e '.[onedl]'."
}

# Free space in GB where a folder is or will be.
free_gb() {
    local folder=$1
    while [[ ! -d $folder ]]; do folder=$(dirname "$folder"); done
    df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }'
}

check_disk() {
    local need=5 folder
    if command -v nvidia-smi >/dev/null; then need=15; fi  # torch brings CUDA's libraries
    for folder in "$venv" "$wheels" "${TMPDIR:-/tmp}"; do
        (($(free_gb "$folder") >= need)) ||
            fail "the disk of $folder has $(free_gb "$folder") GB free, but packages and their downloads" \
                "need $need GB there. Make room and run again. (VENV, XDG_CACHE_HOME and TMPDIR move the" \
                'environment, the wheel cache and temporary files to other disks.)'
    done
}

check_compiler() {
    local include
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    echo '#include <Python.h>' | "${CXX:-c++}" -x c++ -fsyntax-only -I"$include" - >"$log" 2>&1 ||
        fail "no wheel of $mmcv fits this machine, so its operators must be compiled, but the C++ compiler" \
            "(${CXX:-c++}) with Python's headers ($include) does not work: $(tail -1 "$log"). Install both" \
            '(Debian, Ubuntu: g++ and python3.11-dev) and run again.'
}

# pip, with the usual causes of failure in words; everything it says is in the log.
pip() {
    local bar=off
    if [[ -t 1 ]]; then bar=on; fi
    : >"$log"
    # shellcheck disable=SC2094  # both only append
    PIP_PROGRESS_BAR=$bar "$python" -m pip --disable-pip-version-check --quiet --log "$log" "$@" 2>>"$log" &&
        return
    if grep -q 'No space left on device' "$log"; then
        fail "the disk became full while installing. Make room and run again. Details: $log"
    elif grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError' "$log"; then
        fail 'the package index cannot be reached. Check the network, and proxy and index in' \
            "'pip config list', and run again. Details: $log"
    elif grep -qE 'No matching distribution found|ResolutionImpossible' "$log"; then
        fail "the package index does not offer" \
            "$(grep -oE '(found for|\(constraint\)) .*' "$log" | tail -1 | sed -E 's/[^)]* for |.*\) //')." \
            "Check the index in 'pip config list' and run again. Details: $log"
    fi
    fail "pip failed: $(grep -oE 'ERROR: .*' "$log" | tail -1) Run again when that is mended. Details: $log"
}

# Do mmcv's compiled operators run beside the installed torch?
ops_work() {
    "$python" -c 'import torch; from mmcv.ops import nms; nms(torch.rand(4, 4), torch.rand(4), 0.5)' \
        >"$log" 2>&1
}

# Before the long downloads: is there, or can there be, a wheel of mmcv?
foresee_mmcv() {
    rm -rf "$offered"
    compgen -G "$wheels/${mmcv/==/-}-torch*-cp311-*/*.whl" >/dev/null ||
        "$python" -m pip download -qq --no-deps --only-binary :all: -d "$offered" "$mmcv" 2>/dev/null ||
        check_compiler
}

# Names the folder of the wheel cache: what a compiled mmcv depends on. Operators for CUDA are compiled where
# torch has CUDA and nvcc is there, for the GPUs seen (or named in TORCH_CUDA_ARCH_LIST).
wheel_key() {
    "$python" - "$mmcv" <<'PY'
import os, sys, sysconfig
import torch
from torch.utils.cpp_extension import CUDA_HOME
name = sys.argv[1].replace('==', '-')
abi = f'cp{sys.version_info.major}{sys.version_info.minor}'
key = f'{name}-torch{torch.__version__}-{abi}-{sysconfig.get_platform().replace("-", "_")}'
if torch.version.cuda:
    seen = sorted({torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())})
    seen = ' '.join(f'{major}.{minor}' for major, minor in seen)
    gpus = os.environ.get('TORCH_CUDA_ARCH_LIST') or seen or 'any'
    key += '-cuda' + gpus.replace(' ', '_').replace(';', '_') if CUDA_HOME else '-nocuda'
print(key)
PY
}

# Compiles mmcv and moves the wheel to folder $1 when it is whole. The sources stay until then, so that after
# an interruption only the files not yet compiled are.
build_mmcv() {
    local target=$1 build=$1.build cores jobs
    check_compiler
    mkdir -p "$build"
    if [[ ! -d $build/src ]]; then
        rm -rf "$build/download"
        pip download --no-deps --no-build-isolation --no-binary :all: -d "$build/download" "$mmcv"
        "$python" -m tarfile -e "$build"/download/*.tar.gz "$build/download/src"
        mv "$build"/download/src/* "$build/src"
    fi
    cores=$("$python" -c 'import os; print(os.cpu_count())')
    jobs=$(awk '/MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null || true)  # 1.5 GB each
    if [[ -z $jobs ]] || ((jobs > cores)); then jobs=$cores; elif ((jobs < 1)); then jobs=1; fi
    export MAX_JOBS=${MAX_JOBS:-$jobs} MMCV_WITH_OPS=1
    export CFLAGS="${CFLAGS:-} -g0"  # many Pythons pass -g, which doubles the time
    if [[ $target == *-cuda* ]]; then export FORCE_CUDA=1; fi
    say "compiling the operators of $mmcv, once: about 10 minutes on 2 cores, $MAX_JOBS files at a time" \
        "(log: $build/log)"
    rm -rf "$build/wheel"
    SECONDS=0
    "$python" -m pip --disable-pip-version-check wheel -v --no-deps --no-build-isolation --no-cache-dir \
        -w "$build/wheel" "$build/src" 2>&1 | tee "$build/log" | while IFS= read -r line; do
        if [[ $line =~ ^\ *(\[[0-9]+/[0-9]+\]) ]]; then
            printf '   %s files, %d min %02d s\n' "${BASH_REMATCH[1]}" $((SECONDS / 60)) $((SECONDS % 60))
        fi
    done || fail "compiling $mmcv failed; the first line with 'error' in $build/log says why. Run again" \
        'when that is mended: what is compiled already is kept.'
    mv "$build/wheel" "$target"
    rm -rf "$build"
}

# Installs mmcv from the wheel cache, else from the wheel the index offers, else compiles it.
install_mmcv() {
    local folder
    folder=$wheels/$(wheel_key)
    mkdir -p "$wheels"
    exec 8>"$folder.lock"
    flock -n 8 || { say "another set-up is compiling $mmcv; waiting for it" && flock 8; }
    if [[ ! -d $folder ]]; then
        # The wheel offered may be for another torch, which only running it tells.
        if compgen -G "$offered/*.whl" >/dev/null &&
            "$python" -m pip install -q --force-reinstall --no-deps "$offered"/*.whl && ops_work; then
            mv "$offered" "$folder"
        else
            build_mmcv "$folder"
        fi
    fi
    say "mmcv from $folder"
    pip install --force-reinstall --no-deps "$folder"/*.whl
    ops_work || fail "mmcv's operators do not run; $log says why. If its wheel is at fault, remove $folder" \
        'and run again: it is then compiled anew.'
    exec 8>&-
}

report() {
    "$python" - <<'PY'
import platform
from importlib.metadata import PackageNotFoundError, version
import torch
def row(*names):
    for name in names:
        try:
            return print(f'{names[-1]:14} {version(name)}' + (f'  ({name})' if name != names[-1] else ''))
        except PackageNotFoundError:
            pass
print(f'{"python":14} {platform.python_version()}')
row('torch'); row('torchvision'); row('timm'); row('numpy')
row('onedl-mmengine', 'mmengine'); row('onedl-mmcv', 'mmcv')
row('onedl-mmdetection', 'mmdet'); row('onedl-mmsegmentation', 'mmsegmentation'); row('cvt_dense')
cuda = f'{torch.version.cuda}, {torch.cuda.device_count()} GPU(s)' if torch.version.cuda else 'no'
print(f'{"CUDA":14} {cuda}')
PY
}

command -v flock >/dev/null || flock() { :; }  # macOS has none
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock -n 9 || { say "another set-up is at work in $venv; waiting for it" && flock 9; }

key=$(cat "$requirements" requirements.txt pyproject.toml cvt_dense/__init__.py tools/setup.sh | cksum)
key="$key $PWD"
if [[ -e $stamp && $(head -1 "$stamp") == "$key" ]] && "$python" -c pass 2>/dev/null; then
    say "set-up is complete ($venv)"
    tail -n +2 "$stamp"
    exit
fi

if [[ ! -e $venv/complete ]] || ! "$python" -c "$is_3_11" 2>/dev/null; then
    base=$(find_python)
    say "making a virtual environment in $venv with $("$base" -V)"
    "$base" -m venv --clear "$venv" >"$log" 2>&1 || fail "$base -m venv $venv failed: $(tail -1 "$log")"
    touch "$venv/complete"
fi
foresee_mmcv
[[ -e $stamp ]] || check_disk  # where a set-up was complete, not much is to come
rm -f "$stamp"

say 'installing torch and what mmcv needs (0.4 GB to download, 3 GB with CUDA)'
pip install -c "$requirements" setuptools wheel ninja opencv-python
# after opencv-python, whose cv2 needs libGL, so that this one's, which does not, overwrites it
pip install -c "$requirements" opencv-python-headless torch "${mmcv_name/mmcv/mmengine}"
install_mmcv
say "installing the other packages of $requirements (0.3 GB)"
pip install -r "$requirements"
say 'installing this package'
pip install --no-deps --no-build-isolation --editable .
"$python" - <<'PY'
import sysconfig
from pathlib import Path
from cvt_dense import declare_torchvision_ops
hook = Path(sysconfig.get_path('purelib'), 'cvt_dense_torchvision.pth')
hook.unlink(missing_ok=True)
if declare_torchvision_ops():
    hook.write_text('import cvt_dense\n')
PY
"$python" -m pip check || fail "the packages named above do not fit together: report it with $log."
"$python" -c 'import mmdet.apis, mmseg.apis' >"$log" 2>&1 ||
    fail "mmdet or mmseg cannot be imported; $log says why."
versions=$(report)
printf '%s\n%s\n' "$key" "$versions" >"$stamp"
say "set-up is complete ($venv)"
printf '%s\n' "$versions"
