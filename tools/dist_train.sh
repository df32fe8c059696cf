#!/usr/bin/env bash
# Trains with several processes: tools/dist_train.sh CONFIG GPUS [flags of tools/train.py]
#
# One process per GPU; DEVICE=cpu before the command runs GPUS processes on the CPU (gloo).
# Environment: NNODES, RDZV        the same call on every host: their number, as 2 or 1:4 (at least and at most),
#                                  and ADDRESS:PORT of one of them; needs --resume
#              NNODES, NODE_RANK, MASTER_ADDR, PORT   one call per host, as in mmdet and mmseg
#              MAX_RESTARTS (0; with RDZV 3)   restarts after a crash; each one resumes from the last checkpoint
#              PYTHON (python)     interpreter
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
CONFIG=$1
GPUS=$2
shift 2
# shellcheck source=tools/_launch.sh
source "$(dirname "$0")/_launch.sh"
if [ -n "${RDZV:-}" ] && ! [[ " $* " =~ ' --resume '(-|$) ]]; then
    echo "RDZV=$RDZV needs --resume without a file, because the run continues where hosts join or leave it." >&2
    exit 2
fi
launch "$GPUS" "$(dirname "$0")/train.py" "$CONFIG" --launcher pytorch "$@"
