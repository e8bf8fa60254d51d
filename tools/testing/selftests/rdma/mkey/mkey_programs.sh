#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Programs of others, as distributions have them: perftest, and the examples of
# libibverbs and librdmacm. Each transfers from one device to the other, with the kernel's own
# rdma_rxe and with ib_mkey. The lists say which of them succeed.
# sets: long

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rdma-core.sh
source "$here/rdma-core.sh" 2>/dev/null || source "$here/lib/rdma-core.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
unmodified=$(find "/lib/modules/$(uname -r)/kernel" -name 'rdma_rxe.ko*' 2>/dev/null | head -n 1)
for c in ibv_rc_pingpong rping ib_write_bw; do
	command -v $c >/dev/null || skip_all "no $c"
done
find_netdevs
modprobe -qa rdma_ucm || skip_all "no rdma_ucm"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Each line is a transfer: SERVER|CLIENT, or what both sides run. DEV is the device of a side, HOST the
# address of the server, which the client of a common line gets at its end.
pairs=(
	"ibv_rc_pingpong -c -g 1 -n 200 -d DEV"
	"ibv_rc_pingpong -c -e -s 100001 -n 50 -g 1 -d DEV"
	"ibv_rc_pingpong -c -o -n 200 -g 1 -d DEV"
	"ibv_rc_pingpong -c -N -n 200 -g 1 -d DEV"
	"ibv_uc_pingpong -c -n 200 -g 1 -d DEV"
	"ibv_ud_pingpong -c -n 200 -g 1 -d DEV"
	"ibv_srq_pingpong -c -q 8 -n 200 -g 1 -d DEV"
	"ib_write_bw -F -n 100 -s 65536 -d DEV -x 1"
	"ib_write_bw -F -n 100 -s 4096 -q 4 -d DEV -x 1"
	"ib_write_bw -F -n 100 -s 4096 -c UC -d DEV -x 1"
	"ib_write_bw -F -n 100 -s 64 -I 64 -d DEV -x 1"
	"ib_write_bw -F -n 100 -b -d DEV -x 1"
	"ib_write_bw -F -n 100 -R -d DEV"
	"ib_write_bw -F -n 100 --odp -s 65536 -d DEV -x 1"
	"ib_write_bw -F -n 100 --write_with_imm -d DEV -x 1"
	"ib_write_lat -F -n 100 -d DEV -x 1"
	"ib_read_bw -F -n 100 -s 65536 -d DEV -x 1"
	"ib_read_bw -F -n 100 --odp -s 65536 -d DEV -x 1"
	"ib_read_lat -F -n 100 -d DEV -x 1"
	"ib_send_bw -F -n 100 -s 65536 -d DEV -x 1"
	"ib_send_bw -F -n 100 -c UD -s 1024 -d DEV -x 1"
	"ib_send_bw -F -n 100 -r 64 --use-srq -d DEV -x 1"
	"ib_send_lat -F -n 100 -d DEV -x 1"
	"ib_atomic_bw -F -n 100 -A FETCH_AND_ADD -d DEV -x 1"
	"ib_atomic_bw -F -n 100 -A CMP_AND_SWAP -d DEV -x 1"
	"ib_atomic_lat -F -n 100 -d DEV -x 1"
	"ucmatose -C 20 -S 4096"
	"udaddy -C 20"
	"rdma_server|rdma_client -s HOST"
	"rping -s -v -C 20 -a HOST|rping -c -v -C 20 -a HOST"
	"rping -s -v -C 20 -q -a HOST|rping -c -v -C 20 -q -a HOST"
)
# rxe has neither XRC nor null MRs.
refused=(
	"ibv_xsrq_pingpong -c 1 -n 50 -g 1 -d DEV"
	"ib_write_bw -F -n 100 -c XRC -d DEV -x 1"
	"ib_write_bw -F -n 100 --use-null-mr -d DEV -x 1"
)

# side N COMMAND: runs COMMAND for device N
side() {
	local -a words
	read -ra words <<<"${2//DEV/${dev[$1]}}"
	in_ns "$1" timeout 40 "${words[@]}"
}

# transfers PAIR: succeeds if both sides do
transfers() {
	local server=${1%%|*} client=${1##*|} address pid rc=0 try
	address=$(address_of 1)
	[[ $1 == *'|'* ]] || case $1 in
	ucmatose* | udaddy*) client+=" -s HOST" ;;
	*) client+=" HOST" ;;
	esac
	side 1 "${server//HOST/$address}" >"$tmp/server" 2>&1 & pid=$!
	# The server may not listen yet.
	for ((try = 0; try < 10; try++)); do
		sleep 0.5
		side 0 "${client//HOST/$address}" >"$tmp/client" 2>&1 && rc=0 && break || rc=$?
		kill -0 $pid 2>/dev/null || break
	done
	((rc == 0)) || kill $pid 2>/dev/null
	wait $pid || rc=$?
	((rc == 0)) || tail -n 30 "$tmp/server" "$tmp/client"
	return "$rc"
}
fails() { ! transfers "$1"; }


# The kernel's own rdma_rxe, without ib_mkey. The links are added by rdma_rxe's parameters alone.
unmodified_rxe() {
	links_delete && rmmod rdma_rxe && modprobe -a udp_tunnel ip6_udp_tunnel && insmod "$unmodified" && links_add
}
own_rxe() { links_delete && rmmod rdma_rxe && modprobe rdma_rxe && links_add; }

all() { # SUFFIX
	local p
	for p in "${pairs[@]}"; do check "$p$1" transfers "$p"; done
	for p in "${refused[@]}"; do check "$p$1: refused" fails "$p"; done
}

# mkey_pyverbs.sh runs the same tests of rdma-core with ib_mkey.
modules=("${rdma_core_modules[@]}")
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] && has_rdma_core || modules=()

plan $((2 * (${#pairs[@]} + ${#refused[@]}) + ${#modules[@]} + 2))
all ""
check "the kernel's own rdma_rxe" unmodified_rxe
all ", unmodified rxe"
for m in "${modules[@]}"; do check "rdma-core's test_$m, unmodified rxe" rdma_core_passes any LD_PRELOAD= "$m"; done
check "this rdma_rxe again" own_rxe
ktap_finished
