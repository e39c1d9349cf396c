#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm_cluster.sh start FOLDER          a separate Slurm cluster in FOLDER: munged, slurmctld and the slurmd of two
#                                        compute hosts, h1 and h2, each in a network namespace with an address on a
#                                        common bridge
#                  down FOLDER HOST      the host dies: its slurmd and everything on it is killed, its network goes
#                  up FOLDER HOST        it comes back
#                  stop FOLDER           ends everything
# Clients need SLURM_CONF=FOLDER/slurm.conf. Exits with 77, and the cause, where this machine cannot have one.
set -euo pipefail
word=$1 folder=$2
conf=$folder/slurm.conf
export SLURM_CONF=$conf

skip() {
  echo "skipped: $*"
  exit 77
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# Runs a command in the network of a host, or in ours.
at() {
  local host=$1
  shift
  if [ -s "$folder/$host/holder" ]; then
    nsenter --net="/proc/$(cat "$folder/$host/holder")/ns/net" "$@"
  else
    "$@"
  fi
}

start_munge() {
  mkdir -m 0700 "$folder/munge"
  head -c 1024 /dev/urandom >"$folder/munge/key"
  chmod 0600 "$folder/munge/key"
  setsid munged --foreground --force --num-threads=2 --key-file="$folder/munge/key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" --origin=127.0.0.1 \
    </dev/null >"$folder/munge/log" 2>&1 &
  echo $! >"$folder/munged"
  for _ in $(seq 1200); do
    [ -S "$folder/munge.socket" ] && munge --socket="$folder/munge.socket" </dev/null >/dev/null 2>&1 && return
    sleep 0.05
  done
  cat "$folder/munge/log"
  skip "munged does not start here"
}

# A namespace for each host, with its own address on the network 192.0.2.0/24; ours is 192.0.2.1.
join_hosts() {
  local number=10 host holder
  if ip link show vtwire >/dev/null 2>&1; then
    echo "there is a bridge vtwire: another cluster runs here, or was killed ('ip link del vtwire' removes it)"
    exit 1
  fi
  ip link add vtwire type bridge
  ip addr add 192.0.2.1/24 dev vtwire
  ip link set vtwire up
  # A wire: what passes between the hosts is not forwarded by us.
  [ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
  for host in h1 h2; do
    number=$((number + 1))
    unshare --net sleep infinity &
    holder=$!
    echo $holder >"$folder/$host/holder"
    while [ "$(readlink "/proc/$holder/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    ip link add "vt$host" type veth peer name eth0 netns $holder
    ip link set "vt$host" master vtwire up
    at $host ip link set lo up
    at $host ip addr add 192.0.2.$number/24 dev eth0
    at $host ip link set eth0 up
  done
}

write_conf() {
  cat >"$conf" <<END
ClusterName=vtputest
SlurmctldHost=$(hostname)(192.0.2.1)
SlurmctldPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SlurmdTimeout=5
TCPTimeout=2
KillWait=5
InactiveLimit=0
MinJobAge=300
PropagateResourceLimits=NONE
NodeName=h1 NodeHostname=$(hostname) NodeAddr=192.0.2.11 Port=$(free_port) CPUs=4 RealMemory=4096
NodeName=h2 NodeHostname=$(hostname) NodeAddr=192.0.2.12 Port=$(free_port) CPUs=4 RealMemory=4096
PartitionName=tpu Nodes=h1,h2 Default=YES LLN=YES PriorityTier=10 MaxTime=UNLIMITED State=UP
PartitionName=low Nodes=h1,h2 LLN=YES PriorityTier=1 MaxTime=UNLIMITED State=UP
END
}

start_host() {
  local host=$1
  at "$host" env VTPU_HOST="$folder/$host" setsid slurmd -D -N "$host" </dev/null >"$folder/$host/out" 2>&1 &
}

wait_for_hosts() {
  for _ in $(seq 1200); do
    [ "$(sinfo --noheader --Node --format='%T' 2>/dev/null | grep -c idle)" -ge 2 ] && return
    sleep 0.1
  done
  sinfo --long --Node || true
  tail -n 20 "$folder"/slurmctld.log "$folder"/h?/slurmd.log || true
  echo "the cluster does not start"
  exit 1
}

# A process and everything below it; stopped first, so that nothing new starts in the meantime.
kill_tree() {
  local child
  kill -STOP "$1" 2>/dev/null || return 0
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do kill_tree "$child"; done
  kill -KILL "$1" 2>/dev/null || true
}

# Processes of a host are identified by their environment: its steps leave the tree of its slurmd.
kill_host() {
  local process
  for process in /proc/[0-9]*; do
    ! grep -qsz "^VTPU_HOST=$folder/$1\$" "$process/environ" || kill_tree "${process#/proc/}"
  done
}

case $word in
  start)
    for tool in munged slurmctld slurmd sbatch; do
      command -v $tool >/dev/null || skip "no $tool (Debian: munge, slurmctld, slurmd, slurm-client)"
    done
    [ "$(id -u)" = 0 ] || skip "a cluster whose hosts make guests needs root"
    mkdir -p "$folder/state" "$folder/h1/spool" "$folder/h2/spool"
    start_munge
    join_hosts
    write_conf
    setsid slurmctld -D </dev/null >"$folder/slurmctld.out" 2>&1 &
    echo $! >"$folder/slurmctld"
    start_host h1
    start_host h2
    wait_for_hosts
    ;;
  down) kill_host "$3" ;;
  up) start_host "$3" ;;
  stop)
    for host in h1 h2; do kill_host $host; done
    for file in slurmctld munged h1/holder h2/holder; do
      [ ! -s "$folder/$file" ] || kill -KILL "$(cat "$folder/$file")" 2>/dev/null || true
    done
    ;;
  *) echo "slurm_cluster.sh start|down|up|stop FOLDER"; exit 2 ;;
esac
