# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# QEMU: how it is started, watched and stopped. Part of run. Uses RUN,
# KERNEL_DIR, ROOT_DIR, INITRAMFS, SHARES, CMD_LIMIT, CONSOLE_LOG and what accel.sh sets;
# sets QEMU_PID, OUT_PID, ERR_PID, TAIL_PID.
# shellcheck disable=SC2034,SC2054,SC2153

QEMU=${QEMU:-qemu-system-x86_64}
QEMU_PID='' OUT_PID='' ERR_PID=''
if [[ ${NODES:-1} == 2 ]] && (($(nproc) < 4)); then
	: "${VM_CPUS:=1}"
fi
: "${VM_CPUS:=2}"
VM_MEM=${VM_MEM:-3072}
# A guest that sends no sign of life for BEAT_LIMIT seconds has hung; it sends one every
# two seconds. Before the first one, a debug kernel under emulation needs two minutes.
# The time in which QEMU waits for a processor of this machine does not count.
BEAT_LIMIT=${BEAT_LIMIT:-120}
BOOT_LIMIT=${BOOT_LIMIT:-400}

# Memory that a device could offer as its own: a NUMA node without processors, an
# NVMe controller with a memory buffer, an nvdimm. VM_PMEM=file keeps the contents of
# the nvdimm from one guest to the next; otherwise the nvdimm starts as zeros.
FAR_MEM=128 PMEM_SIZE=64 CMB_SIZE=16
hardware_args() {
	local pmem=${VM_PMEM:-$RUN/pmem}
	truncate -s 64M "$RUN/nvme"
	[[ -s $pmem ]] || truncate -s "${PMEM_SIZE}M" "$pmem"
	QEMU_ARGS+=(-M q35,nvdimm=on -m "$((VM_MEM + FAR_MEM)),slots=1,maxmem=$((VM_MEM + FAR_MEM + 1024))M"
		-object "memory-backend-ram,id=near,size=${VM_MEM}M" -numa "node,nodeid=0,cpus=0-$((VM_CPUS - 1)),memdev=near"
		-object "memory-backend-ram,id=far,size=${FAR_MEM}M" -numa node,nodeid=1,memdev=far
		-object "memory-backend-file,id=pmem,share=on,mem-path=$pmem,size=${PMEM_SIZE}M"
		-device nvdimm,memdev=pmem
		-drive "if=none,id=nvme,format=raw,file=$RUN/nvme"
		-device "nvme,serial=mkey,drive=nvme,cmb_size_mb=$CMB_SIZE,addr=10.0")
}

# The arguments that all guests have in common.
qemu_args() {
	local accel=$1 s tag mode dir append='console=ttyS0 quiet loglevel=5 panic=-1 oops=panic'
	QEMU_ARGS=(-nodefaults -no-user-config -display none -no-reboot -smp "$VM_CPUS"
		-kernel "$KERNEL_DIR/image" -initrd "$INITRAMFS" -device virtio-rng-pci
		-chardev "file,id=con,path=$RUN/console" -serial chardev:con
		-device virtio-serial-pci)
	hardware_args
	network_args
	case $accel in
	kvm) QEMU_ARGS+=(-accel kvm -cpu host) ;;
	# 5-level paging makes emulation slower and has no use here. QEMU emulates string
	# instructions byte by byte, and Linux would copy with them.
	tcg)
		if ((VM_ICOUNT)); then
			QEMU_ARGS+=(-accel tcg,thread=single -icount shift=0)
		else
			QEMU_ARGS+=(-accel tcg,thread=multi)
		fi
		QEMU_ARGS+=(-cpu max,la57=off,-erms,-fsrm)
		;;
	esac
	for s in out err ctl; do
		QEMU_ARGS+=(-chardev "file,id=$s,path=$RUN/$s" -device "virtserialport,chardev=$s,name=mkey.$s")
	done
	for s in "root:ro:$ROOT_DIR" "modules:ro:${VM_MODULES:-$KERNEL_DIR/lib/modules}" "job:rw:$RUN/job" "${SHARES[@]}"; do
		IFS=: read -r tag mode dir <<<"$s"
		QEMU_ARGS+=(-fsdev "local,id=$tag,path=$dir,security_model=none,multidevs=remap$([[ $mode == rw ]] || echo ,readonly=on)"
			-device "virtio-9p-pci,fsdev=$tag,mount_tag=$tag")
	done
	# QEMU need not translate code again if its address stays the same: without random
	# addresses mkey_matrix takes half as long under emulation.
	# Each time that Linux sets a timer of high resolution, QEMU wakes another thread: a quarter of
	# the time of mkey_matrix.
	[[ $accel == kvm ]] || append+=" nokaslr norandmaps highres=off"
	# An emulated processor may run code that another one is patching. Linux patches
	# while it boots, so the second processor starts later (guest/boot).
	[[ $accel == kvm ]] || ((VM_CPUS == 1)) || append+=" maxcpus=1"
	[[ $K_FLAVOUR == debug ]] && append+=" panic_on_warn=1" || append+=" mitigations=off"
	# An emulated CPU that gets no time on a busy machine would fail the check of the timer.
	append+=" no_timer_check"
	QEMU_ARGS+=(-append "$append ${VM_APPEND-}")
}

