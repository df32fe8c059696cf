#!/usr/bin/env bash
# Makes the virtual environment of `make demo` and `make test`; the Makefile calls it.
#
#   [VENV=.venv] [REQUIREMENTS=requirements.txt] [PYTHON=python3.11] [OPS=torch|compiled] bash tools/setup.sh
#
# It may be interrupted and run again; when nothing is to be done it takes a second. mmcv has no wheel on the package
# index. With OPS=torch, the default, its wheel is pure Python and cvt_dense.ops has the operators; with OPS=compiled
# they are compiled, which takes 5 to 20 minutes, and for GPUs half an hour. Wheels are kept in
# ${XDG_CACHE_HOME:-~/.cache}/cvt_dense/wheels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${VENV:-.venv}
requirements=${REQUIREMENTS:-requirements.txt}
ops=${OPS:-torch}
python=$venv/bin/python
stamp=$venv/setup_done  # line 1: what was set up; the other lines: the versions
mark=$venv/made_by_setup  # this folder may be emptied
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cvt_dense/wheels
mmcv=$(grep -oE '^(onedl-)?mmcv==[0-9.]+' "$requirements")  # for example onedl-mmcv==2.3.6
mmengine=${mmcv%%mmcv*}mmengine

say() { echo "== $*"; }
fail() { printf '\nset-up: %s\n' "$*" >&2; exit 1; }
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }
trap 'fail "interrupted; run the same command again and it goes on."' INT TERM

[[ $ops == torch || $ops == compiled ]] || fail "OPS=$ops: give OPS=torch (default) or OPS=compiled."
key="$ops $(cat "$requirements" requirements.txt pyproject.toml tools/setup.sh tools/_torchvision_shim.py | cksum) $PWD"
if [[ -e $stamp && $(head -1 "$stamp") == "$key" ]] && "$python" -c pass; then
    say "set-up is complete ($venv)"
    tail -n +2 "$stamp"
    exit
fi
if [[ -n $(ls -A "$venv" 2>/dev/null) && ! -e $mark && ! -e $stamp ]]; then
    fail "VENV=$venv is neither empty nor a virtual environment of set-up, which would empty it: name another folder."
fi
rm -f "$stamp"
mkdir -p "$cache"
exec 9>"$cache/setup_$ops.lock"  # one set-up at a time; OPS=torch does not wait for one that compiles
if command -v flock >/dev/null && ! flock --nonblock 9; then  # macOS has no flock
    say "waiting for another set-up, which holds $cache/setup_$ops.lock"
    flock 9
fi

# -- Python and, where mmcv is compiled, a compiler: before the long downloads --
supported='import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
if ! "$python" -c "$supported" 2>/dev/null || ! pip --version >/dev/null 2>&1; then
    candidates=${PYTHON:-python3.11 python3.12 python3.13 python3 python}
    found=
    for candidate in $candidates; do
        if "$candidate" -c "$supported" 2>/dev/null; then found=$candidate; break; fi
    done
    [[ -n $found ]] || fail "no Python 3.11 to 3.13 with its venv module was found among: $candidates. Install one" \
        '(Debian, Ubuntu: python3 and python3-venv), or run make setup PYTHON=/path/to/python.'
    say "making a virtual environment in $venv with $("$found" -V)"
    rm -rf "$venv"
    mkdir -p "$venv"
    touch "$mark"
    "$found" -m venv "$venv"
fi
touch "$mark"
if [[ $ops == compiled ]]; then
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    echo '#include <Python.h>' | "${CXX:-c++}" -x c++ -fsyntax-only -I"$include" - ||
        fail "OPS=compiled needs a C++ compiler (${CXX:-c++}) with Python's headers ($include), which do not work." \
            'Install both (Debian, Ubuntu: g++ and python3-dev) and run again, or leave OPS=compiled out.'
fi

say 'installing torch (0.3 GB to download, 3 GB with CUDA)'
pip install -c "$requirements" setuptools wheel ninja opencv-python
# after opencv-python, whose cv2 needs libGL, so that this one, which does not, overwrites it
pip install -c "$requirements" opencv-python-headless torch "$mmengine"

# -- mmcv --
if [[ $ops == torch ]]; then
    wheel=$cache/${mmcv/==/-}-pure
    if [[ ! -d $wheel ]]; then
        build=$(mktemp -d)  # mmcv compiles nothing where torch cannot be imported
        "$python" -m venv "$build/venv"
        "$build/venv/bin/pip" --disable-pip-version-check --quiet install -c "$requirements" setuptools wheel
        "$build/venv/bin/pip" --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation \
            --no-cache-dir --no-binary :all: -w "$build/wheel" "$mmcv"
        mv "$build/wheel" "$wheel"
        rm -rf "$build"
    fi
