# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of the checks that make install makes of this machine. Part of tests.
# shellcheck disable=SC2154,SC2317 # tests sets the variables; functions are called by check

# These checks are of this machine alone, on which these tests install nothing.
# checks COMMAND...: runs a function of checks.sh or after.sh in an installation without DESTDIR
checks() {
	(
		die() { printf 'ib_mkey: %s\n' "$*" >&2; exit 1; }
		warn() { printf 'ib_mkey: %s\n' "$*" >&2; }
		# shellcheck disable=SC2034 # checks.sh reads them
		DESTDIR='' MODROOT='' PREFIX=/usr/local SUITE=trixie TOP=$top
		# shellcheck source=dev/install/checks.sh
		source "$here/checks.sh"
		# shellcheck source=dev/install/after.sh
		source "$here/after.sh"
		"$@"
	) >"$tmp/out" 2>"$tmp/err" </dev/null
}
packages() {
	local p
	program dpkg-query "case \$* in *\$INSTALLED*) echo installed ;; *) echo not-installed ;; esac"
	INSTALLED=nothing checks check_packages || { echo "# no package is installed"; return 1; }
	while read -r p; do
		! INSTALLED=$p checks check_packages && one_line "Debian's package $p is installed: remove it first (apt-get purge $p)" || return
	done < <(sed -n 's/^Package: //p' "$top/dev/packaging/debian/control")
	rm "$tmp/bin/dpkg-query"
}
check "a package of make deb is installed" packages
# runs WORDS SCRIPT: what check_programs says if mkeyctl is this script
runs() {
	local rc=0
	mkdir -p "$tmp/programs/usr/local/bin"
	printf '%s\n' '#!/bin/sh' "$2" >"$tmp/programs/usr/local/bin/mkeyctl"
	chmod +x "$tmp/programs/usr/local/bin/mkeyctl"
	checks check_programs "$tmp/programs" || rc=$?
	if [[ -n $1 ]]; then ((rc)) && one_line "$1"; else ((rc == 0)); fi
}
check "the programs run here" runs "" 'exit 0'
check "an older C library" runs "do not run here: they are built with Debian trixie's C library" \
	"echo \"mkeyctl: libc.so.6: version 'GLIBC_2.38' not found\" >&2; exit 1"
check "no libibverbs" runs "libibverbs.so.1 is not installed here: install the package libibverbs1" \
	"echo 'mkeyctl: error while loading shared libraries: libibverbs.so.1' >&2; exit 127"
check "another reason why the programs do not run" runs "mkeyctl does not run here: Exec format error" \
	"printf 'Exec format error\\nmore\\n' >&2; exit 126"
provider() {
	local lib="$tmp/my lib"
	mkdir -p "$lib/libibverbs"
	program ldd "echo '	libibverbs.so.1 => $lib/libibverbs.so.1 (0x00007f0000000000)'"
	checks check_provider && one_line "$lib/libibverbs has no provider library librxe: install the package ibverbs-providers" &&
		: >"$lib/libibverbs/librxe-rdmav34.so" && checks check_provider && [[ ! -s $tmp/err ]]
	local rc=$?
	rm "$tmp/bin/ldd"
	return "$rc"
}
check "no provider library of rxe: a warning that names the package" provider
