# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The block device over RDMA in Rust (samples/kernel): the server in the second network namespace
# serves the block device $store, and the disk of the client in the first one is $disk. A script
# sources this file after common.sh.

# shellcheck disable=SC2034,SC2154 # names of common.sh and of the scripts

((UID == 0)) || skip_all "not root"
[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
modules=${MKEY_SAMPLES:-${MODULE_DIR-}/samples/kernel}
for module in mkey_rblk_client mkey_rblk_server; do
	[[ -e $modules/$module.ko ]] || skip_all "no $module.ko; MKEY_SAMPLES= names its directory"
done
modprobe -n -q brd || skip_all "no brd"
find_netdevs
rounds=100
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=15
seed=${MKEY_TEST_SEED:-$RANDOM}
disk=/dev/rblk0
complaints='WARNING:|BUG:|general protection|refcount_t:|list_(add|del) corruption|INFO: task'
complaints() { dmesg | grep -cE "$complaints"; }
before=$(complaints)

# ram_disk: makes /dev/ram0 of 32 MiB. It is in use until its last file is closed by a work item.
no_ram_disk() { until_true modprobe -q -r brd; }
ram_disk() { no_ram_disk && modprobe brd rd_nr=1 rd_size=32768 && until_true test -b /dev/ram0; }

# The modules take an address and a block device as numbers.
number() {
	local a b c d
	IFS=. read -r a b c d <<<"$1"
	echo $((a << 24 | b << 16 | c << 8 | d))
}
number_of() { echo $(($(stat -c '%Hr << 20 | %Lr' "$1"))); }

# serve [PARAMETER...]
serve() {
	modprobe -q rdma_cm
	in_ns 1 insmod "$modules/mkey_rblk_server.ko" device="$(number_of "$store")" "$@"
}
client() { in_ns 0 insmod "$modules/mkey_rblk_client.ko" server="$(number "$(address_of 1)")"; }
connect() { client && until_true test -b $disk; }
client_ends() { rmmod mkey_rblk_client && [[ ! -e /sys/block/rblk0 ]] && until_true test "$(mrs 0)" == 0; }
server_ends() { rmmod mkey_rblk_server && until_true no_mrs; }

# resources N KIND: prints the number of MRs or queue pairs of device N
resources() { in_ns "$1" rdma resource show "${dev[$1]}" | sed -n "s/.* $2 \([0-9]*\).*/\1/p"; }
mrs() { resources "$1" mr; }
no_mrs() { [[ $(mrs 0) == 0 && $(mrs 1) == 0 ]]; }
connected() { [[ $(mrs 0) == 128 ]]; }

# transfers ROUNDS [GRAIN]
transfers() { "${blockio[@]}" $disk "$store" "$1" "$seed" ${2:+"$2"}; }
vectors() {
	local out
	out=$(transfers "$rounds" "$1") && echo "$out" && [[ $out == '0 of'* ]]
}
# What is read and written while there is no connection waits, and ends well.
device_goes() { # N
	local rc=0
	transfers $((3 * rounds)) 4 & local io=$!
	sleep 0.3
	link_delete "$1" || return
	sleep 2
	kill -0 $io || { echo "nothing waits"; rc=1; }
	link_add "$1" && wait $io && until_true connected && transfers "$rounds" 4 && return $rc
}
clean() { (($(complaints) == before)) || { dmesg | grep -E -A 20 "$complaints" | tail -n 60; return 1; }; }
