# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Block storage over RDMA by ULPs of the kernel. For each protocol P, a target serves a RAM disk,
# and an initiator connects to it, both on one rxe device in the first network namespace, in which
# these ULPs listen. A script sources this file after common.sh. nfs.sh has the same for a file.
#
#   P_serve    starts the target        P_stop    ends it
#   P_away     the target drops its connections and refuses others, until P_back
#   P_connect  connects the initiator   P_leave   disconnects it
#   P_disk     prints the name of the initiator's disk

block_link=mkeyblock block_dev=rxe_block block_at=10.8.0.1
block_behind=/dev/ram0
configfs=/sys/kernel/config
nvmet=$configfs/nvmet lio=$configfs/target
nqn=mkey:disk iqn=iqn.2026-01.mkey:disk

# ib_srp is after ib_srpt, so that ib_core takes a device from the initiator first. A log-out
# after the target has closed the connection is a use after free in ib_srp (patches/srp).
declare -A block_modules=(
	[nvme]="nvmet-rdma nvme-rdma"
	[srp]="sd_mod target_core_iblock ib_srpt ib_srp"
	[iser]="sd_mod target_core_iblock iscsi_target_mod ib_isert ib_iser"
	[rnbd]="rtrs-core rnbd-server rnbd-client"
	[nfs]="rpcrdma nfsd nfsv4"
)
# What they loaded by themselves, and other names of the same.
block_others=(nvmet nvme_fabrics nvme_keyring nvme_auth scsi_transport_srp libiscsi scsi_transport_iscsi target_core_mod
	rpcsec_gss_krb5 grace)

# block_missing P: prints what this kernel or machine lacks for P; fails if that is nothing
block_missing() {
	local module program
	for module in brd ${block_modules[$1]}; do
		modprobe -n -q "$module" || { echo "this kernel has no $module"; return; }
	done
	[[ $1 == iser ]] || return
	for program in iscsid iscsiadm; do
		command -v $program >/dev/null || { echo "no $program"; return; }
	done
	! pidof iscsid || { echo "iscsid runs"; return; }
	return 1
}

# The targets are configured there.
block_configfs() { [[ -n $(ls $configfs) ]] || mount -t configfs none $configfs; }

block_link_up() {
	block_link_down && ip link add $block_link mtu 9000 type dummy && ip addr add $block_at/24 dev $block_link &&
		ip link set $block_link up && block_device
}
block_device() { rdma link add $block_dev type rxe netdev $block_link && until_true block_is_active; }
block_is_active() { grep -q ACTIVE /sys/class/infiniband/$block_dev/ports/1/state; }
block_link_down() {
	[[ ! -e /sys/class/infiniband/$block_dev ]] || rdma link delete $block_dev || return
	[[ ! -e /sys/class/net/$block_link ]] || ip link delete $block_link
}

# block_mrs: prints how many MRs the device has
block_mrs() { rdma resource show $block_dev | sed -n 's/.* mr \([0-9]*\).*/\1/p'; }

# write VALUE FILE: its error is one of echo
write() { echo "$1" >"$2"; }

# block_load P [FILE]: loads the module in FILE in place of the initiator, which is the last one
block_load() {
	local modules
	read -ra modules <<<"${block_modules[$1]}"
	[[ -z $2 ]] || modules[-1]=nvme-fabrics
	modprobe -a brd "${modules[@]}" && block_configfs || return
	[[ -z $2 ]] || insmod "$2" || return
	# SRP tries to connect again every 10 s otherwise.
	[[ $1 != srp ]] || write 1 /sys/module/ib_srp/parameters/reconnect_delay
}

# block_unload P
block_unload() {
	iscsid_end || return
	[[ ! -d /sys/module/nvme_rdma_gaps ]] || rmmod nvme_rdma_gaps
	until_true block_unloaded "$1"
}
# What ends a connection later still uses a module.
block_unloaded() {
	local modules module
	read -ra modules <<<"${block_modules[$1]//-/_}"
	modprobe -qr "${modules[@]}" "${block_others[@]}" brd 2>/dev/null
	for module in "${modules[@]}"; do
		[[ $module == sd_mod || ! -d /sys/module/$module ]] || return
	done
}

