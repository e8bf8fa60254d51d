#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Fast registration of scatterlists with gaps by a kernel user (test_modules). The module
# loads only if every byte was in its place, every order of mapping and registering worked, and
# everything invalid was refused.
# sets: long

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

[[ -d /sys/module/ib_mkey ]] || skip_all "ib_mkey is not loaded"
module=${MKEY_GAPS:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules/mkey_gaps_c.ko}
[[ -e $module ]] || skip_all "no mkey_gaps_c.ko; MKEY_GAPS= names it"
rounds=24
[[ ${MKEY_TEST_QUICK:-0} == 0 ]] || rounds=3

# gaps HERE THERE SEED: if it fails, the kernel's log says why
gaps() {
	local rc=0 warnings
	warnings=$(dmesg | grep -c 'WARNING:\|BUG:')
	insmod "$module" device="$1" peer="$2" seed="$3" rounds="$rounds" || rc=$?
	if ((rc != 0)); then
		dmesg | grep "mkey_gaps:" | tail -n 3
		return "$rc"
	fi
	rmmod mkey_gaps_c && (($(dmesg | grep -c 'WARNING:\|BUG:') == warnings))
}
refused() { ! gaps "$@" && [[ ! -d /sys/module/mkey_gaps_c ]]; }

plan 4
check "from one device to the other" gaps "${dev[0]}" "${dev[1]}" 1
check "the other way" gaps "${dev[1]}" "${dev[0]}" 2
check "once more, other lists" gaps "${dev[0]}" "${dev[1]}" 3
check "without a device it is refused" refused "${dev[0]}" nosuchdevice 4
ktap_finished
