#!/usr/bin/env bash
# Trains under Slurm: tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [flags of tools/train.py]
#
# One task per GPU; with DEVICE=cpu before the command the tasks run on the CPU (gloo).
# Environment: GPUS (8)  all GPUs of the job       GPUS_PER_NODE (8)  CPUS_PER_TASK (5)
#              SRUN_ARGS  more options of srun, such as --signal=USR1@120: 120 s before the time limit every
#                         task saves and ends; submit the same command with --resume to go on
#              REQUEUE=1  in an sbatch script: the job that was stopped is queued again and resumes, until the
#                         training is complete or fails
#              PYTHON (python)  interpreter
set -euo pipefail
if [ $# -lt 4 ]; then
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
WORK_DIR=$4
shift 4
# shellcheck source=tools/_launch.sh
source "$(dirname "$0")/_launch.sh"
launch_slurm "$PARTITION" "$JOB_NAME" \
    "$(dirname "$0")/train.py" "$CONFIG" --work-dir "$WORK_DIR" --launcher slurm "$@"
