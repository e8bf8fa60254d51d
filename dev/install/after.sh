# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What make install says at its end of the machine on which ib_mkey was installed. Each function
# prints a line that says what to do, or nothing. Source it after install/checks.sh.

# The module and its users in the kernel need no provider library, so this is a warning only.
check_provider() {
	local lib
	[[ -z $DESTDIR ]] || return 0
	lib=$(ldd "$PREFIX/bin/mkeyctl" 2>/dev/null | sed -n 's,^.* => \(/.*\)/libibverbs\.so.*,\1,p')
	[[ -z $lib ]] || compgen -G "$lib/libibverbs/librxe-rdmav*.so" >/dev/null ||
		warn "libibverbs does not list devices of rxe, because $lib/libibverbs has no provider library librxe: install the package ibverbs-providers"
}
