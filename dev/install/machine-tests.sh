# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests of the checks that make install makes of this machine. Part of tests.
# shellcheck disable=SC2031,SC2154,SC2317 # tests sets the variables; functions are called by check

# These checks are of this machine alone, on which these tests install nothing.
# checks COMMAND...: runs a function of checks.sh or after.sh in an installation without DESTDIR
checks() {
	(
		die() { printf 'ib_mkey: %s\n' "$*" >&2; exit 1; }
		warn() { printf 'ib_mkey: %s\n' "$*" >&2; }
		# shellcheck disable=SC2034 # checks.sh reads them
		DESTDIR='' MODROOT='' PREFIX=/usr/local SUITE=trixie TOP=${TREE:-$top}
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

# After the installation. The machine is in $tmp/machine, and runs the kernel $release.
mkdir -p "$tmp/machine/lib/modules/$release/updates"
module=$tmp/machine/lib/modules/$release/updates/ib_mkey.ko.xz
file_of() { xz -c >"$module"; }
# after WORDS COMMAND...: a function of after.sh warns with WORDS, or says nothing
after() {
	local words=$1
	shift
	program uname "echo $release"
	IB_MKEY_ROOT=$tmp/machine checks "$@" || return
	rm "$tmp/bin/uname"
	if [[ -n $words ]]; then one_line "$words"; else [[ ! -s $tmp/err ]] || { cat "$tmp/err"; return 1; }; fi
}
linker() {
	program ldconfig 'printf "%s\n" "/lib/x86_64-linux-gnu: (from some.conf:1)" "	libc.so.6 -> libc.so.6"'
	after "echo /usr/local/lib >/etc/ld.so.conf.d/ib_mkey.conf && ldconfig" check_linker || return
	program ldconfig 'echo "/usr/local/lib: (from libc.conf:2)"'
	after "" check_linker
	local rc=$?
	rm "$tmp/bin/ldconfig"
	return "$rc"
}
check "the linker does not search the prefix: a warning with the command" linker
loaded() {
	local m notes
	for m in ib_mkey rdma_rxe; do
		module=$tmp/machine/lib/modules/$release/updates/$m.ko.xz notes=$tmp/machine/sys/module/$m/notes
		printf 'some code, and the id 0123456789abcdefghij, and more' | file_of
		after "" check_loaded "$release" || return
		mkdir -p "$notes"
		printf '%s' 'header, 16 bytes0123456789abcdefghij' >"$notes/.note.gnu.build-id"
		after "" check_loaded "$release" || return
		printf '%s' 'header, 16 bytes0123456789ABCDEFGHIJ' >"$notes/.note.gnu.build-id"
		after "another build of $m is loaded, and stays until it is removed: delete the links (rdma link delete), then rmmod $m; rdma" \
			check_loaded "$release" || return
		mv "$notes" "$notes.$m"
	done
	for m in ib_mkey rdma_rxe; do mv "$tmp/machine/sys/module/$m/notes"{."$m",}; done
	after "then rmmod rdma_rxe ib_mkey; rdma link add loads the new one" check_loaded "$release" || return
	rm -r "$notes" "$module"
	module=$tmp/machine/lib/modules/$release/updates/ib_mkey.ko.xz
	echo "no archive" >"$module"
	after "" check_loaded "$release"
}
check "another build is loaded: a warning with the commands" loaded
signature() {
	local enforce=$tmp/machine/sys/module/module/parameters/sig_enforce lockdown=$tmp/machine/sys/kernel/security/lockdown
	mkdir -p "${enforce%/*}" "${lockdown%/*}"
	echo code | file_of
	echo N >"$enforce" && echo "[none] integrity confidentiality" >"$lockdown"
	after "" check_signature "$release" || return
	echo "none [integrity] confidentiality" >"$lockdown"
	after "loads signed modules only, and $module has no signature" check_signature "$release" || return
	echo Y >"$enforce" && rm "$lockdown"
	after "loads signed modules only, and $module has no signature" check_signature "$release" || return
	printf 'code and a signature~Module signature appended~\n' | file_of
	after "" check_signature "$release" || return
	cp "$module" "${module/ib_mkey/rdma_rxe}" && after "" check_signature "$release" || return
	echo code | xz -c >"${module/ib_mkey/rdma_rxe}"
	after "and ${module/ib_mkey/rdma_rxe} has no signature" check_signature "$release" && rm "${module/ib_mkey/rdma_rxe}"
}
check "the kernel loads signed modules only: a warning" signature
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
	[[ $(xz -l "$dir/ib_mkey.ko.xz") == *CRC32* ]] && cp "$dir"/*.ko.xz "${module%/*}/" || return
	mkdir -p "$tmp/machine/sys/module/module/parameters"
	echo Y >"$tmp/machine/sys/module/module/parameters/sig_enforce"
	after "" check_signature "$release"
	local rc=$?
	rm -rf "$dir"
	return "$rc"
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
