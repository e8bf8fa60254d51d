# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The two ways in which ULPs and programs are measured. A script sources this file.
#
#   with      rdma_rxe and ib_mkey of this tree    without   the kernel's own rdma_rxe
#
# Both first take the devices and the modules away.

quietly() {
	local log
	log=$("$@" 2>&1) || { echo "$log" >&2; return 1; }
}

with() { quietly "$TOP/dev/vm/guest/rdma-down" && quietly "$TOP/dev/vm/guest/rdma-up"; }
without() {
	quietly "$TOP/dev/vm/guest/rdma-down" && rm -f /run/modprobe.d/ib_mkey.conf &&
		MODULE_DIR=/nonexistent quietly "$TOP/dev/vm/guest/rdma-up"
}
