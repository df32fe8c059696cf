#!/usr/bin/env bash
# Evaluates under Slurm: tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [flags of tools/test.py]
#
# One task per GPU; with DEVICE=cpu before the command the tasks run on the CPU (gloo).
# Environment: GPUS (8)  all GPUs of the job       GPUS_PER_NODE (8)  CPUS_PER_TASK (5)
#              SRUN_ARGS  more options of srun
#              PYTHON (python)  interpreter
set -euo pipefail
if [ $# -lt 4 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
CHECKPOINT=$4
shift 4
# shellcheck source=tools/_launch.sh
source "$(dirname "$0")/_launch.sh"
REQUEUE=0 launch_slurm "$PARTITION" "$JOB_NAME" "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" --launcher slurm "$@"
