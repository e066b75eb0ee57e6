#!/bin/sh
# Test the GPUs of this node, as the Job of a validation. The controller reads the output of this script and
# its termination message strictly (konductor_like/detection/validation.py).
#
# KL_ATTEMPT  name of the attempt, in each frame
# KL_LEVEL    level of `dcgmi diag`: 2, 3 or 4
# KL_GPUS     number of GPUs that the node should have
# KL_COMMAND  the user's own test, run in place of dcgm and nccl; may be absent
#
# The image needs sh and nvidia-smi, and dcgmi or what KL_COMMAND names. `dcgmi diag` starts an embedded
# hostengine of its own where none answers at localhost (DoExecuteConnectionFailure in dcgmi/Diag.cpp of
# NVIDIA/DCGM, 3.0 to 4.6), so that this script starts none.
#
# Exit code 0 says that the tests came to their end, not that they passed.
set -u
export LC_ALL=C

attempt=${KL_ATTEMPT:?} level=${KL_LEVEL:?} expected=${KL_GPUS:?} command=${KL_COMMAND:-}
termination_log=${KL_TERMINATION_LOG:-/dev/termination-log}
boot_id_file=${KL_BOOT_ID_FILE:-/proc/sys/kernel/random/boot_id}
steps='' driver=none gpus=0 xml=''

frame() {
    printf '=== konductor-like %s %s ===\n' "$attempt" "$*"
}

boot_id() {
    id=none
    IFS= read -r id <"$boot_id_file" || :
    printf '%s' "${id:-none}"
}

# run STEP COMMAND...: run the command once, its output in the step's frame.
run() {
    step=$1
    shift
    frame begin "$step"
    "$@" 2>&1 </dev/null
    code=$?
    # The output may end within a line.
    printf '\n'
    frame end "$step" "rc=$code"
    steps="$steps,$step:$code"
    return "$code"
}

facts() {
    xml=$(nvidia-smi -q -x 2>&1)
    code=$?
    printf '%s\n' "$xml"
    return "$code"
}

# Read the XML, and print the number of GPUs and the driver's version.
count() {
    while IFS= read -r line; do
        case $line in
        *'<gpu id='*) gpus=$((gpus + 1)) ;;
        *'<driver_version>'*) driver=${line#*'<driver_version>'} driver=${driver%%'<'*} ;;
        esac
    done
    case $driver in '' | *[!0-9A-Za-z._-]*) driver=none ;; esac
    printf '%s %s' "$gpus" "$driver"
}

tests() {
    if [ -n "$command" ]; then
        run command sh -c "$command"
    elif run dcgm dcgmi diag -r "$level" --json; then
        if command -v all_reduce_perf >/dev/null 2>&1; then
            run nccl all_reduce_perf -b 8 -e 256M -f 2 -g "$expected"
        else
            frame skipped nccl
            steps="$steps,nccl:skipped"
        fi
    fi
}

validate() {
    boot=$(boot_id)
    frame start "boot=$boot"
    run facts facts
    facts_code=$?
    counted=$(printf '%s\n' "$xml" | count)
    gpus=${counted% *} driver=${counted#* }
    # Without its GPUs the node cannot pass: spare it the hours of load.
    if [ "$facts_code" -eq 0 ] && [ "$gpus" = "$expected" ]; then
        tests
    fi
    boot_end=$(boot_id)
    frame finish "boot=$boot_end"
    printf 'v=1 attempt=%s boot=%s boot_end=%s gpus=%s driver=%s steps=%s end\n' \
        "$attempt" "$boot" "$boot_end" "$gpus" "$driver" "${steps#,}" >"$termination_log"
}

stop() {
    trap '' TERM INT
    printf 'v=1 attempt=%s stopped\n' "$attempt" >"$termination_log"
    kill "$child" 2>/dev/null
    exit 143
}

# A shell handles a signal only after its command in the foreground has ended. So the tests run in the
# background, and the end of this process, the container's first, ends them all.
child=''
trap stop TERM INT
validate &
child=$!
wait "$child"
