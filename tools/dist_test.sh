#!/usr/bin/env bash
# Evaluates with several processes: tools/dist_test.sh CONFIG CHECKPOINT GPUS [flags of tools/test.py]
#
# One process per GPU; DEVICE=cpu before the command runs GPUS processes on the CPU (gloo).
# Environment: NNODES, RDZV        the same call on every host: their number, and ADDRESS:PORT of one of them
#              NNODES, NODE_RANK, MASTER_ADDR, PORT   one call per host, as in mmdet and mmseg
#              PYTHON (python)     interpreter
set -euo pipefail
if [ $# -lt 3 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
CONFIG=$1
CHECKPOINT=$2
GPUS=$3
shift 3
# shellcheck source=tools/_launch.sh
source "$(dirname "$0")/_launch.sh"
launch "$GPUS" "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" --launcher pytorch "$@"
