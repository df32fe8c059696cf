# shellcheck shell=bash
# Functions of the four launch scripts. They replace the shell by torchrun or srun, which signals then reach.

# Not installed, the package is found next to tools/.
PYTHONPATH="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH

# Exits unless the value ($2) of the setting named $1 is a positive integer.
check_count() {
    if ! [[ $2 =~ ^[1-9][0-9]*$ ]]; then
        echo "$1 is '$2', but must be a number of processes, 1 or more." >&2
        exit 2
    fi
}

# launch GPUS SCRIPT ARGS...: GPUS processes on this host through torchrun
launch() {
    local gpus=$1 nnodes=${NNODES:-1} restarts=${MAX_RESTARTS:-0} cores
    shift
    check_count GPUS "$gpus"
    local rendezvous=(--standalone --local-addr 127.0.0.1)  # finds a free port
    # Otherwise a restarted group finds its dead predecessor's addresses in the store, and may wait for them forever.
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    if [ -n "${RDZV:-}" ]; then
        if ! [[ $nnodes =~ ^[1-9][0-9]*(:[1-9][0-9]*)?$ ]]; then
            echo "NNODES is '$nnodes', but must be a number of hosts (2), or the fewest and the most of them (1:4)." >&2
            exit 2
        fi
        export PET_RDZV_BACKEND=c10d  # torchrun's option, as a variable, which StopHook reads
        rendezvous=(--nnodes "$nnodes" --rdzv-endpoint "$RDZV" --rdzv-id "$RDZV")
        restarts=${MAX_RESTARTS:-3}
    elif check_count NNODES "$nnodes" && [ "$nnodes" -gt 1 ] || [ -n "${PORT:-}" ]; then
        if [ "$nnodes" -gt 1 ] && { [ -z "${NODE_RANK:-}" ] || [ -z "${MASTER_ADDR:-}" ]; }; then
            echo "NNODES=$nnodes needs RDZV=ADDRESS:PORT of one of the hosts, the same on every host; or NODE_RANK (0 to" \
                "$((nnodes - 1)), this host's number) and MASTER_ADDR (address of host 0); PORT defaults to 29500." >&2
            exit 2
        fi
        rendezvous=(--nnodes "$nnodes" --node-rank "${NODE_RANK:-0}"
            --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${PORT:-29500}")
    fi
    cores=$(nproc)
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > gpus ? cores / gpus : 1))}
    exec "${PYTHON:-python}" -m torch.distributed.run \
        "${rendezvous[@]}" --nproc-per-node "$gpus" --max-restarts "$restarts" "$@"
}

# launch_slurm PARTITION JOB_NAME SCRIPT ARGS...: GPUS tasks through srun; REQUEUE=1 queues a stopped job again
launch_slurm() {
    local partition=$1 job_name=$2 gpus=${GPUS:-8} per_node=${GPUS_PER_NODE:-8} srun_args=() gres=() command i
    shift 2
    check_count GPUS "$gpus"
    check_count GPUS_PER_NODE "$per_node"
    per_node=$((gpus < per_node ? gpus : per_node))
    read -ra srun_args <<< "${SRUN_ARGS:-}"
    [ "${DEVICE:-}" = cpu ] || gres=(--gres="gpu:$per_node")
    command=(srun --partition="$partition" --job-name="$job_name" "${gres[@]}"
        --ntasks="$gpus" --ntasks-per-node="$per_node" --cpus-per-task="${CPUS_PER_TASK:-5}"
        --kill-on-bad-exit=1 "${srun_args[@]}" "${PYTHON:-python}" -u "$@")
    [ "${REQUEUE:-0}" = 1 ] || exec "${command[@]}"
    if [ -z "${SLURM_JOB_ID:-}" ]; then
        echo "REQUEUE=1 queues the job of an sbatch script again: call this script in one, and submit it by sbatch." >&2
        exit 2
    fi
    if [ -n "${SLURM_RESTART_COUNT:-}" ]; then  # the first start has moved an older run aside
        for i in "${!command[@]}"; do
            [ "${command[i]}" != --overwrite ] || unset "command[i]"
        done
        command+=(--resume)  # the last one counts
    fi
    "${command[@]}"  # a failure ends this script too
    # The last checkpoint of a run that a signal has stopped is preempted.pth, that of a complete run is another.
    if grep -qs 'preempted\.pth$' "$WORK_DIR/last_checkpoint"; then
        exec scontrol requeue "$SLURM_JOB_ID"
    fi
}