else  # a compiled wheel depends on torch's build, on Python, and for CUDA on the kinds of GPU
    wheel=$cache/$("$python" - "$mmcv" <<'PY'
import os, sys, sysconfig
import torch
from torch.utils.cpp_extension import CUDA_HOME
platform = f'cp{sys.version_info[0]}{sys.version_info[1]}-' + sysconfig.get_platform().replace('-', '_')
key = f'{sys.argv[1].replace("==", "-")}-torch{torch.__version__}-{platform}'
if torch.version.cuda and CUDA_HOME and os.environ.get('FORCE_CUDA') != '0':
    gpus = sorted({'%d.%d' % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())})
    # what is compiled for 8.0 runs on 8.6 and 8.9 as well
    gpus = os.environ.get('TORCH_CUDA_ARCH_LIST') or ' '.join(gpus) or '8.0 9.0+PTX'
    key += '-cuda' + gpus.replace(' ', '_').replace(';', '_')
elif torch.version.cuda:
    key += '-nocuda'
print(key)
PY
)
    export FORCE_CUDA=0
    if [[ $wheel == *-cuda* ]]; then
        export FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=${wheel##*-cuda}
        TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST//_/ }
        say "mmcv is compiled for GPUs of the compute capabilities $TORCH_CUDA_ARCH_LIST (TORCH_CUDA_ARCH_LIST sets" \
            'others, FORCE_CUDA=0 compiles for the CPU alone)'
    fi
    if [[ ! -d $wheel ]]; then
        build=$wheel.build  # stays if compiling is interrupted; only the files that are not compiled yet follow then
        if [[ ! -d $build/src ]]; then
            pip download --no-deps --no-build-isolation --no-binary :all: -d "$build" "$mmcv"
            rm -rf "$build/unpacked"
            "$python" -m tarfile -e "$build"/*.tar.gz "$build/unpacked"
            mv "$build"/unpacked/* "$build/src"
        fi
        say "compiling the operators of $mmcv, once: 5 to 20 minutes on 2 cores, for GPUs half an hour (log: $build/log)"
        PATH=$(cd "$venv/bin" && pwd):$PATH  # has ninja, without which setuptools compiles one file at a time
        export MMCV_WITH_OPS=1 MAX_JOBS=${MAX_JOBS:-$(getconf _NPROCESSORS_ONLN)} CFLAGS="${CFLAGS:-} -g0"
        pip --verbose --verbose wheel --no-deps --no-build-isolation --no-cache-dir -w "$build/wheel" "$build/src" 2>&1 |
            tee "$build/log" | { grep --line-buffered -oE '^ *\[[0-9]+/[0-9]+\]' || true; } || {
            grep -m 3 -E '(error|Error):' "$build/log" >&2 || tail -5 "$build/log" >&2
            fail "compiling $mmcv failed as printed above ($build/log has all of it). Where memory was short, run again" \
                'with MAX_JOBS=1: what is compiled already is kept.'
        }
        mv "$build/wheel" "$wheel"
        rm -rf "$build"
    fi
fi
say "mmcv from $wheel"
pip install --force-reinstall --no-deps "$wheel"/*.whl

say "installing the other packages of $requirements (0.4 GB) and this one"
pip install -r "$requirements"
pip install --no-deps --no-build-isolation --editable .
pip check
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$site"/_torchvision_shim*
if [[ $("$python" -c 'import torchvision' 2>&1) == *'operator torchvision::nms does not exist'* ]]; then
    cp tools/_torchvision_shim.py "$site"
    about="$site/_torchvision_shim-1.dist-info"
    mkdir "$about"
    printf 'Metadata-Version: 2.1\nName: _torchvision_shim\nVersion: 1\n' >"$about/METADATA"
    printf '[torch.backends]\ntorchvision_shim = _torchvision_shim:declare\n' >"$about/entry_points.txt"
fi
"$python" -m cvt_dense.ops

"$python" -c 'import mmcv.ops, mmdet.apis, mmseg.apis' >"$venv/imports.log" 2>&1 ||
    fail "the installed packages cannot be imported; $venv/imports.log has the reason."

versions=$("$python" - <<'PY'
import platform, torch
from importlib.metadata import distributions
print('python', platform.python_version())
wanted = ('torch', 'timm', 'numpy', 'mm', 'onedl', 'cvt')
print('\n'.join(sorted(f'{d.name} {d.version}' for d in distributions() if d.name.startswith(wanted))))
print(f'CUDA {torch.version.cuda}, {torch.cuda.device_count()} GPUs' if torch.version.cuda else 'no CUDA')
PY
)
printf '%s\n%s\n' "$key" "$versions" >"$stamp"
say "set-up is complete ($venv)"
echo "$versions"
