#!/bin/sh
# properties = {properties}
# A job of the cluster. How it ended goes into a file, for not every cluster can be asked for that afterwards.
cd "${{PBS_O_WORKDIR:-.}}" || exit
TELEPORT_JOB="${{PBS_JOBID:-${{LSB_JOBID:-${{JOB_ID:?no id of the job: name its variable in job.sh}}}}}}"
export TELEPORT_JOB
( {exec_job} )
status=$?
echo "$status" > "results/logs/cluster/$TELEPORT_JOB.status"
exit "$status"
