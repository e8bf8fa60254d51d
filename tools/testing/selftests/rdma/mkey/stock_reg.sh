#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# subject: Ordinary MRs for fast registration of a kernel user (test_modules/stock_reg.c), on RC
# and UC queue pairs. It needs no ib_mkey.

# shellcheck disable=SC2317 # functions are called by check
# shellcheck source=lib/common.sh
source "$(dirname "$0")/common.sh" 2>/dev/null || source "$(dirname "$0")/lib/common.sh"

((UID == 0)) || skip_all "not root"
module=${STOCK_REG:-${MODULE_DIR-}/tools/testing/selftests/rdma/mkey/test_modules/stock_reg.ko}
[[ -e $module ]] || skip_all "no stock_reg.ko; STOCK_REG= names it"

# If it fails, the kernel's log says why.
registers() {
	if ! insmod "$module" device="$1" peer="$2"; then
		dmesg | grep "stock_reg:" | tail -n 3
		return 1
	fi
	rmmod stock_reg
}

plan 1
check "register, invalidate, and register an MR that is gone" registers "${dev[0]}" "${dev[1]}"
ktap_finished
