#!/bin/sh
# What Snakemake says to a cluster, in the words of its scheduler:
#   scheduler.sh submit SCHEDULER NAME THREADS MEM_MB MINUTES GPUS [OPTION …] JOBSCRIPT    prints the id of the job
#   scheduler.sh status SCHEDULER ID                                                       prints running, success, failed
# Another scheduler is one more case everywhere, and its variable in job.sh.
set -u
logs=results/logs/cluster
do=$1 scheduler=$2
shift 2
case $scheduler in
pbs | lsf | sge) ;;
*)
    echo "scheduler.sh knows pbs, lsf and sge, not $scheduler" >&2
    exit 1
    ;;
esac

# An id may have been that of another job, whose status file is not this one's end.
submit() {
    mkdir -p "$logs"
    before=$(mktemp "$logs/.submitted.XXXXXX") || exit
    id=$(hand_over "$@") || { status=$?; rm -f "$before"; exit $status; }
    find "$logs" -name "$id.status" ! -newer "$before" -exec rm -f {} +
    rm -f "$before"
    echo "$id"
}

hand_over() {
    name=$1 threads=$2 mem=$3 minutes=$4 gpus=$5
    shift 5
    case $scheduler in
    pbs)
        select=select=1:ncpus=$threads:mem=${mem}mb
        [ "$gpus" = 0 ] || select=$select:ngpus=$gpus
        qsub -N "$name" -l "$select" -l "walltime=$((minutes * 60))" -j oe -o "$logs/" "$@"
        ;;
    lsf)  # it answers: Job <12> is submitted to queue <normal>.
        [ "$gpus" = 0 ] || set -- -gpu "num=$gpus" "$@"
        said=$(bsub -J "$name" -n "$threads" -R "span[hosts=1] rusage[mem=${mem}MB]" -M "${mem}MB" -W "$minutes" \
            -oo "$logs/%J.log" "$@") || exit
        echo "$said" | sed -n 's/^Job <\([0-9]*\)>.*/\1/p'
        ;;
    sge)  # memory is counted for each slot
        [ "$gpus" = 0 ] || set -- -l "gpu=$gpus" "$@"
        qsub -terse -cwd -S /bin/sh -N "$name" -pe smp "$threads" -l "mem_free=$((mem / threads))M" \
            -l "h_rt=$((minutes * 60))" -j y -o "$logs/" "$@"
        ;;
    esac
}

# Whether the scheduler says that a job is over or unknown. An answer of another kind (it is being restarted, the network
# fails) says nothing.
is_gone() {
    case $scheduler in
    pbs) said=$(qstat "$1" 2>&1) ;;
    lsf) said=$(bjobs -noheader -o stat "$1" 2>&1) ;;
    sge) said=$(qstat -j "$1" 2>&1) ;;
    esac
    case $said in
    *"Unknown Job"* | *"has finished"* | *" C "* | DONE* | EXIT* | *"is not found"* | *"do not exist"*) true ;;
    *) false ;;
    esac
}

# By the status that job.sh wrote; a killed one wrote none. What another node wrote may be seen late.
status() {
    end=$logs/$1.status
    if [ ! -s "$end" ]; then
        if ! is_gone "$1"; then
            echo running
            return
        fi
        sleep "${LATENCY:-10}"
    fi
    if [ "$(cat "$end" 2>/dev/null)" = 0 ]; then echo success; else echo failed; fi
}

"$do" "$@"
