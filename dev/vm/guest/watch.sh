# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs programs that may take any time while they make progress, which is to print a
# line. How long a program takes says more of the machine than of the program. Uses LIMIT,
# the seconds after which a program that prints nothing has hung. Such a program is ended
# with all processes that it started. If they cannot be killed, the script is.

WATCHED=$(mktemp)

# PID and the processes that it started. A shell must end before its command does, because it
# would otherwise start the next one.
tree() { # PID
	local child
	echo "$1"
	for child in $(pgrep -P "$1"); do tree "$child"; done
}

# For the kernel's log: what the hung program waits for.
show_blocked() { echo w >/proc/sysrq-trigger; }

end_program() {
	local pids i
	echo "# nothing was printed for $LIMIT s: this test is ended"
	show_blocked
	mapfile -t pids < <(tree "$(<"$WATCHED")")
	kill -TERM "${pids[@]}"
	for ((i = 0; i < 20; i++)); do
		kill -0 "${pids[@]}" || return 0
		sleep 0.5
	done
	kill -KILL "${pids[@]}"
} 2>/dev/null

# Passes the lines of stdin on.
watch() {
	local line tries=0 wait=$LIMIT
	while :; do
		if IFS= read -rt "$wait" line; then
			[[ $line != '# mkey: done' ]] || return 0
			printf '%s\n' "$line"
			tries=0 wait=$LIMIT
		elif (($? <= 128)); then
			printf '%s' "$line"
			return
		elif [[ -s $WATCHED ]]; then
			printf '%s' "$line"
			((tries++ == 0)) || { echo "Bail out! a process cannot be killed"; kill -KILL "$$"; return; }
			end_program
			wait=60
		fi
	done
}

# From here on the output of the script is watched.
start_watch() {
	exec > >(watch)
	WATCHER=$!
}

# run_watched COMMAND...: with the command's status.
run_watched() {
	local rc=0
	# A process group, because bash makes other processes in the background deaf to SIGINT.
	set -m
	"$@" </dev/null 2>&1 &
	set +m
	echo $! >"$WATCHED"
	wait $! || rc=$?
	: >"$WATCHED"
	return "$rc"
}

# Processes that a program left behind may hold the pipe, so its end is a line.
end_watch() {
	echo '# mkey: done'
	wait "$WATCHER"
	rm -f "$WATCHED"
}
