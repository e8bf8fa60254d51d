# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# NODES=2: a second virtual machine and two networks between both. Part of run, which starts
# itself again for node 2 (VM_NODE=2). VM_LINK is the directory of the networks' sockets.
# Uses RUN, VM_NAME, CMD_LIMIT; sets NODES, VM_NODE, VM_LINK, NODE2_PID.
# shellcheck disable=SC2034,SC2154

NODES=${NODES:-1} VM_NODE=${VM_NODE-} NODE2_PID=

check_nodes() {
	((NODES == 2)) || return 0
	# A guest that counts instructions stands still while it waits for nothing, the other one
	# does not: there is no clock of both.
	case ${VM_ICOUNT:-0} in
	1) die "NODES=2: two machines cannot count instructions by one clock" ;;
	*) VM_ICOUNT=0 ;;
	esac
	VM_NODE=1 VM_LINK=$RUN
}

# The first network has the RDMA devices. Tests lose packets there, so what tests tell each
# other goes over the second one. Node 1 listens. 52:54:00 is QEMU's.
network_args() {
	[[ -n $VM_NODE ]] || return 0
	local n net server
	server=$([[ $VM_NODE == 1 ]] && echo on || echo off)
	for n in 0 1; do
		net=net$n
		QEMU_ARGS+=(-netdev "stream,id=$net,server=$server,addr.type=unix,addr.path=$VM_LINK/$net"
			-device "virtio-net-pci,netdev=$net,mac=52:54:00:6d:0$n:0$VM_NODE,host_mtu=9000")
	done
}

start_node2() { # OPTION...
	local n name=node2
	for n in {1..100}; do
		[[ ! -S $VM_LINK/net0 || ! -S $VM_LINK/net1 ]] || break
		kill -0 "$QEMU_PID" 2>/dev/null || return 0
		sleep 0.1
	done
	# QEMU listens right after the sockets are there.
	sleep 0.2
	[[ -z ${VM_NAME-} ]] || name=$VM_NAME-node2
	NODES=1 VM_NODE=2 VM_LINK=$VM_LINK VM_NAME=$name VM_CPUS=$VM_CPUS VM_PMEM='' \
		"$TOP/dev/vm/run" "$@" -t $((CMD_LIMIT + 600)) "exec python3 -I dev/vm/guest/node-serve" {CTL}>&- {OUT_FD}>&- {ERR_FD}>&- >&2 </dev/null &
	NODE2_PID=$!
}

stop_node2() {
	[[ -n $NODE2_PID ]] || return 0
	kill -TERM "$NODE2_PID" 2>/dev/null || true
	wait "$NODE2_PID" 2>/dev/null || true
	NODE2_PID=
}

node2_has_ended() { [[ -n $NODE2_PID ]] && ! kill -0 "$NODE2_PID" 2>/dev/null; }
