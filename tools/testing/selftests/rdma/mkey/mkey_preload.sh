#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Programs that know nothing of ib_mkey get device memory by LD_PRELOAD.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

for c in ibv_rc_pingpong ibv_devinfo; do
	command -v $c >/dev/null || skip_all "no $c"
done
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
for i in 0 1; do
	[[ -n $(netdev_of $i) ]] || skip_all "no device ${dev[i]}"
done

preload=${MKEY_PRELOAD-}
for p in "$here/../lib/libibmkey-preload.so" /usr/lib/*/libibmkey/libibmkey-preload.so \
	/usr/lib/*/libibmkey-preload.so /usr/lib/libibmkey-preload.so /usr/local/lib/libibmkey-preload.so; do
	[[ -z $preload && -e $p ]] && preload=$p
done
[[ -n $preload ]] || skip_all "no libibmkey-preload.so; MKEY_PRELOAD= names it"

# The index of the RoCE v2 GID of device N.
gid_of() {
	local port=/sys/class/infiniband/${dev[$1]}/ports/1 i
	for i in {0..15}; do
		grep -qs 'RoCE v2' "$port/gid_attrs/types/$i" &&
			grep -q ':ffff:' "$port/gids/$i" && echo "$i" && return
	done
	return 1
}

# pingpong PRELOAD OPTIONS...: runs the program on both devices and validates the data.
# It sleeps for completions: two processes that poll leave the machine little time for
# the devices' own work.
pingpong() {
	local lib=$1 server rc=0 n
	shift
	LD_PRELOAD=$lib in_ns 1 ibv_rc_pingpong -d "${dev[1]}" -g "$(gid_of 1)" -c -e "$@" &
	server=$!
	# wait until it listens
	for ((n = 0; n < 1800; n++)); do
		kill -0 "$server" 2>/dev/null || { wait "$server"; return; }
		in_ns 1 ss -Hltn 'sport = :18515' | grep -q . && break
		sleep 0.1
	done
	LD_PRELOAD=$lib in_ns 0 ibv_rc_pingpong -d "${dev[0]}" -g "$(gid_of 0)" -c -e "$@" \
		"$(address_of 1)" || rc=$?
	wait "$server" || rc=$?
	return "$rc"
}

without_preload() { ! pingpong "" -n 20 --dm; }
other_programs() { LD_PRELOAD=$preload ibv_devinfo -v -d "${dev[0]}" | grep -q "hca_id:.*${dev[0]}"; }

# selftest PROGRAM OPTIONS...: runs a test of another program.
selftest() { LD_PRELOAD=$preload "$here/$1" "${@:2}"; }

# verb PROGRAM OPTIONS...: a test that is skipped if there is no such verb.
verb() {
	local out rc=0
	out=$(selftest "$@") || rc=$?
	echo "$out"
	((rc == 0)) && [[ $out != *"# SKIP"* ]]
}

plan 11
check "a program that uses no device memory" pingpong "$preload" -n 100
check "ibv_rc_pingpong --dm fails without it" without_preload
check "ibv_rc_pingpong --dm" pingpong "$preload" -n 200 --dm
check "ibv_rc_pingpong --dm with large messages" pingpong "$preload" -n 50 -s 100001 --dm
check "ibv_devinfo" other_programs
check "ibv_reg_dmabuf_mr" verb mkey_dmabuf -t verb
check "ibv_rereg_mr" verb mkey_rereg -t verb
check "ibv_dm_export_dmabuf_fd" verb dm_export -t verb
check "ibv_import_dm" verb dm_export -t import
# In a program that is linked with libibmkey, a class can still be chosen.
check "ibmkey_alloc_dm" selftest dm_class -v host -t place
# A bit of an attribute that a later version of libibverbs adds is refused.
check "ibv_alloc_dm with a comp_mask" selftest dm_verbs -t alloc_comp_mask
ktap_finished
