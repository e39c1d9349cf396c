#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm_job.sh FOLDER ARGUMENTS OF srun...    runs a job on a cluster of its own (slurm_cluster.sh) in FOLDER, which is to
#                                             be made, whose hosts know each other by name. Everything ends with it.
# Exits as the job does, or with 77, and the cause, where this machine cannot have one.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
if [ -z "${VTPU_SLURM_INSIDE:-}" ]; then
  apart=(unshare --net --mount --pid --fork --kill-child --mount-proc)
  why=$("${apart[@]}" true 2>&1) || { echo "skipped: $why"; exit 77; }
  exec env VTPU_SLURM_INSIDE=1 "${apart[@]}" bash "$0" "$@"
fi
folder=$1
shift
mkdir "$folder"
printf '%s\n' "127.0.0.1 localhost $(hostname)" "192.0.2.11 h1" "192.0.2.12 h2" >"$folder/names"
mount --bind "$folder/names" /etc/hosts
ip link set lo up
bash "$here/slurm_cluster.sh" start "$folder"
SLURM_CONF=$folder/slurm.conf srun "$@"
