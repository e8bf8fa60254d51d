# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A file that device 0 serves, with its bytes in memory, and device 1 mounts by NFSv4.2 over RDMA. A
# script sets nfs_dir to an empty directory, and sources this file after common.sh. The
# functions are those of block.sh.
#
# The NFS server asks user space which addresses it knows and what they may mount. Its
# caches get these answers beforehand, so no daemon is needed. A mount and the files in
# /proc/fs/nfsd belong to a network namespace; all mounts are in the script's own
# mount namespace, which "ip netns exec" would leave.

# Where the server's file is, and where the client sees it.
nfs_behind=${nfs_dir:?}/behind nfs_mnt=$nfs_dir/mnt

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

nfs_serve() {
	mkdir "$nfs_behind" "$nfs_mnt" && mount -t tmpfs -o mode=700 tmpfs "$nfs_behind" &&
		truncate -s 16M "$nfs_behind/file" && nfs_in_net 0 mount -t nfsd nfsd /proc/fs/nfsd && nfs_back
}
nfs_stop() {
	nfs_away && umount /proc/fs/nfsd "$nfs_behind" && rmdir "$nfs_behind" "$nfs_mnt"
}
nfs_away() { echo 0 >/proc/fs/nfsd/threads; }
# A server that ends forgets its exports. It waits for clients of its last start to reclaim
# their files: 10 s, the least that it accepts.
nfs_back() {
	nfs_export "$(address_of 1)" &&
		echo 10 >/proc/fs/nfsd/nfsv4gracetime &&
		echo "-3 +4 -4.0 +4.1 +4.2" >/proc/fs/nfsd/versions &&
		echo "rdma 20049" >/proc/fs/nfsd/portlist &&
		echo 2 >/proc/fs/nfsd/threads
}
nfs_connect() {
	local options
	options=vers=4.2,proto=rdma,port=20049,sec=sys,addr=$(address_of 0),clientaddr=$(address_of 1)
	nfs_in_net 1 mount -i -t nfs4 -o "$options" "$(address_of 0):/" "$nfs_mnt"
}
nfs_leave() { umount "$nfs_mnt"; }
nfs_disk() { [[ -f $nfs_mnt/file ]] && echo file; }
