#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: A link of rxe that cannot be added leaves nothing: its UDP port is free as soon as no
# link is left in the network namespace. A link that was down while a connection ended makes
# connections again. It needs no ib_mkey.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
[[ -d /sys/class/infiniband/${dev[0]} ]] || skip_all "no device ${dev[0]}"

ns=mkey_link
trap 'ip netns delete $ns 2>/dev/null' EXIT
ip netns add $ns || skip_all "no network namespaces"
ip -n $ns link add mklink0 type veth peer name mklink1 || skip_all "no veth"

# Prints how many sockets have the port of RoCE v2, 0x12b7.
sockets() { ip netns exec $ns cat /proc/net/udp /proc/net/udp6 | grep -c ':12B7 '; }

# add NETDEV NAME
add() { ip netns exec $ns rdma link add "$2" type rxe netdev "$1" 2>&1; }

# The name is in use.
refused() { ! add "$1" "${dev[0]}"; }

sockets_are() {
	local now
	now=$(sockets)
	((now == $1)) || { echo "$now sockets instead of $1"; return 1; }
}

alone() {
	sockets_are 0 && refused mklink0 && sockets_are 0
}

beside_another() {
	local open rc=0
	add mklink0 mklink || return
	open=$(sockets)
	((open > 0)) || rc=1
	refused mklink1 || rc=1
	sockets_are "$open" || rc=1
	ip netns exec $ns rdma link delete mklink || rc=1
	sockets_are 0 && ((rc == 0))
}

# What ends the connection is sent while there is no route for it.
down_and_up() {
	local server client rc=0
	ip -n $ns link add mklink2 type dummy && ip -n $ns addr add 10.9.8.1/24 dev mklink2 &&
		ip -n $ns link set mklink2 up && add mklink2 mklink && until_true active || return
	ip netns exec $ns rping -s -P -a 10.9.8.1 >/dev/null 2>&1 & server=$!
	until_true listening || rc=1
	ip netns exec $ns rping -c -a 10.9.8.1 >/dev/null 2>&1 & client=$!
	until_true connected || rc=1
	ip -n $ns link set mklink2 down
	kill -KILL $client
	wait $client
	ip -n $ns link set mklink2 up
	ip netns exec $ns timeout 30 rping -c -a 10.9.8.1 -C 1 || rc=1
	kill -KILL $server
	wait $server
	ip netns exec $ns rdma link delete mklink && ((rc == 0))
}
active() { grep -q ACTIVE /sys/class/infiniband/mklink/ports/1/state; }
listening() { rdma resource show cm_id link mklink/1 | grep -q 'state LISTEN'; }
connected() { rdma resource show qp link mklink/1 | grep -q 'type RC state RTS'; }

plan 3
check "a link that cannot be added leaves no socket" alone
check "a link that cannot be added beside another leaves no reference" beside_another
if command -v rping >/dev/null; then
	check "a link makes connections after it was down" down_and_up
else
	skip "a link makes connections after it was down" "no rping"
fi
ktap_finished
