# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of the checks that make install makes of this machine. Part of tests.
# shellcheck disable=SC2031,SC2154,SC2317 # tests sets the variables; functions are called by check

# These checks are of this machine alone, on which these tests install nothing.
# checks COMMAND...: runs a function of checks.sh in an installation without DESTDIR
checks() {
	(
		die() { printf 'ib_mkey: %s\n' "$*" >&2; exit 1; }
		warn() { printf 'ib_mkey: %s\n' "$*" >&2; }
		# shellcheck disable=SC2034 # checks.sh reads them
		DESTDIR='' MODROOT='' PREFIX=/usr/local SUITE=trixie TOP=${TREE:-$top}
		# shellcheck source=dev/install/checks.sh
		source "$here/checks.sh"
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
# The commands of the page, with the sign-file of the kernel.
# shellcheck disable=SC2016 # for sed
signs() {
	local page=$top/Documentation/infiniband/mkey/installation.rst build dir=$top/out/sign-test m
	build=$(bash -c 'source "$1/dev/setup/config.sh"; select_kernel; printf %s "$(kernel_dir)/build"' - "$top")
	rm -rf "$dir" && mkdir -p "$dir" || return
	for m in ib_mkey rdma_rxe rxe_provider; do echo code | xz --check=crc32 >"$dir/$m.ko.xz"; done
	sed -n '/^\*\*Signed modules/,/^``make install``/s/^\t//p' "$page" | grep -vE '^(mokutil --import|cd /lib/modules/)' |
		sed "s,/root/,$dir/,g; s,/lib/modules/\$(uname -r)/build/,$build/," >"$dir/commands"
	[[ $(wc -l <"$dir/commands") == 6 ]] || { echo "# the page has other commands"; return 1; }
	"$top/dev/setup/inroot" sh -ec "cd '$dir' && . ./commands" >"$tmp/err" 2>&1 || return
	[[ $(xz -l "$dir/ib_mkey.ko.xz") == *CRC32* ]] || return
	for m in ib_mkey rdma_rxe rxe_provider; do
		xz -dc "$dir/$m.ko.xz" | tail -c 28 | grep -qa '~Module signature appended~' || return
	done
	rm -rf "$dir"
}
check "a module that was signed as the page says" signs
old_libc() {
	program getconf 'echo glibc 2.36'
	! checks check_libc && one_line "need version 2.39 of the C library, and this system has 2.36" || return
	program getconf 'echo glibc 2.100'
	checks check_libc || return
	rm "$tmp/bin/getconf"
	# The number is that of the programs.
	[[ $(find "$top/out/user/bin/mkeyctl" "$top"/out/user/lib/*.so* -type f -exec objdump -T {} + | grep -o 'GLIBC_2[0-9.]*' | sort -uV | tail -n 1) == GLIBC_$(sed -n 's/^NEEDS_GLIBC=//p' "$here/checks.sh") ]]
}
check "an older C library, before anything is built" old_libc
# EUID is read-only, so these run as root alone.
owner() {
	local uid
	uid=$(stat -c %u "$top")
	SUDO_USER=me SUDO_UID=$((uid + 1)) checks check_owner && SUDO_USER=root SUDO_UID=0 checks check_owner || return
	mkdir -p "$tmp/theirs" && chown 4321 "$tmp/theirs" || return
	! SUDO_USER=me SUDO_UID=4321 TREE=$tmp/theirs checks check_owner &&
		one_line "$tmp/theirs belongs to me: run make install as me without sudo"
}
if ((EUID == 0)); then
	check "sudo make install, in the tree of a user" owner
else
	ktap_test_skip "sudo make install (not root)"
fi
libdir() { says "LIBDIR=/usr/lib64: the libraries go to PREFIX/lib" install LIBDIR=/usr/lib64 DESTDIR="$root" && same; }
check "a variable that make install does not have" libdir
