# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks the variables of the virtual machines that a user sets. The commands that boot a
# machine source it and check first, because a set-up may take minutes.

# is_value NAME PATTERN WHAT: NAME is not set, or has a value of that kind.
is_value() {
	[[ -z ${!1-} || ${!1} =~ ^($2)$ ]] || { printf 'ib_mkey: %s=%s is not %s\n' "$1" "${!1}" "$3" >&2; return 1; }
}

# A file that does not exist is made. A comma would end an argument of QEMU.
is_pmem() {
	local dir
	[[ -n ${VM_PMEM-} ]] || return 0
	dir=$(dirname -- "$VM_PMEM")
	[[ $VM_PMEM != *,* ]] || { echo "ib_mkey: VM_PMEM=$VM_PMEM: use a path without commas" >&2; return 1; }
	[[ -f $VM_PMEM && -w $VM_PMEM || ! -e $VM_PMEM && -d $dir && -w $dir ]] ||
		{ echo "ib_mkey: VM_PMEM=$VM_PMEM is not a file that can be written" >&2; return 1; }
}

# check_values: prints one line and fails if a variable has a value that it cannot have.
check_values() {
	local seconds='[1-9][0-9]{0,8}'
	is_value NODES '1|2' "1 or 2" &&
		is_value GUESTS '[1-9][0-9]?' "a number from 1 to 99" &&
		is_value TIMEOUT "$seconds" "a number of seconds from 1 to 999999999" &&
		is_value TEST_LIMIT "$seconds" "a number of seconds from 1 to 999999999" &&
		is_value VM_CPUS '[1-9][0-9]{0,2}' "a number of processors from 1 to 999" &&
		is_value VM_MEM '[1-9][0-9]{2,6}' "a number of MB from 100 to 9999999" &&
		is_value VM_ICOUNT '0|1|auto' "0, 1 or auto" &&
		is_value ACCEL 'kvm|tcg' "kvm or tcg" &&
		is_value LOSS '[0-9]{1,2}([.][0-9]{1,3})?' "a number of percent below 100" &&
		is_value DELAY '[0-9]{1,4}' "a number of milliseconds from 0 to 9999" &&
		is_pmem
}
