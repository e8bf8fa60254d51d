#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: The block device over RDMA in Rust (samples/kernel) with a peer that breaks its protocol:
# garbage as private data, messages of a wrong length, messages that nothing asked for, commands
# and replies of nonsense, and rkeys that are invalid, or become so while they are used. The other
# side ends the connection, no byte outside of what it lent is reached, and everything works
# afterwards.
# needs: brd

# shellcheck disable=SC2119,SC2317 # functions are called by check, serve without parameters, too
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"
# shellcheck source=lib/rblk.sh
source "$(dirname "$0")/rblk.sh" 2>/dev/null || source "$(dirname "$0")/lib/rblk.sh"

store=/dev/ram0
sectors=65536
asks=(nameless range empty short long garbage read-rkey write-rkey deregister flood invalidate write)
serves=(none short long unsolicited twice immediate invalidated invalidated-short crossed beyond between stale)

bad() { # N ask|serve ARGUMENT...
	in_ns "$1" "$here/mkey_rblk_peer" "$2" "$(address_of 1)" "${@:3}"
}
# A bad client costs the server one connection. The good client beside it keeps its own.
qps_are() { (($(resources 1 qp) == $1)); }
asked() { # CASE
	local qps
	qps=$(resources 1 qp)
	bad 0 ask "$1" && until_true qps_are "$qps" && connected
}
# The first capacity that the client gets is garbage. The block layer limits it.
first() {
	client && bad 1 serve 0xffffffffffffffff first && until_true test -b $disk && blockdev --getsz $disk && client_ends
}
served() { # CASE [SECTORS]
	bad 1 serve "${2:-$sectors}" "$1"
}
# The reader reads the rest.
back() { serve && until_true connected && until_true no_reader && vectors 4; }
no_reader() { [[ ! -e /proc/$reader/exe ]]; }

diag "seed $seed"
plan $((10 + ${#asks[@]} + ${#serves[@]}))
check "there is a disk in memory" ram_disk
check "the first capacity is garbage" first
check "the client connects to a good server" eval "serve && connect"
for case in "${asks[@]}"; do check "a bad client: $case" asked "$case"; done
check "the good client works" vectors 4
check "the server is unloaded, and leaves no MR" server_ends
# A reader always has one request for the bad servers. It may fail, and the reader continues.
dd if=$disk of=/dev/null bs=64k iflag=direct conv=noerror 2>/dev/null &
reader=$!
check "a bad server: another capacity" served other $((sectors / 2))
for case in "${serves[@]}"; do check "a bad server: $case" served "$case"; done
check "the client works with a good server" back
check "the client is unloaded, and leaves no MR" client_ends
check "the server is unloaded" server_ends
check "the log says nothing of it" eval "no_ram_disk && clean"
ktap_finished
