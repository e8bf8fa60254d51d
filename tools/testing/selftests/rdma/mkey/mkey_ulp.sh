#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The kernel samples (samples/kernel) in C and in Rust: they load only if every byte was
# in its place and every refusal had its errno.
# sets: first long

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
declare -A ulp=(
	[c]=${MKEY_ULP:-${MODULE_DIR-}/samples/kernel/mkey_ulp_c.ko}
	[rust]=${MKEY_ULP_RUST:-${MODULE_DIR-}/samples/kernel/mkey_ulp_rust.ko}
)
[[ -e ${ulp[c]} ]] || skip_all "no mkey_ulp_c.ko; MKEY_ULP= names it"
[[ -e ${ulp[rust]} ]] || skip_all "no mkey_ulp_rust.ko; MKEY_ULP_RUST= names it"
[[ -e ${MKEY_SKELETON:-${MODULE_DIR-}/samples/kernel/mkey_skeleton.ko} ]] || skip_all "no mkey_skeleton.ko; MKEY_SKELETON= names it"

# ulp_load KIND HERE THERE [PARAMETER]: if it fails, the kernel's log says why
ulp_load() {
	local rc=0
	modprobe -q rdma_cm || true
	insmod "${ulp[$1]}" device="$2" peer="$3" ${4:+"$4"} || rc=$?
	((rc == 0)) || { dmesg | grep mkey_ulp | tail -n 3; return "$rc"; }
}
# The log shows whether all objects were freed.
ulp_run() {
	ulp_load "$@" && rmmod "mkey_ulp_$1" &&
		! dmesg | grep -E 'mkey_ulp[_a-z]*: .*(cannot be|still in use)'
}
refused() { ! ulp_run "$@" && [[ ! -d /sys/module/mkey_ulp_$1 ]]; }

# rdma_cm does not hear the answer of a neighbour in the same machine.
stranger() { in_ns 0 ip neigh flush all && ulp_run "$@"; }

# Rust has no string parameters, so the module takes the device's index.
number_of() { rdma dev show "$1" | sed -n 's/^\([0-9]*\):.*/\1/p'; }
number=("$(number_of "${dev[0]}")" "$(number_of "${dev[1]}")")

# Adds a third device, which has no peer.
third_up() {
	in_ns 0 ip link add mkeyulp type dummy &&
		in_ns 0 ip addr add 10.9.0.1/24 dev mkeyulp &&
		in_ns 0 ip link set mkeyulp up &&
		in_ns 0 rdma link add rxe_ulp type rxe netdev mkeyulp
}
third_down() { in_ns 0 rdma link delete rxe_ulp && in_ns 0 ip link delete mkeyulp; }

device_goes() {
	local rc=0
	ulp_load rust "${number[@]}" || return
	third_up && third_down || rc=$?
	rmmod mkey_ulp_rust && ((rc == 0))
}

# The module connects again and again. Deleting the device must tell it, and wait for it. Otherwise
# rxe and ib_core warn about objects that are left.
device_is_told() {
	local warnings n user rc=0 i
	warnings=$(dmesg | grep -c WARNING:)
	third_up || return
	n=$(number_of rxe_ulp)
	insmod "${ulp[rust]}" device="$n" peer="$n" rounds=1000000000 2>/dev/null & user=$!
	# rdma_cm owns the queue pairs.
	for ((i = 0; i < 1800; i++)); do
		rdma resource show pd dev rxe_ulp | grep -q mkey_ulp_rust && break
		kill -0 $user 2>/dev/null || { i=1800; break; }
		sleep 0.1
	done
	((i < 1800)) || { echo "it has no protection domain"; rc=1; }
	third_down || rc=$?
	! wait "$user" || { rmmod mkey_ulp_rust; echo "it loaded"; rc=1; }
	(($(dmesg | grep -c WARNING:) == warnings)) || { echo "warnings in the log"; rc=1; }
	return "$rc"
}

# Connections leave no object, and less than 256 bytes of slab for each.
rounds=200
((${MKEY_TEST_LONG:-0} == 0)) || rounds=10000
objects() { rdma resource show | grep -E "(${dev[0]}|${dev[1]}):"; }
slab() { sed -n 's/^SUnreclaim: *\([0-9]*\) kB/\1/p' /proc/meminfo; }
connects() {
	local before kib
	ulp_run rust "${number[@]}" && before=$(objects) && kib=$(slab) &&
		ulp_load rust "${number[@]}" rounds=$rounds && rmmod mkey_ulp_rust || return
	diff <(echo "$before") <(objects) || return
	kib=$(($(slab) - kib))
	((kib < 2048 + rounds / 4)) || { echo "$kib KiB more slab after $rounds connections"; return 1; }
}

# The skeleton loads only if its client has all of the server's matrix.
skeleton=${MKEY_SKELETON:-${MODULE_DIR-}/samples/kernel/mkey_skeleton.ko}
skeleton() { # N ADDRESS [PARAMETER]
	modprobe -q rdma_cm || true
	in_ns "$1" insmod "$skeleton" address="$2" ${3:+"$3"}
}
# skeleton_works CONNECTIONS [PARAMETER]: the client needs this many
skeleton_works() {
	skeleton 1 "$(address_of 1)" "${@:2}" && rmmod mkey_skeleton &&
		dmesg | grep 'mkey_skeleton: .* connections$' | tail -n 1 | grep " $1 connections"
}
skeleton_refused() { ! skeleton 0 "$1" && [[ ! -d /sys/module/mkey_skeleton ]]; }

# The skeleton listens on the device that is deleted.
skeleton_loses_its_device() {
	local rc=0
	third_up || return
	skeleton 0 10.9.0.1 || rc=$?
	third_down || rc=$?
	rmmod mkey_skeleton && ((rc == 0))
}

plan 16
check "in C" ulp_run c "${dev[0]}" "${dev[1]}"
check "in C, the other way" ulp_run c "${dev[1]}" "${dev[0]}"
check "in C, again" ulp_run c "${dev[0]}" "${dev[1]}"
check "in C, without a device it is refused" refused c "${dev[0]}" nosuchdevice
check "in Rust" ulp_run rust "${number[0]}" "${number[1]}"
check "in Rust, the other way" ulp_run rust "${number[1]}" "${number[0]}"
check "in Rust, again, with a neighbour that is not known" stranger rust "${number[0]}" "${number[1]}"
check "in Rust, without a device it is refused" refused rust "${number[0]}" 4000000
check "in Rust, while another device comes and goes" device_goes
check "in Rust, a device is deleted while it is used" device_is_told
check "in Rust, $rounds connections leave nothing" connects
check "the skeleton" skeleton_works 1
check "the skeleton, with a connection that breaks" skeleton_works 2 break_at=300
check "the skeleton, at what is no address" skeleton_refused x
check "the skeleton, at an address of another machine" skeleton_refused 10.77.0.1
check "the skeleton, while its device goes" skeleton_loses_its_device
ktap_finished
