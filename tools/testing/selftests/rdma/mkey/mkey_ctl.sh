#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: mkeyctl on real devices: its output agrees with that of other sources.
# sets: first

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
	[[ $line == *" interleaved "*" $holder "*mkey_hold && $line == *0x* ]] || { echo "$line"; return 1; }
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
		grep -q "^${dev[1]}  *-  *0  *64 KiB" <<<"$out" && return
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

# json FILTER COMMAND...: evaluates a Python expression of the JSON `j' that mkeyctl prints.
json() {
	local filter=$1
	shift
	"$ctl" -j "$@" | python3 -c "import json, sys; j = json.load(sys.stdin); print($filter)"
}
# The lkeys of the holder's two keys: the inner one has 800 bytes, the outer one 24.
key_of() { json "[k['lkey'] for k in j if k['pid'] == $holder and k['bytes'] == $1][0]" ls keys "${dev[1]}"; }

ls_keys() {
	local out inner outer
	inner=$(key_of 800) && outer=$(key_of 24) || return
	out=$("$ctl" ls keys "${dev[1]}") || return
	grep -qE "^${dev[1]} +$inner +interleaved +800 +1 +1 +1 +1 +1 +$holder +mkey_hold\$" <<<"$out" &&
		grep -qE "^${dev[1]} +$outer +list +24 +2 +3 +[0-9]+ +2 +0 +$holder +mkey_hold\$" <<<"$out" && return
	echo "$out"
	return 1
}
# The MR below the keys: both are named, the nearer one first.
who_mr() {
	local leaf out
	leaf=$(awk -v key="$(key_of 800)" '$2 == key { print $4 }' "$debugfs/leaves") || return
	out=$("$ctl" who "${dev[1]}" "$leaf") || return
	grep -A 2 DISTANCE <<<"$out" | tail -n 2 | awk '{ print $1, $2, $6 }' >"$tmp"
	equal "$(cat "$tmp")" "1 $(key_of 800) mkey_hold
2 $(key_of 24) mkey_hold"
}
who_is_unknown() {
	refuses "no device rxe9: there are" "$ctl" who rxe9 7 &&
		refuses "${dev[1]} has no memory region 0x00000007: see mkeyctl ls" "$ctl" who "${dev[1]}" 7
}
# Without an lkey: all that cannot be deregistered, with the key that refers to it.
who_all() {
	local leaf inner outer out direct
	inner=$(key_of 800) && outer=$(key_of 24) || return
	leaf=$(awk -v key="$inner" '$2 == key { print $4 }' "$debugfs/leaves") || return
	out=$("$ctl" who "${dev[1]}") || return
	direct="[r['lkey'] for b in j['busy'] if b['lkey'] == '$inner' for r in b['referrers']]"
	grep -qE "^$leaf +[0-9]+ +$inner +interleaved +$holder +mkey_hold\$" <<<"$out" &&
		grep -qE "^$inner +800 +$outer +list +$holder +mkey_hold\$" <<<"$out" &&
		! grep -q "^$outer " <<<"$out" &&
		equal "$(json "$direct" who "${dev[1]}")" "['$outer']" &&
		refuses "no device rxe9: there are" "$ctl" who rxe9 && return
	echo "$out"
	return 1
}
who_nothing() {
	local outer
	outer=$(key_of 24) || return
	"$ctl" who "${dev[1]}" "$outer" | grep -q "^No key .* refers to $outer of ${dev[1]}" &&
		equal "$(json "j['referrers'], j['binds_in_progress']" who "${dev[1]}" "$outer")" "[] 0" &&
		equal "$(json "[r['distance'] for r in j['referrers']]" who "${dev[1]}" "$(key_of 800)")" "[1]"
}
# The access that the holder's key of 24 bytes has refused.
why_key() {
	local out key want
	key=$(key_of 24)
	want="key $(printf '%#x' "$key") refused a local read of 32 bytes at its address 0x10000: its "
	want+="addresses begin at 0x50000, and the bytes are not all there (list, of process $holder mkey_hold)"
	out=$("$ctl" why "${dev[1]}" "$key") && equal "$out" "$want" &&
		"$ctl" why "${dev[1]}" | grep -qxF "$want" &&
		equal "$("$ctl" why "${dev[1]}" "$(key_of 800)")" "The key $(key_of 800) of ${dev[1]} has refused no access." &&
		equal "$(json "[(r['addr'], r['length'], r['remote'], r['pid']) for r in j['refused']]" why "${dev[1]}" "$key")" \
			"[(65536, 32, False, $holder)]" &&
		"$ctl" doctor "${dev[1]}" | grep -q "^note  *accesses: keys that have refused an access: .*: key 0x" &&
		refuses "no device rxe9: there are" "$ctl" why rxe9
}
# The outer key, and the inner one below it.
draw_key() {
	local out
	out=$("$ctl" draw --key "${dev[1]}" "$(key_of 24)") || return
	grep -q "^Key $(key_of 24) of ${dev[1]}, list of 24 bytes from 0x50000 on, entries: 2\$" <<<"$out" &&
		grep -q "^Key $(key_of 800) of ${dev[1]}, interleaved of 800 bytes, entries: 1\$" <<<"$out" && return
	echo "$out"
	return 1
}
# The bytes of the holder's indexed key are those of blocks 5, 2 and 9 of 64 bytes, as a drawing
# of this layout shows them.
draw_indexed() {
	local key leaf addr want out
	key=$(key_of 120) || return
	read -r leaf addr < <(awk -v key="$key" '$2 == key { print $5, $6 }' "$debugfs/layouts")
	want=$("$ctl" draw --indexed "$leaf@$addr+40:64" --indices 5,2,9) && out=$("$ctl" draw --key "${dev[1]}" "$key") || return
	grep -q "^Key $key of ${dev[1]}, indexed of 120 bytes, entries: " <<<"$out" &&
		equal "$(tail -n +2 <<<"$out")" "$want" && return
	cat "$debugfs/layouts"
	echo "$out"
	return 1
}
# A program's binds and accesses are counted.
watch_counts() {
	local out
	"$ctl" -j watch --count 1 --interval 6 >"$tmp" &
	sleep 1
	"$ctl" demo "${dev[@]}" >/dev/null || return
	wait $! || return
	out=$(python3 -c 'import json, sys; j = json.load(sys.stdin)
print(j["binds"] >= 2, j["accesses"] >= 2, j["keys"] >= 2, j["bound"] >= 2, j["refused_other"])' <"$tmp") || return
	equal "$out" "True True True True 0" || { cat "$tmp"; return 1; }
}
stat_module() { equal "$("$ctl" stat --all | grep -c "^  \(binds\|unbinds\|accesses\|odp_faults\) ")" 4; }
# Other users see no lkeys.
# A process chooses its name. No name keeps root from seeing the keys of all processes, or has an
# effect on the terminal.
any_name() {
	local name command out pid line rc=0
	for name in '' ' ' $'\e[31m\xff\nx'; do
		exec {from}< <(exec "$here/mkey_hold" 1 "$name")
		pid=$!
		read -r line <&"$from"
		for command in ls "ls keys" "ls dm" stat "who ${dev[1]}" "why ${dev[1]}" "watch -c 1" "-j ls" "-j ls keys"; do
			# shellcheck disable=SC2086 # words of a command line
			if ! out=$("$ctl" $command 2>&1) || [[ $line != ready || $out == *[$'\e\xff']* ]]; then
				printf '%s of a process with the name %q: %q\n' "$command" "$name" "$out"
				rc=1
			fi
		done
		out=$("$ctl" ls keys)
		grep -q " $pid " <<<"$out" || { echo "$out"; rc=1; }
		kill "$pid"
		exec {from}<&-
	done
	return $rc
}
not_root() {
	local c
	for c in "ls keys" "who ${dev[1]} $(key_of 800)" "who ${dev[1]}" "why ${dev[1]}" "draw --key ${dev[1]} $(key_of 800)" "watch -c 1" "ls dm"; do
		# shellcheck disable=SC2086 # words of a command line
		refuses "only root may see" setpriv --reuid 65534 --regid 65534 --clear-groups "$ctl" $c || return
	done
	! setpriv --reuid 65534 --regid 65534 --clear-groups "$ctl" -j ls "${dev[1]}" |
		grep -i "$(key_of 800 | sed 's/^0x0*//')"
}
# A bind that fails: which entry, and why.
demo_refused() {
	refuses "a key: blocks\[0\].lkey 0x[0-9a-f]* names no MR" \
		env LD_PRELOAD="$here/wrong_lkey.so" "$ctl" demo "${dev[@]}"
}
# without PATH COMMAND...: runs a command that finds an empty directory, or an empty file, at PATH
# shellcheck disable=SC2016 # expanded by the inner shell
without() {
	unshare --mount --propagation private bash -c '
		if [[ -d $1 ]]; then mount -t tmpfs tmpfs "$1"; else mount --bind /dev/null "$1"; fi &&
		shift && exec "$@"' - "$@"
}
# found PATH: the checks of device 0 that find a problem without PATH, and their remedies
found() {
	local out
	out=$(without "$1" "$ctl" -j doctor "${dev[0]}" 2>/dev/null)
	python3 -c 'import json, sys
for c in json.load(sys.stdin)["checks"]:
    if c["check"] in ("device", "permission", "provider", "extended") and c["status"] != "ok":
        print(c["check"], c["found"], c["remedy"])' <<<"$out"
}
# libibverbs lists no device of rxe without a working provider library, its configuration or the node.
doctor_provider() {
	local lib out
	lib=$(ldd "$ctl" | sed -n 's,^.* => \(/.*\)/libibverbs\.so.*,\1,p')/libibverbs
	equal "$(found /mnt)" "" &&
		equal "$(found "$lib")" "provider ${dev[0]} is not among the devices of libibverbs: its provider library librxe is missing install the package ibverbs-providers" ||
		return
	out=$(found /etc/libibverbs.d)
	[[ $out == "provider "*" names its provider library librxe echo driver rxe "* && $out != *$'\n'* ]] || { echo "$out"; return 1; }
	out=$(found "$(echo "$lib"/librxe-rdmav*.so)")
	[[ $out == "provider "*" its provider library librxe is installed IBV_SHOW_WARNINGS=1 "* && $out != *$'\n'* ]] || { echo "$out"; return 1; }
	out=$(found /dev/infiniband)
	[[ $out == "permission "*"No such file"* && $out != *$'\n'* ]] || { echo "$out"; return 1; }
	refuses "libibverbs does not list ${dev[0]}; mkeyctl doctor has the remedy" without "$lib" "$ctl" caps "${dev[0]}"
}
# The user may open no node: which one, instead of the ENOENT of libibverbs.
not_opened() {
	local c
	chmod 600 /dev/infiniband/uverbs*
	for c in caps ls demo; do
		refuses "${dev[0]}: this user may not open /dev/infiniband/uverbs[0-9]*; mkeyctl doctor ${dev[0]} has the remedy" \
			setpriv --reuid 65534 --regid 65534 --clear-groups "$ctl" "$c" "${dev[0]}" || { chmod 666 /dev/infiniband/uverbs*; return 1; }
	done
	chmod 666 /dev/infiniband/uverbs*
}
# The drawings of a key, and of the key below it, are in one file, each with its heading.
draw_svg() {
	"$ctl" draw --format svg --key "${dev[1]}" "$(key_of 24)" >"$tmp" || return
	equal "$(grep -oE '^Key 0x[0-9a-f]* of' "$tmp" | awk '{ print $2 }' | xargs)" "$(key_of 24) $(key_of 800)" ||
		{ cat "$tmp"; return 1; }
}
# A layout in JSON is a description that draw reads.
draw_json() {
	local key out
	key=$(key_of 800) || return
	"$ctl" -j draw --key "${dev[1]}" "$key" >"$tmp" || return
	out=$(python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)[0]["layout"]))' <"$tmp" | "$ctl" draw -) &&
		equal "$out" "$("$ctl" draw --key "${dev[1]}" "$key" | tail -n +2)"
}
demo_json() {
	"$ctl" -j demo "${dev[@]}" | python3 -c 'import json, sys
demo = json.load(sys.stdin)
assert demo["right"] and demo["bytes"] == 24, demo
assert demo["to"]["memory"][2] == ".........ABCDEF.", demo
assert [demo[end]["device"] for end in ("from", "to")] == sys.argv[1:], demo' "${dev[@]}"
}
# The pictures before and after the WRITE differ, and all are drawn in the terminal.
demo_picture() {
	awk 'BEGIN { print "P3 24 16 255"; for (i = 0; i < 24 * 16 * 3; i++) print i * 7 % 256 }' >"$tmp"
	"$ctl" demo "${dev[@]}" --picture "$tmp" --out "$tmp.d" --columns 60 >"$tmp.said" || return
	grep -q '^Each byte is where it belongs' "$tmp.said" &&
		equal "$(grep -c $'\xe2\x96\x80' "$tmp.said")" 6 &&
		[[ $(head -c 4 "$tmp.d/source.png") == $'\x89PNG' ]] && ! cmp -s "$tmp.d/before.png" "$tmp.d/after.png"
}
# fields COMMAND...: the fields of a command in JSON, one in a line. Objects that have numbers by
# their names, and the counters of the kernel, have fields that vary.
fields() {
	"$ctl" -j "$@" | python3 -c 'import json, sys
def walk(value):
    if isinstance(value, list):
        for each in value:
            walk(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            print(name)
            if name not in ("objects", "counters", "device_memory", "key_memory", "module"):
                walk(each)
walk(json.load(sys.stdin))'
}
# The help of a command, of which its manual page is made, names each field of its JSON.
json_fields() {
	local c f all help rc=0
	for c in caps doctor ls "ls dm" "ls keys" stat "who ${dev[1]}" "who ${dev[1]} $(key_of 800)" "why ${dev[1]}" "watch -c 1" \
		"draw --key ${dev[1]} $(key_of 24)" "draw --key ${dev[1]} $(key_of 120)" "demo ${dev[*]}"; do
		# shellcheck disable=SC2086 # words of a command line
		all=$(fields $c | sort -u)
		[[ -n $all ]] || { echo "$c: there is no field"; rc=1; }
		# shellcheck disable=SC2086
		[[ $c == ls* ]] && help=$("$ctl" $c --help) || help=$("$ctl" "${c%% *}" --help)
		for f in $all; do
			grep -qw "$f" <<<"$help" || { echo "$c: the help does not name $f"; rc=1; }
		done
	done
	return "$rc"
}
tmp=$(mktemp)
trap 'kill "$holder" 2>/dev/null; rm -rf "$tmp"*' EXIT

plan 32
check "doctor: a device that libibverbs does not list" doctor_provider
check "ls: as many regions as the kernel lists" ls_counts
check "ls: a key, its process and its rkey" ls_key
check "ls: JSON" ls_json
check "ls dm: what is used, and by whom" ls_dm
check "stat: objects" stat_objects
check "stat: counters" stat_counts
check "demo: between two devices" demo "${dev[@]}"
check "demo: on one device" demo "${dev[1]}"
check "demo: what is wrong with a bind" demo_refused
check "demo: JSON" demo_json
check "demo: a tile of a picture" demo_picture
check "demo: not a picture" refuses "not a PNG, JPEG or PNM picture" "$ctl" demo "${dev[0]}" --picture "$0" --out "$tmp.d"
check "a user who may not open the node of a device" not_opened
check "demo: no such device" refuses "no device nowhere" "$ctl" demo nowhere
if [[ -e $debugfs/regions ]]; then
	check "ls keys: kinds, numbers and owners" ls_keys
	check "who: the keys over an MR" who_mr
	check "who: a key that nothing refers to" who_nothing
	check "who: all regions that are busy" who_all
	check "who: no such region" who_is_unknown
	check "why: an access that a key has refused" why_key
	check "draw: a live key and the one below it" draw_key
	check "draw: a live indexed key" draw_indexed
	check "draw: a live key and the one below it, as SVG" draw_svg
	check "draw: a live key, as JSON" draw_json
	check "JSON: the help names each field" json_fields
	check "draw: no such key" refuses "has no key 0x00000007" "$ctl" draw --key "${dev[1]}" 7
	check "watch: binds and accesses" watch_counts
	check "stat: what the module counted" stat_module
	check "keys are for root" not_root
	check "processes with any name" any_name
else
	for t in {1..16}; do
		skip "keys of all processes, $t of 16" "no debugfs"
	done
fi
check "stat: no such device" refuses "no device nowhere" "$ctl" stat nowhere
ktap_finished
