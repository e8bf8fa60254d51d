# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# The initramfs: busybox, init and the modules that it takes to mount the root
# over 9p; all else comes from there. One for each kernel. Source it after
# setup/config.sh.

INIT_MODULES=(virtio_pci 9pnet_virtio 9p)

# initramfs_dir KERNEL_DIR
initramfs_dir() {
	printf '%s/initramfs-%s' "$1" "$(
		{
			cat "$TOP/dev/vm/init" "$1/release" "$(root_dir).record"
			recipe make_initramfs
		} | hash_of
	)"
}

# Runs in the builder root: make_initramfs KERNEL_DIR OUTPUT-DIR
make_initramfs() {
	local dir=$1 out=$2/initramfs.cpio release tmp m path
	mkdir -p "$2"
	release=$(cat "$dir/release")
	tmp=$(mktemp -d)
	mkdir -p "$tmp/bin" "$tmp/modules"
	cp /usr/bin/busybox "$tmp/bin/busybox"
	ln -s busybox "$tmp/bin/sh"
	install -m 755 "$TOP/dev/vm/init" "$tmp/init"
	# A name that modprobe does not know is an error, one built in is not.
	for m in "${INIT_MODULES[@]}"; do
		/usr/sbin/modprobe -d "$dir" -S "$release" --show-depends "$m"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$tmp/list"
	while read -r path; do
		m=$(basename "$path" .xz)
		case $path in
		*.xz) xz -dc "$path" >"$tmp/modules/$m" ;;
		*) cp "$path" "$tmp/modules/$m" ;;
		esac
		echo "$m"
	done <"$tmp/list" >"$tmp/modules/order"
	rm "$tmp/list"
	(cd "$tmp" && find . | cpio -o -H newc --quiet --owner=0:0) >"$out"
	rm -rf "$tmp"
}

setup_initramfs() {
	local dir=$1 out
	out=$(initramfs_dir "$dir")
	is_complete "$out" && return
	# Other trees may have another builder root, and use theirs now.
	find "$dir" -maxdepth 1 -name 'initramfs-*' -mtime +7 -exec rm -rf {} +
	rm -rf "$out"
	step initramfs "Initramfs of $K_ID" "1 s" "$TOP/dev/setup/inroot" bash -euo pipefail -c "
		TOP=$(printf %q "$TOP") INIT_MODULES=(${INIT_MODULES[*]})
		$(declare -f make_initramfs)
		make_initramfs \"\$@\"" - "$dir" "$out"
	record "$out"
}
