# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What make install says at its end of the machine on which ib_mkey was installed. Each function
# prints a line that says what to do, or nothing. Source it after install/checks.sh.

# after_install all|modules RELEASE
after_install() {
	[[ $1 == modules ]] || { check_linker; check_provider; }
	check_signature "$2"
	check_loaded "$2"
}

# Programs look for libibmkey.so.1 in the directories of the linker's configuration alone.
check_linker() {
	[[ -z $DESTDIR ]] || return 0
	{ PATH=$PATH:/usr/sbin:/sbin ldconfig -v -N -X 2>/dev/null || true; } | grep -q "^$PREFIX/lib:" ||
		warn "programs do not find libibmkey.so.1, because the linker does not search $PREFIX/lib: run as root: echo $PREFIX/lib >/etc/ld.so.conf.d/ib_mkey.conf && ldconfig"
}

# The module and its users in the kernel need no provider library, so this is a warning only.
check_provider() {
	local lib
	[[ -z $DESTDIR ]] || return 0
	lib=$(ldd "$PREFIX/bin/mkeyctl" 2>/dev/null | sed -n 's,^.* => \(/.*\)/libibverbs\.so.*,\1,p')
	[[ -z $lib ]] || compgen -G "$lib/libibverbs/librxe-rdmav*.so" >/dev/null ||
		warn "libibverbs does not list devices of rxe, because $lib/libibverbs has no provider library librxe: install the package ibverbs-providers"
}

# The modules that are installed, in the order in which they are removed. A kernel that has the
# series of patches/rxe in its tree keeps its own rxe.
MODULES_HERE=(rdma_rxe ib_mkey rxe_provider)
# The file of a module, and its contents as the kernel reads them. A test has a machine in
# the directory IB_MKEY_ROOT.
module_file() { compgen -G "${IB_MKEY_ROOT-}/lib/modules/$1/updates/$2.ko*"; } # RELEASE MODULE
module_bytes() {
	case $1 in
	*.xz) xz -dc "$1" ;;
	*.zst) zstd -dcq "$1" ;;
	*.gz) gzip -dc "$1" ;;
	*) cat "$1" ;;
	esac
}

# A kernel that is locked down refuses modules without a signature, too.
check_signature() { # RELEASE
	local sys=${IB_MKEY_ROOT-}/sys m file
	[[ -z $MODROOT && $1 == "$(uname -r)" ]] || return 0
	[[ $(cat "$sys/module/module/parameters/sig_enforce" 2>/dev/null) == Y ]] ||
		grep -qE '\[(integrity|confidentiality)\]' "$sys/kernel/security/lockdown" 2>/dev/null || return 0
	for m in "${MODULES_HERE[@]}"; do
		file=$(module_file "$1" "$m") || continue
		! module_bytes "$file" | tail -c 28 | grep -qa '~Module signature appended~' || continue
		warn "this kernel loads signed modules only, and $file has no signature: sign the modules as Installation, Signed modules, says, or disable secure boot"
		return
	done
}

hex() { od -An -v -tx1 | tr -d ' \n'; }
# is_other RELEASE MODULE: another build of the module is loaded.
is_other() {
	local file id bytes
	# A note with a header of 16 bytes.
	id=$({ tail -c +17 "${IB_MKEY_ROOT-}/sys/module/$2/notes/.note.gnu.build-id" 2>/dev/null || true; } | hex)
	[[ -n $id ]] && file=$(module_file "$1" "$2") || return 1
	# Without the program that unpacks it, there is nothing to compare.
	bytes=$({ module_bytes "$file" 2>/dev/null || true; } | hex)
	[[ -n $bytes && $bytes != *"$id"* ]]
}
# modprobe does nothing while the kernel's own rdma_rxe, or an earlier version, is loaded.
check_loaded() { # RELEASE
	local m others=()
	[[ -z $MODROOT && $1 == "$(uname -r)" ]] || return 0
	for m in "${MODULES_HERE[@]}"; do
		! is_other "$1" "$m" || others+=("$m")
	done
	((${#others[@]} == 0)) ||
		warn "another build of ${others[*]} is loaded, and stays until it is removed: delete the links (rdma link delete), then rmmod ${others[*]}; rdma link add loads the new one"
}
