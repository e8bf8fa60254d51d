# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# What runs the guest's instructions: KVM, or else emulation. Source it after
# setup/config.sh. Sets ACCEL, and with find_clock VM_ICOUNT and VM_CPUS.
# shellcheck disable=SC2034

# find_accel IMAGE INITRAMFS: chooses KVM if it works. A /dev/kvm may exist and hang every
# guest. It is tried once, with a kernel that must print a line within ten seconds; the
# answer is remembered until the host's kernel changes. The set-up tries it before the
# first guest, because the output of a guest is its command's alone.
find_accel() {
	local memo qemu=${QEMU:-qemu-system-x86_64}
	command -v "$qemu" >/dev/null || die "no $qemu on this machine: install qemu-system-x86, which make setup does too"
	memo=$CACHE/kvm-$(uname -r | tr -c 'A-Za-z0-9.\n' _)
	[[ -z ${ACCEL-} ]] || return 0
	ACCEL=tcg
	[[ -r ${KVM_DEVICE:=/dev/kvm} && -w $KVM_DEVICE ]] || return 0
	if [[ ! -s $memo ]]; then
		say "Trying whether KVM works here (10 s at most, once)"
		if probe_kvm "$qemu" "$@"; then echo kvm; else echo tcg; fi >"$memo"
		[[ $(cat "$memo") == kvm ]] || say "It does not: emulating, which is slower but the same."
	fi
	ACCEL=$(cat "$memo")
}

# The initramfs starts, finds no root, prints that and ends.
probe_kvm() { # QEMU IMAGE INITRAMFS
	grep -q 'mkey-init' < <(timeout --foreground -s KILL 10 "$1" -nodefaults -no-user-config -display none -no-reboot \
		-M q35 -accel kvm -cpu host -m 1024 -kernel "$2" -initrd "$3" \
		-append "console=ttyS0 panic=-1" -serial stdio </dev/null 2>/dev/null || true)
}

# VM_ICOUNT=1: an instruction takes a nanosecond of the guest's time, so the guest's clock
# counts instructions. The guest then has one emulated CPU. auto: 1 if the guest is
# emulated anyway.
find_clock() { # IMAGE INITRAMFS
	[[ ${VM_ICOUNT:=0} != 1 ]] || ACCEL=tcg
	find_accel "$@"
	[[ $VM_ICOUNT != auto ]] || VM_ICOUNT=$([[ $ACCEL == tcg ]] && echo 1 || echo 0)
	((VM_ICOUNT == 0)) || VM_CPUS=1
}
