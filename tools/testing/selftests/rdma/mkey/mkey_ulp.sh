#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A kernel user, samples/kernel/mkey_ulp.c: it loads only if every byte was where
# it should be and every refusal had its errno.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
ulp=${MKEY_ULP:-${MODULE_DIR-}/samples/kernel/mkey_ulp_c.ko}
[[ -e $ulp ]] || skip_all "no mkey_ulp_c.ko; MKEY_ULP= names it"

# ulp_run HERE THERE: what it says of a failure is in the kernel's log
ulp_run() {
	local rc=0
	insmod "$ulp" device="$1" peer="$2" || rc=$?
	((rc == 0)) || { dmesg | grep mkey_ulp | tail -n 3; return "$rc"; }
	rmmod mkey_ulp_c
}

no_device() { ! ulp_run "${dev[0]}" nosuchdevice; }

plan 4
check "a kernel user of device memory and keys" ulp_run "${dev[0]}" "${dev[1]}"
check "the other way" ulp_run "${dev[1]}" "${dev[0]}"
check "again" ulp_run "${dev[0]}" "${dev[1]}"
check "without a device it is refused" no_device
finish
