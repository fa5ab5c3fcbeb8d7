#!/usr/bin/env bash
# A real Slurm with two nodes on this one host, for tests/test_slurm.py. Needs root and Debian's packages:
#   apt-get install --no-install-recommends munge slurmctld slurmd slurm-client
#   apt-get install --no-install-recommends slurmdbd mariadb-server     # with accounting, as clusters have it
#
#   tests/slurm_cluster.sh start DIR     # DIR/slurm.conf; export SLURM_CONF to use it
#   tests/slurm_cluster.sh stop DIR
set -Eeuo pipefail
dir=$(realpath -m "$2")

start_munge() {
    mkdir -p "$dir/munge" /run/munge && chown munge: "$dir/munge" /run/munge
    [ -s /etc/munge/munge.key ] || { dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1 status=none; }
    chown munge: /etc/munge/munge.key && chmod 400 /etc/munge/munge.key
    # munged refuses folders that others may write
    runuser -u munge -- munged --force --socket /run/munge/munge.socket.2 --pid-file "/run/munge/gpubench.pid" \
        --log-file /run/munge/gpubench.log --seed-file /run/munge/gpubench.seed
}

start_accounting() {
    mkdir -p "$dir/db" && chown mysql: "$dir/db"
    mariadb-install-db --user=mysql --datadir="$dir/db" --auth-root-authentication-method=socket >/dev/null
    mariadbd --no-defaults --user=mysql --datadir="$dir/db" --skip-networking --socket="$dir/db/sock" \
        --pid-file="$dir/db/pid" --innodb-lock-wait-timeout=900 >"$dir/db.log" 2>&1 &
    for _ in $(seq 100); do mariadb --socket="$dir/db/sock" -e 'select 1' >/dev/null 2>&1 && break; sleep 0.2; done
    mariadb --socket="$dir/db/sock" -e "create database slurm; create user slurm@localhost identified by 'x';
        grant all on slurm.* to slurm@localhost"
    cat >"$dir/slurmdbd.conf" <<EOF
AuthType=auth/munge
DbdHost=localhost
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=slurm
StorageUser=slurm
StoragePass=x
LogFile=$dir/slurmdbd.log
PidFile=$dir/slurmdbd.pid
EOF
    chmod 600 "$dir/slurmdbd.conf"
    # slurmdbd finds the database by its usual socket
    mkdir -p /run/mysqld && ln -sf "$dir/db/sock" /run/mysqld/mysqld.sock
    SLURM_CONF="$dir/slurmdbd.conf" slurmdbd
    for _ in $(seq 100); do SLURM_CONF="$dir/slurm.conf" sacctmgr -i show cluster >/dev/null 2>&1 && break; sleep 0.2; done
}

stop() {
    for pid in "$dir"/slurmd.n1.pid "$dir"/slurmd.n2.pid "$dir/slurmctld.pid" "$dir/slurmdbd.pid" "$dir/db/pid" \
        /run/munge/gpubench.pid; do
        [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null || true
    done
    sleep 2
}

case $1 in
start)
    trap 'stop' ERR
    mkdir -p "$dir/state"
    accounting=
    if command -v slurmdbd >/dev/null && command -v mariadbd >/dev/null; then
        accounting="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
JobAcctGatherType=jobacct_gather/linux"
    fi
    cat >"$dir/slurm.conf" <<EOF
ClusterName=gpubench
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
InactiveLimit=0
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
$accounting
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=17001 CPUs=$(nproc) State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=17002 CPUs=$(nproc) State=UNKNOWN
PartitionName=cpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
EOF
    export SLURM_CONF="$dir/slurm.conf"
    start_munge
    [ -z "$accounting" ] || start_accounting
    slurmctld -c
    slurmd -N n1
    slurmd -N n2
    for _ in $(seq 150); do
        [ "$(sinfo -h -N -o %t 2>/dev/null | grep -c idle)" = 2 ] && exit 0
        sleep 0.2
    done
    echo "the nodes did not come up; see $dir/*.log" >&2
    stop
    exit 1
    ;;
stop)
    stop
    ;;
esac
