#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Halo exchange and transposition of two processes, which may be on two machines, by keys,
# by Open MPI's derived datatypes, and by packing: the program of the group halo of "make bench",
# small. All cells are checked. The packets of each way are counted, and the bytes that Open MPI copies.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

tree=$(cd "$here/../../.." && pwd)
program=$here/../bin/mkey_bench_halo
[[ -x $program ]] || skip_all "no mkey_bench_halo: it is built where there is an MPI"
[[ -x $tree/tools/bench/guest/halo && -e /run/netns/ns0 ]] || skip_all "not in the virtual machine"
[[ -n $(netdev_of 0) ]] || skip_all "no device ${dev[0]}"

exchange() { "$tree/tools/bench/guest/halo" "$program" 1 -q >"$tmp/packets"; }
# 10 exchanges, 2 processes. On two machines, half of them send through this device.
each=$((10 * ${VM_NODE:-2}))
# on_the_device WAY: the bytes went through the device, which sent a packet or more for each
# face, and for each block of a matrix, in each of two sizes.
on_the_device() {
	[[ $(grep -c "^[a-z]* $1 " "$tmp/packets") == 4 ]] || { cat "$tmp/packets"; return 1; }
	awk -v way="$1" -v each="$each" '$2 == way && $4 < ($1 == "faces" ? 6 : 1) * each { print; bad = 1 }
		END { exit bad }' "$tmp/packets"
}
# copies WAY CONDITION: of each exchange by the way, awk's CONDITION holds for the bytes in $5.
copies() { awk -v way="$1" "\$2 == way && !(\$5 $2) { print; bad = 1 } END { exit bad }" "$tmp/packets"; }

plan 6
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
check "every cell of every face and block, by each way, through ${dev[0]}" exchange
check "Open MPI's datatypes are on the device" on_the_device mpi
check "what MPI packs is on the device" on_the_device packed
check "keys of the datatypes are on the device" on_the_device key
check "Open MPI copies for MPI_Pack()" copies packed "> 0"
check "Open MPI copies nothing for keys" copies key "== 0"
ktap_finished