start_qemu() {
	mkfifo "$RUN/out" "$RUN/err" "$RUN/ctl"
	: >"$RUN/console"
	qemu_args "$ACCEL"
	# A FIFO that is opened for reading and writing does not wait for the other side.
	# A QEMU that cannot start never opens its side.
	exec {CTL}<>"$RUN/ctl" {OUT_FD}<>"$RUN/out" {ERR_FD}<>"$RUN/err"
	cat "$RUN/out" {CTL}>&- {OUT_FD}>&- {ERR_FD}>&- &
	OUT_PID=$!
	cat "$RUN/err" >&2 {CTL}>&- {OUT_FD}>&- {ERR_FD}>&- &
	ERR_PID=$!
	if [[ $V == 1 ]]; then
		tail -n +1 -f --pid=$$ "$RUN/console" 2>/dev/null {OUT_FD}>&- {ERR_FD}>&- |
			sed -u 's/^/[console] /' >&2 {OUT_FD}>&- {ERR_FD}>&- &
		TAIL_PID=$!
	fi
	# QEMU ends with this script, even by SIGKILL. ^C must not reach QEMU directly,
	# because this script cleans up first.
	setsid setpriv --pdeathsig KILL "$QEMU" "${QEMU_ARGS[@]}" {CTL}>&- {OUT_FD}>&- {ERR_FD}>&- </dev/null >"$RUN/qemu.log" 2>&1 &
	QEMU_PID=$!
}

stop_qemu() {
	[[ -n $QEMU_PID ]] || return 0
	kill -KILL "$QEMU_PID" 2>/dev/null || true
	wait "$QEMU_PID" 2>/dev/null || true
	QEMU_PID=
}

# Waits until CMD's output has reached the terminal.
wait_output() {
	exec {OUT_FD}>&- {ERR_FD}>&-
	wait "$OUT_PID" "$ERR_PID" 2>/dev/null || true
	OUT_PID='' ERR_PID=''
}

# After a failure or a signal, the cats would keep stdout and stderr of the caller open.
stop_output() {
	[[ -z $OUT_PID ]] || kill "$OUT_PID" 2>/dev/null || true
	[[ -z $ERR_PID ]] || kill "$ERR_PID" 2>/dev/null || true
	OUT_PID='' ERR_PID=''
}

# guest_failed WHY: the guest ended other than by reporting a status.
guest_failed() {
	stop_qemu
	wait_output
	if [[ $V != 1 ]]; then
		say "The last lines of the guest's console:"
		# A panic's own line may be further up than that, above what it shows of the stack.
		awk '{ line[NR % 40] = $0 } /Kernel panic/ && !panic { panic = $0; at = NR }
		     END {
			if (panic && at <= NR - 40)
				print panic
			for (i = NR > 40 ? NR - 39 : 1; i <= NR; i++)
				print line[i % 40]
		     }' "$RUN/console" | tr -d '\r' | sed 's/^/[console] /' >&2
	fi
	[[ ! -s $RUN/qemu.log ]] || sed 's/^/[qemu] /' "$RUN/qemu.log" >&2
	warn "$1; the whole console is in $CONSOLE_LOG"
	exit 125
}

# read_ctl SECONDS: reads a line of the control port into REPLY. A part of a line
# that came before the time was up is kept for the next call.
CTL_PART=
read_ctl() {
	local rc=0
	IFS= read -r -t "$1" -u "$CTL" REPLY || rc=$?
	CTL_PART+=$REPLY
	((rc == 0)) || return 1
	REPLY=$CTL_PART
	CTL_PART=
}

# guest_done STATUS: the guest reported.
guest_done() {
	stop_qemu
	wait_output
	if (($1 == 124)) && grep -qs 'mkey: CMD ran longer' "$RUN/console"; then
		say "The blocked tasks of the guest, when its time was up:"
		sed -n '/mkey: CMD ran longer/,$p' "$RUN/console" | tail -n 60 | tr -d '\r' | sed 's/^/[console] /' >&2
		warn "CMD ran longer than $CMD_LIMIT s (TIMEOUT=)"
	fi
	exit "$1"
}

# Seconds on a clock that stands still while a thread of QEMU waits for a processor.
guest_clock() {
	local file waited most=0
	for file in /proc/"$QEMU_PID"/task/*/schedstat; do
		read -r _ waited _ <"$file" || continue
		((waited <= most)) || most=$waited
	done 2>/dev/null
	CLOCK=$((SECONDS - most / 1000000000))
}

# Follows the control port until the guest reports a status, panics or hangs.
watch_guest() {
	local last=$SECONDS up=0 CLOCK
	while :; do
		guest_clock
		if read_ctl 1; then
			last=$CLOCK
			case $REPLY in
			up) up=1 ;;
			exit\ *) guest_done "${REPLY#exit }" ;;
			esac
		elif node2_has_ended; then
			guest_failed "node 2 has ended, as it says above"
		elif ! kill -0 "$QEMU_PID" 2>/dev/null; then
			# It may have reported just before it ended.
			while read_ctl 0.2; do
				[[ $REPLY != exit\ * ]] || guest_done "${REPLY#exit }"
			done
			! grep -q 'Kernel panic' "$RUN/console" || guest_failed "the guest panicked"
			guest_failed "the guest ended unexpectedly"
		elif ((up == 0 && CLOCK - last > BOOT_LIMIT)); then
			guest_failed "the guest did not start within $BOOT_LIMIT s"
		elif ((up == 1 && CLOCK - last > BEAT_LIMIT)); then
			guest_failed "the guest has given no sign of life for $BEAT_LIMIT s"
		fi
	done
}
