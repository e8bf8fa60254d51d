#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Keys that a kernel user binds by work requests, and its fast registration of
# scatterlists with gaps (test_modules). The module loads only if every byte was in its place,
# in the order of the queue, every order of mapping and registering worked, and everything
# invalid was refused.
# sets: long

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
module=${MKEY_REG:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules/mkey_reg_c.ko}
[[ -e $module ]] || skip_all "no mkey_reg_c.ko; MKEY_REG= names it"
rounds=400
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=60

warnings() { dmesg | grep -c 'WARNING:\|BUG:'; }

# reg_load HERE THERE SEED [PARAMETER]: if it fails, the kernel's log says why
reg_load() {
	local rc=0
	insmod "$module" device="$1" peer="$2" seed="$3" rounds="$rounds" "${@:4}" || rc=$?
	((rc == 0)) || dmesg | grep mkey_reg | tail -n 3
	return "$rc"
}
reg() {
	local before
	before=$(warnings)
	reg_load "$@" && rmmod mkey_reg_c && (($(warnings) == before))
}
refused() { ! reg "$@" && [[ ! -d /sys/module/mkey_reg_c ]]; }

# The device is deleted while requests are in a queue of it.
device_goes() {
	local before rc=0
	before=$(warnings)
	in_ns 0 ip link add mkeyreg type dummy &&
		in_ns 0 ip addr add 10.9.1.1/24 dev mkeyreg &&
		in_ns 0 ip link set mkeyreg up &&
		in_ns 0 rdma link add rxe_reg type rxe netdev mkeyreg || return
	reg_load "${dev[0]}" rxe_reg 5 linger=1 || rc=$?
	in_ns 0 rdma link delete rxe_reg && in_ns 0 ip link delete mkeyreg || rc=$?
	((rc != 0)) || rmmod mkey_reg_c || rc=$?
	! dmesg | grep 'mkey_reg: .*cannot be' || rc=1
	((rc == 0 && $(warnings) == before))
}

plan 5
check "from one device to the other" reg "${dev[0]}" "${dev[1]}" 1
check "the other way" reg "${dev[1]}" "${dev[0]}" 2
check "once more, other layouts" reg "${dev[0]}" "${dev[1]}" 3
check "without a device it is refused" refused "${dev[0]}" nosuchdevice 4
check "while a device is deleted" device_goes
ktap_finished