# NVMe: the options of the initiator are those that nvme connect writes.
nvme_serve() {
	local port=$nvmet/ports/1 subsystem=$nvmet/subsystems/$nqn
	mkdir "$subsystem" && write 1 "$subsystem/attr_allow_any_host" && mkdir "$subsystem/namespaces/1" &&
		write $block_behind "$subsystem/namespaces/1/device_path" &&
		write 1 "$subsystem/namespaces/1/enable" && mkdir $port && write rdma $port/addr_trtype &&
		write ipv4 $port/addr_adrfam && write $block_at $port/addr_traddr &&
		write 4420 $port/addr_trsvcid && nvme_back
}
nvme_stop() {
	[[ ! -e $nvmet/ports/1/subsystems/$nqn ]] || nvme_away || return
	rmdir $nvmet/ports/1 $nvmet/subsystems/$nqn/namespaces/1 $nvmet/subsystems/$nqn
}
nvme_away() { rm $nvmet/ports/1/subsystems/$nqn; }
nvme_back() { ln -s $nvmet/subsystems/$nqn $nvmet/ports/1/subsystems/; }
nvme_connect() {
	write "transport=rdma,traddr=$block_at,trsvcid=4420,nqn=$nqn,nr_io_queues=2,queue_size=32,keep_alive_tmo=2,reconnect_delay=1" \
		/dev/nvme-fabrics
}
nvme_subsystem() { grep -lx $nqn /sys/class/nvme-subsystem/*/subsysnqn 2>/dev/null | sed 's,/subsysnqn$,,'; }
nvme_disk() {
	local disk
	for disk in "$(nvme_subsystem)"/nvme*n*; do
		[[ -b /dev/${disk##*/} ]] && echo "${disk##*/}" && return
	done
	return 1
}
nvme_leave() {
	local controller
	for controller in "$(nvme_subsystem)"/nvme*; do
		[[ ! -e $controller/delete_controller ]] || write 1 "$controller/delete_controller" || return
	done
}

# RNBD: the module of the server listens at all addresses.
rnbd_serve() { rnbd_back; }
rnbd_stop() { rnbd_away; }
rnbd_away() { modprobe -r rnbd-server; }
rnbd_back() { modprobe rnbd-server; }
rnbd_connect() {
	write "sessname=mkey path=ip:$block_at device_path=$block_behind" /sys/devices/virtual/rnbd-client/ctl/map_device
}
rnbd_disk() { [[ -b /dev/rnbd0 ]] && grep -q open /sys/block/rnbd0/rnbd/state && echo rnbd0; }
rnbd_leave() { write normal /sys/block/rnbd0/rnbd/unmap_device; }

# SRP and iSER have one kind of target, LIO.
lio_disk() {
	mkdir -p $lio/core/iblock_0/mkey && write udev_path=$block_behind $lio/core/iblock_0/mkey/control &&
		write 1 $lio/core/iblock_0/mkey/enable
}
# lio_lun GROUP
lio_lun() { mkdir "$1/lun/lun_0" && ln -s $lio/core/iblock_0/mkey "$1/lun/lun_0/"; }
# lio_stop GROUP
lio_stop() {
	rm -f "$1"/acls/*/lun_0/lun_0 "$1/lun/lun_0/mkey" && rmdir "$1"/acls/*/lun_0 "$1"/acls/* 2>/dev/null
	rmdir "$1/lun/lun_0" "$1" "${1%/*}" && rmdir $lio/core/iblock_0/mkey $lio/core/iblock_0
}
lio_disks() { grep -ls '^LIO-ORG' /sys/block/sd*/device/vendor | cut -d/ -f4; }
scsi_disk() {
	local disk
	disk=$(lio_disks) && [[ -b /dev/$disk ]] && echo "$disk"
}
no_scsi_disk() { [[ -z $(lio_disks) ]]; }

