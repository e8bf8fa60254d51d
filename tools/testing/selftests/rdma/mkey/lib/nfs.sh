# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A file system that device 0 serves and device 1 mounts by NFSv4.2 over RDMA, for
# the selftest and for the benchmark. A script sets nfs_dir to an empty directory, and
# sources this file after common.sh.
#
# The NFS server asks user space which addresses it knows and what they may mount. Its
# caches get these answers beforehand, so no daemon is needed. A mount and the files in
# /proc/fs/nfsd belong to a network namespace; all mounts are in the script's own
# mount namespace, which "ip netns exec" would leave.

nfs_modules=(rpcrdma nfsd nfsv4)
# Where the server's files are, and where the client sees them.
nfs_behind=${nfs_dir:?}/behind nfs_mnt=$nfs_dir/mnt

# nfs_missing: prints what this kernel or machine lacks; fails if that is nothing
nfs_missing() {
	local program
	modprobe -n -qa "${nfs_modules[@]}" || { echo "this kernel has no NFS over RDMA"; return; }
	for program in nsenter mount; do
		command -v "$program" >/dev/null || { echo "no $program"; return; }
	done
	return 1
}

# nfs_in_net N COMMAND...: COMMAND in the network namespace of device N
nfs_in_net() {
	# shellcheck disable=SC2154 # of common.sh
	local net=/run/netns/${netns[$1]}
	shift
	if [[ -e $net ]]; then
		nsenter --net="$net" -- "$@"
	else
		"$@"
	fi
}

# nfs_export ADDRESS: lets ADDRESS mount $nfs_behind, as the root of NFSv4
nfs_export() {
	# Of include/uapi/linux/nfsd/export.h: INSECURE_PORT, ASYNC, NOSUBTREECHECK, FSID.
	local flags=$((0x2 | 0x10 | 0x400 | 0x2000)) never=2147483647
	# shellcheck disable=SC2016 # expanded by the other shell
	nfs_in_net 0 bash -c '
		cd /proc/net/rpc || exit
		echo "nfsd $1 $3 mkey" >auth.unix.ip/channel &&
			echo "mkey $2 $3 $4 65534 65534 0" >nfsd.export/channel &&
			echo "mkey 1 \\x00000000 $3 $2" >nfsd.fh/channel
	' - "$1" "$nfs_behind" "$never" "$flags"
}

# The server waits for clients of its last start to reclaim their files: 10 s, the
# least that it accepts.
nfs_serve() {
	nfs_in_net 0 mount -t nfsd nfsd /proc/fs/nfsd &&
		nfs_export "$(address_of 1)" &&
		echo 10 >/proc/fs/nfsd/nfsv4gracetime &&
		echo "-3 +4 -4.0 +4.1 +4.2" >/proc/fs/nfsd/versions &&
		echo "rdma 20049" >/proc/fs/nfsd/portlist &&
		echo 2 >/proc/fs/nfsd/threads
}

# nfs_up BYTES: makes one file of that size, exports and mounts it: $nfs_mnt/file
nfs_up() {
	local options
	modprobe -a "${nfs_modules[@]}" &&
		mkdir "$nfs_behind" "$nfs_mnt" &&
		mount -t tmpfs -o mode=700 tmpfs "$nfs_behind" &&
		truncate -s "$1" "$nfs_behind/file" &&
		nfs_serve || return
	options=vers=4.2,proto=rdma,port=20049,sec=sys,addr=$(address_of 0),clientaddr=$(address_of 1)
	nfs_in_net 1 mount -i -t nfs4 -o "$options" "$(address_of 0):/" "$nfs_mnt"
}

nfs_is_mounted() { grep -q " $1 " /proc/mounts; }

# nfs_down: undoes nfs_up, also one that failed, and unloads the modules
nfs_down() {
	local rc=0 module
	! nfs_is_mounted "$nfs_mnt" || umount "$nfs_mnt" || rc=1
	if nfs_is_mounted /proc/fs/nfsd; then
		echo 0 >/proc/fs/nfsd/threads && umount /proc/fs/nfsd || rc=1
	fi
	! nfs_is_mounted "$nfs_behind" || umount "$nfs_behind" || rc=1
	rmdir "$nfs_behind" "$nfs_mnt" || rc=1
	for _ in {1..600}; do
		# The last of them are modules that the others loaded by themselves.
		modprobe -qr "${nfs_modules[@]}" rpcsec_gss_krb5 grace 2>/dev/null
		[[ -d /sys/module/rpcrdma || -d /sys/module/nfsd ]] || break
		sleep 0.1
	done
	for module in "${nfs_modules[@]}"; do
		[[ ! -d /sys/module/$module ]] || { echo "$module stays"; rc=1; }
	done
	return "$rc"
}
