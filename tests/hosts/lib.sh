# shellcheck shell=bash
# Simulates several hosts on one machine, with namespaces, for tests of communication between hosts. To be sourced:
#
#   needs TRAIN                      declares that the test needs the program that the variable TRAIN names
#   enter_room "$@"                  restarts the script in isolated namespaces, the room
#   hosts_up 2                       creates host1 and host2, with the addresses 10.77.0.1 and 10.77.0.2
#   on_host 1 COMMAND...             runs a command on host1; may run in the background
#   degrade 2 5 1                    adds a delay of 5 ms and a packet loss of 1 % to the network of host2, both ways
#   pull_cable 2; mend_cable 2       disconnects host2 from the network; reconnects it
#   processes_on 1; leftovers 1      lists the processes of host1; lists its processes, open ports and files
#
# The room is a set of namespaces. The kernel kills the processes of its PID namespace when the script ends, even by
# SIGKILL, so no cleanup is needed. It has its own network, so that addresses and ports do not conflict with others, and
# an empty /tmp. A host is a network namespace that is connected to the room's bridge, with its own host name, /tmp and
# /dev/shm. A user who is not root becomes root inside the room, if the kernel allows user namespaces.

hosts_network=10.77.0
hosts_tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() {
    echo "SKIPPED: $*"
    exit 77
}

fail() {
    echo "FAILED: $*"
    exit 1
}

# wait_until SECONDS COMMAND...: waits until the command succeeds. Fails at the timeout.
wait_until() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# needs VARIABLE: replaces the path or name of a program in the variable by its absolute path. Skips the test if the
# program does not exist.
programs=()
needs() {
    local found
    found=$(command -v "${!1:-}") || skip "set $1 to the path of the program (it is '${!1:-}')"
    declare -g "$1=$(cd "$(dirname "$found")" && pwd)/$(basename "$found")"
    programs+=("${!1}")
}

# enter_room ARGUMENT...: restarts the script, with these arguments, in the room.
enter_room() {
    if [ -z "${DPTK_TEST_ROOM:-}" ]; then
        local tool namespaces=(unshare --net --mount --ipc --pid --fork --kill-child --mount-proc) why
        for tool in unshare nsenter setpriv ip ss; do
            command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: util-linux, iproute2)"
        done
        [ "$(id -u)" -eq 0 ] || namespaces+=(--user --map-root-user)
        why=$("${namespaces[@]}" sh -ec 'ip link add type veth; mount -t sysfs sysfs /sys; mount -t tmpfs tmp /tmp' 2>&1) ||
            skip "this machine does not allow the required namespaces (${why##*$'\n'})"
        DPTK_TEST_ROOM=yes setpriv --pdeathsig KILL "${namespaces[@]}" "$0" "$@"
        exit
    fi
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    ip link set lo up
    private_tmp
    room=/tmp/room
    mkdir "$room"
}