# SRP: the target's name is the GUID of the port, the initiator's is its address.
srp_group() {
	local guid
	guid=$(cut -d: -f5- /sys/class/infiniband/$block_dev/ports/1/gids/0)
	echo "$lio/srpt/$guid/$guid"
}
srp_serve() {
	local srpt
	srpt=$(srp_group)
	lio_disk && mkdir -p "$srpt" && lio_lun "$srpt" && mkdir "$srpt/acls/$block_at" &&
		mkdir "$srpt/acls/$block_at/lun_0" && ln -s "$srpt/lun/lun_0" "$srpt/acls/$block_at/lun_0/" &&
		write 5555 $lio/srpt/discovery_auth/rdma_cm_port && srp_back
}
srp_stop() { write 0 $lio/srpt/discovery_auth/rdma_cm_port && lio_stop $lio/srpt/*:*/*:* && rmdir $lio/srpt; }
srp_away() { write 0 "$(echo $lio/srpt/*:*/*:*/enable)"; }
srp_back() { write 1 "$(echo $lio/srpt/*:*/*:*/enable)"; }
srp_login() {
	local guid
	guid=$(</sys/module/ib_srpt/parameters/srpt_service_guid)
	write "id_ext=$guid,ioc_guid=$guid,dest=$block_at:5555,cmd_sg_entries=128,sg_tablesize=128,queue_size=32" \
		/sys/class/infiniband_srp/srp-$block_dev-1/add_target
}
srp_connect() {
	# It is refused until the end of an earlier one has ended.
	until_true srp_login && until_true scsi_disk >/dev/null || return
	# If an answer is lost, the error handler waits 30 s for each command, and 5 s for its abort.
	write 3 "/sys/block/$(scsi_disk)/device/timeout" && write 1 "$(echo /sys/class/scsi_host/host*/ioc_guid |
		sed 's,ioc_guid$,eh_deadline,')"
}
srp_disk() { scsi_disk; }
srp_leave() {
	local port
	for port in /sys/class/srp_remote_ports/*; do
		[[ ! -e $port/delete ]] || write 1 "$port/delete" || return
	done
	until_true no_scsi_disk
}

# iSER: the daemon has its files in memory.
isert=$lio/iscsi/$iqn/tpgt_1
iser_serve() {
	lio_disk && mkdir -p $isert && lio_lun $isert && write 0 $isert/attrib/authentication &&
		write 1 $isert/attrib/generate_node_acls && write 0 $isert/attrib/demo_mode_write_protect &&
		mkdir $isert/np/$block_at:3260 && write 1 $isert/np/$block_at:3260/iser && iser_back
}
iser_stop() { rmdir $isert/np/$block_at:3260 && lio_stop $isert && rmdir $lio/iscsi; }
iser_away() { write 0 $isert/enable; }
iser_back() { write 1 $isert/enable; }
iser_connect() {
	if ! pidof iscsid >/dev/null; then
		mount -t tmpfs tmpfs /etc/iscsi && mount -t tmpfs tmpfs /var/lib/iscsi &&
			write "InitiatorName=$iqn-initiator" /etc/iscsi/initiatorname.iscsi || return
		cat >/etc/iscsi/iscsid.conf <<-END
			node.session.timeo.replacement_timeout = 60
			node.conn[0].timeo.noop_out_interval = 1
			node.conn[0].timeo.noop_out_timeout = 2
			node.conn[0].timeo.logout_timeout = 3
			node.session.cmds_max = 32
			node.session.scan = auto
		END
		# It ends its process group when it ends.
		setsid iscsid -f >/dev/null 2>&1 &
		until_true grep -q ISCSIADM /proc/net/unix && iscsi -o new -I iser || return
	fi
	iscsi --login
}
iscsi() { iscsiadm -m node -T $iqn -p $block_at:3260,1 "$@"; }
iser_disk() { scsi_disk; }
# What waits for the target fails soon.
iser_give_up() { write 1 /sys/class/iscsi_session/*/recovery_tmo; }
iser_leave() { iscsi --logout; }
no_iscsid() { ! pidof iscsid >/dev/null; }
iscsid_end() {
	local pid
	pid=$(pidof iscsid) || return 0
	kill "$pid" && until_true no_iscsid && umount /etc/iscsi /var/lib/iscsi
}
