#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# mkeyctl on real devices: its output agrees with that of other sources.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

ctl=${MKEYCTL-}
[[ -n $ctl ]] || ctl=$(PATH=$here/../bin:$PATH command -v mkeyctl) ||
	skip_all "no mkeyctl; MKEYCTL= names it"
((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
for i in 0 1; do
	[[ -n $(netdev_of $i) ]] || skip_all "no device ${dev[i]}"
done
"$ctl" caps "${dev[0]}" &>/dev/null || skip_all "${dev[0]} is not extended"
debugfs=/sys/kernel/debug/ib_mkey

# field PREFIX N: prints word N of the line of stdin that begins with PREFIX
field() { awk -v start="$1" -v n="$2" 'index($0, start) == 1 { print $n; exit }'; }
equal() { [[ $1 == "$2" ]] || { echo "\`$1' is not \`$2'"; return 1; }; }

# A process that holds MRs, a key of 800 bytes and device memory on device 1.
coproc hold { exec "$here/mkey_hold" 1; }
# shellcheck disable=SC2154 # coproc sets it
holder=$hold_PID
trap 'kill "$holder" 2>/dev/null' EXIT
read -r line <&"${hold[0]}"
[[ $line == ready ]] || skip_all "mkey_hold said: $line"

ls_counts() {
	local out
	out=$("$ctl" ls "${dev[1]}") || return
	equal "$(field "${dev[1]} " 2 <<<"$out")" \
		"$(rdma resource show mr dev "${dev[1]}" | wc -l)"
}
ls_key() {
	local line
	line=$("$ctl" ls "${dev[1]}" | grep -w 800) || return
	[[ $line == *" $holder "*mkey_hold && $line == *0x* ]] || { echo "$line"; return 1; }
}
ls_json() { "$ctl" ls --json | python3 -c 'import json, sys
d = {l["device"]: l for l in json.load(sys.stdin)}
assert all(n in d for n in sys.argv[1:]), d.keys()
assert any(m["mrlen"] == 800 for m in d[sys.argv[2]]["mrs"])' "${dev[@]}"; }
ls_dm() {
	local out
	if [[ ! -e $debugfs/pools ]]; then
		! "$ctl" ls dm
		return
	fi
	out=$("$ctl" ls dm "${dev[1]}") || return
	grep -q "^${dev[1]} .* 64 KiB .* 1$" <<<"$out" &&
		grep -q "^${dev[1]} .* $holder  *mkey_hold .*64 KiB" <<<"$out" && return
	echo "$out"
	return 1
}
stat_objects() {
	local out
	out=$("$ctl" stat "${dev[1]}") || return
	equal "$(field "  mr " 2 <<<"$out")" \
		"$(rdma resource show "${dev[1]}" | sed 's/.* mr \([0-9]*\).*/\1/')"
}
# A transfer increments the counters.
stat_counts() {
	local before after
	before=$("$ctl" stat --all "${dev[0]}" | field "  sent_pkts " 2) &&
		"$ctl" demo "${dev[@]}" >/dev/null || return
	after=$("$ctl" stat --all "${dev[0]}" | field "  sent_pkts " 2)
	((after > before)) || { echo "sent_pkts: $before, then $after"; return 1; }
}
demo() {
	local out
	out=$("$ctl" demo "$@") || { echo "$out"; return 1; }
	equal "$(grep '0x20' <<<"$out")" \
		"  0x20  ....EFGH........      0x20  .........ABCDEF."
}
# refuses WORDS COMMAND...: COMMAND fails and prints WORDS
refuses() {
	local words=$1 out
	shift
	! out=$("$@" 2>&1) && grep -q "$words" <<<"$out" && return
	echo "$out"
	return 1
}

plan 10
check "ls: as many regions as the kernel lists" ls_counts
check "ls: a key, its process and its rkey" ls_key
check "ls: JSON" ls_json
check "ls dm: what is used, and by whom" ls_dm
check "stat: objects" stat_objects
check "stat: counters" stat_counts
check "demo: between two devices" demo "${dev[@]}"
check "demo: on one device" demo "${dev[1]}"
check "demo: no such device" refuses "no device nowhere" "$ctl" demo nowhere
check "stat: no such device" refuses "no device nowhere" "$ctl" stat nowhere
finish