# Mounts an empty /tmp. Scripts and programs below the old /tmp stay visible.
private_tmp() {
    local path top
    exec {old_tmp}</tmp
    mount -t tmpfs -o mode=1777 room /tmp
    for path in "$(cd "$(dirname "$0")" && pwd)" "$PWD" "${programs[@]}"; do
        [[ $path = /tmp/* ]] || continue
        top=${path#/tmp/}
        top=${top%%/*}
        [ ! -e "/tmp/$top" ] || continue
        if [ -d "/proc/self/fd/$old_tmp/$top" ]; then mkdir "/tmp/$top"; else touch "/tmp/$top"; fi
        mount --no-canonicalize --bind "/proc/self/fd/$old_tmp/$top" "/tmp/$top"
    done
    exec {old_tmp}<&-
}

# hosts_up N: creates host1 to hostN.
hosts_up() {
    local k
    ip link add switch type bridge
    ip link set switch up
    echo "127.0.0.1 localhost" >"$room/hosts"
    for k in $(seq "$1"); do echo "$hosts_network.$k host$k" >>"$room/hosts"; done
    mount --bind "$room/hosts" /etc/hosts
    for k in $(seq "$1"); do host_up "$k"; done
}

host_up() {
    local k=$1 pid
    unshare --net --uts --mount --ipc sleep infinity &
    pid=$!
    until [ "$(<"/proc/$pid/comm")" = sleep ]; do sleep 0.01; done
    echo "$pid" >"$room/host$k"
    ip link add "port$k" type veth peer name eth0 netns "$pid"
    ip link set "port$k" master switch up
    # Some libraries use the boot id to detect which processes share a host.
    cat /proc/sys/kernel/random/uuid >"$room/host$k.boot_id"
    # shellcheck disable=SC2016  # $0 and $1 belong to the shell inside
    on_host "$k" sh -ec 'hostname "$0"
        here=/tmp/room/$0
        mount --bind "$here.boot_id" /proc/sys/kernel/random/boot_id
        mount -t tmpfs shm /dev/shm
        mkdir "$here.sys" "$here.tmp"
        mount -t sysfs sysfs "$here.sys"
        mount --rbind /sys/fs/cgroup "$here.sys/fs/cgroup"
        mount --no-mtab --move "$here.sys" /sys
        mount -t tmpfs -o mode=1777 tmp "$here.tmp"
        for kept in /tmp/*; do
            there=$here.tmp/${kept#/tmp/}
            if [ -d "$kept" ]; then mkdir "$there"; else touch "$there"; fi
            mount --bind "$kept" "$there"
        done
        mount --no-mtab --move "$here.tmp" /tmp
        ip link set lo up
        ip address add "$1/24" dev eth0
        ip link set eth0 up' "host$k" "$hosts_network.$k" || fail "host$k could not be set up"
}

# on_host K COMMAND...: runs a command on host K, in the directory /.
on_host() { nsenter --target "$(<"$room/host$1")" --net --uts --mount --ipc "${@:2}"; }

# degrade K MILLISECONDS PERCENT: adds delay and packet loss. Fails if neither the kernel nor slow-cable supports it.
degrade() {
    local k=$1 how=(delay "$2ms" loss "$3%")
    if on_host "$k" tc qdisc add dev eth0 root netem "${how[@]}" 2>/dev/null; then
        tc qdisc add dev "port$k" root netem "${how[@]}"
        return
    fi
    # Without netem, the path is: port - bridge - tap - slow-cable - tap - switch.
    "$hosts_tools/slow-cable" "host$k.tap" "switch$k.tap" "$2" "$3" 2>"$room/slow-cable.log" &
    wait_until 5 ip link show "switch$k.tap" >/dev/null 2>&1 || return
    ip link add "slow$k" type bridge
    ip link set "slow$k" up
    ip link set "port$k" master "slow$k"
    ip link set "host$k.tap" master "slow$k" up
    ip link set "switch$k.tap" master switch up
}

pull_cable() { ip link set "port$1" down; }
mend_cable() { ip link set "port$1" up; }

# processes_on K: prints one line per process, "PID COMMAND LINE".
processes_on() {
    local own namespace link pid
    own=$(<"$room/host$1")
    namespace=$(readlink "/proc/$own/ns/net")
    for link in /proc/[0-9]*/ns/net; do
        [ "$(readlink "$link" 2>/dev/null)" = "$namespace" ] || continue
        pid=${link#/proc/} pid=${pid%%/*}
        [ "$pid" = "$own" ] || echo "$pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
    done
}

# leftovers K: prints one line per process, open port, and file in /dev/shm or /tmp.
leftovers() {
    processes_on "$1" | sed "s/^/host$1: process /"
    on_host "$1" ss --no-header --listening --tcp --udp --numeric | sed "s/^/host$1: port /"
    on_host "$1" find /dev/shm -mindepth 1 | sed "s/^/host$1: /"
    on_host "$1" find /tmp -mindepth 1 -maxdepth 1 ! -exec mountpoint --quiet {} \; -print | sed "s/^/host$1: /"
}
