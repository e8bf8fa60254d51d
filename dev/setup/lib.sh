# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0
#
# Common to all set-up scripts: messages, steps with a log and progress,
# locking, and the record of what is complete in the cache. Source it.

set -Eeuo pipefail
# A script that fails says where.
trap 'printf "ib_mkey: %s:%s: \"%s\" failed with status %s\n" "${BASH_SOURCE[0]}" "$LINENO" "$BASH_COMMAND" "$?" >&2' ERR

# shellcheck disable=SC2034 # used by scripts that source this
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
CACHE=$(realpath -m "${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/ib_mkey")
LOGS=$CACHE/log
: "${V:=0}"
umask 022
PATH=$PATH:/usr/sbin:/sbin

# Messages go to stderr: the stdout of vm-run is CMD's.
say() { printf '%s\n' "$*" >&2; }
warn() { printf 'ib_mkey: %s\n' "$*" >&2; }
die() { printf 'ib_mkey: %s\n' "$*" >&2; exit 1; }

# Run as root: directly, or through sudo.
as_root() {
	if (($(id -u) == 0)); then
		"$@"
	else
		sudo -- "$@"
	fi
}

# Ask for a password before a step whose output goes to a log, not during it.
need_root() {
	(($(id -u) == 0)) && return
	command -v sudo >/dev/null ||
		die "$1 needs root: install sudo, or run make as root"
	sudo -n true 2>/dev/null && return
	say "$1 needs root; sudo may ask for a password."
	sudo -v || die "$1 needs root and sudo refused"
}

# Renews sudo's ticket, so that a long step need not ask for the password again.
keep_root() { (($(id -u) == 0)) || sudo -n -v 2>/dev/null || true; }

# Serialises set-ups of the cache, of one kernel in it, or of a tree's out/. A second
# set-up says that it waits. A process holds one lock at a time; the lock ends with
# the process.
# shellcheck disable=SC2034 # scripts that source this use LOCK_WAITED
take_lock() { # FILE WHAT-THE-OTHER-DOES
	[[ -z ${LOCK_FD-} ]] || exec {LOCK_FD}>&-
	exec {LOCK_FD}>"$1"
	LOCK_WAITED=0
	flock -n "$LOCK_FD" && return
	say "Another set-up is $2; waiting for it to end."
	LOCK_WAITED=1
	flock "$LOCK_FD"
}

lock_cache() {
	mkdir -p "$CACHE" "$LOGS" 2>/dev/null || true
	[[ -w $LOGS ]] ||
		die "cannot write to $CACHE: set XDG_CACHE_HOME to a place that can be written"
	take_lock "$CACHE/lock" "using $CACHE"
}

# out/ belongs to this tree alone.
lock_tree() {
	mkdir -p "$TOP/out/log"
	LOGS=$TOP/out/log
	take_lock "$TOP/out/lock" "building in $TOP"
	forget_moved
}

# built_here: true if out/ was built when the tree was at its present path.
built_here() { [[ $(cat "$TOP/out/.path" 2>/dev/null) == "$TOP" ]]; }

# forget_moved: removes what was built before the tree was moved or copied. Such files contain
# the old path: those of pkg-config, the dependencies of objects, and some programs. Cargo and
# Kbuild notice a move themselves.
forget_moved() {
	! built_here || return 0
	[[ ! -d $TOP/out/user ]] || say "This tree was moved or copied after it was built; building it again."
	rm -rf "$TOP"/out/user "$TOP"/out/.user.* "$TOP"/out/*/.module{,-alone}
	printf '%s\n' "$TOP" >"$TOP/out/.path"
}

hash_of() { sha256sum | cut -c1-12; }

# free_mb DIR: megabytes free where DIR is, or will be.
free_mb() {
	local d=$1
	while [[ ! -e $d ]]; do d=$(dirname "$d"); done
	df -Pk "$d" | awk 'NR == 2 { print int($4 / 1024) }'
}

# --- what is complete ------------------------------------------------------
#
# A directory of the cache is made under a name that ends in .tmp and is renamed when
# it is complete, so an interrupted build never looks complete. A record beside it
# has the name and the size of every file. The directory is no longer complete when a
# file has gone or has another size.

# list_files DIR [find tests]: what the record of DIR is made from.
list_files() {
	local dir=$1
	shift
	# Other users cannot read root's directories; those are left out.
	(cd "$dir" && { find . -xdev -type f \( "${@:--true}" \) -printf '%s %p\n' || true; } | LC_ALL=C sort) 2>/dev/null
}

record() { list_files "$@" | sha256sum >"$1.record"; }

# is_complete DIR [find tests]: true when DIR is as it was recorded.
is_complete() {
	[[ -d $1 && -s $1.record ]] || return 1
	[[ $(list_files "$@" | sha256sum) == "$(cat "$1.record")" ]] && return 0
	warn "$1 has been damaged or changed since it was made; making it again"
	return 1
}

# --- steps -----------------------------------------------------------------

# Prints a cure for the most likely cause of what a log says. The first match wins.
likely_cure() {
	local log=$1 f
	local -a cures=(
		'No space left on device' "free some disk space where $TOP and $CACHE are, or set XDG_CACHE_HOME to a larger disk"
		'Temporary failure|Could not resolve|Could not connect|Network is unreachable|Connection (timed out|refused)|Failed to fetch' "no way to the package servers: check the network, DNS and any proxy, then run the same command again"
		'certificate verif|certificate.*(expired|not trusted|unknown)|SSL (error|certificate)' "the machine's certificates do not cover the server: add your proxy's CA with update-ca-certificates"
		'NO_PUBKEY|not signed|EXPKEYSIG|BADSIG|not live until|not valid yet' "a package index could not be verified: check the clock, and that debian-archive-keyring is current"
		'Unable to locate package|has no installation candidate' "the package lists are old or the suite lacks the package: run apt-get update, or use the default mirror"
		'Could not get lock|Unable to lock|dpkg frontend lock' "another package manager is running: wait for it, then run the same command again"
		'Killed|Out of memory|virtual memory exhausted|Cannot allocate memory' "not enough memory: 4 GB are needed"
		'Operation not permitted|Permission denied|must be root' "run make as root, or as a user who may use sudo"
	)
	for ((f = 0; f < ${#cures[@]}; f += 2)); do
		# In a pipe, grep could end before tail does, whose status would then count.
		if grep -qE "${cures[f]}" <(tail -n 40 "$log"); then
			printf '%s' "${cures[f + 1]}"
			return
		fi
	done
	printf 'read the log; running the same command again resumes here'
}

# files_since LOG: the number of files and megabytes that a step has written to out/ and to what is
# not complete in the cache, since it made LOG.
files_since() {
	find "$TOP/out" "$CACHE"/*.tmp* -newer "$1.began" -type f -printf '%s\n' 2>/dev/null |
		awk '{ n++; s += $1 } END { printf "%d files, %d MB", n, s / 1048576 }' || true
}

# One line of progress: seconds so far and the last line of the log on a
# terminal, otherwise a line every half minute. A compiler writes no lines for minutes, so
# the line also has the number of files.
FILES=
progress() {
	local what=$1 secs=$2 log=$3 last part room=68
	part=$(sed -n 's/^== //p' "$log" 2>/dev/null | tail -n 1 || true)
	((secs % 5 != 0)) || FILES=$(files_since "$log")
	if [[ -t 2 ]]; then
		# bash sets COLUMNS, unless the terminal does not know its width.
		[[ ! ${COLUMNS-} =~ ^[1-9][0-9]{0,3}$ ]] || room=$((COLUMNS > 12 ? COLUMNS - 12 : 0))
		last=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | tr -d '\000-\010\013-\037' | grep . | tail -n 1 || true)
		last="$FILES  ${part:+$part: }$last"
		printf '\r\033[K  %3d s  %s' "$secs" "${last:0:room}" >&2
	elif ((secs > 0 && secs % 30 == 0)); then
		say "    ... $what: $secs s, ${part:+$part, }$FILES"
	fi
}

STEP_PID=
stop_step() {
	[[ -n $STEP_PID ]] || return 0
	kill -TERM -- "-$STEP_PID" 2>/dev/null || true
	# Only root may signal what sudo started.
	(($(id -u) == 0)) || sudo -n kill -TERM -- "-$STEP_PID" 2>/dev/null || true
	STEP_PID=
}

# background COMMAND...: runs it beside the steps. It ends with this process at the latest.
BACKGROUND=()
background() {
	set -m
	(
		set -e
		trap - EXIT INT TERM HUP
		# It would keep the lock.
		[[ -z ${LOCK_FD-} ]] || exec {LOCK_FD}>&-
		"$@"
	) </dev/null &
	BACKGROUND+=($!)
	set +m
}
stop_background() {
	local pid
	for pid in "${BACKGROUND[@]}"; do
		# It may have ended, and another process may have its number.
		! grep -qx "$pid" <(jobs -rp) || kill -TERM -- "-$pid" 2>/dev/null || true
	done
}
trap 'stop_step; stop_background' EXIT
trap 'say ""; say "Interrupted; the same command continues from here."; exit 130' INT TERM HUP

# step NAME "what it does" "how long" command...: run command in a subshell
# with errexit on, its output to the log of that name.
step() {
	local name=$1 what=$2 usual=$3 log=$LOGS/$1.log start=$SECONDS rc=0 tick=0
	shift 3
	mkdir -p "$LOGS"
	say "==> $what (usually $usual)"
	: >"$log.began"
	FILES=
	need_root "This step"
	if [[ $V == 1 ]]; then
		set -m
		(set -e; trap - EXIT INT TERM HUP; "$@") </dev/null > >(tee "$log" >&2) 2>&1 &
	else
		set -m
		(set -e; trap - EXIT INT TERM HUP; "$@") </dev/null >"$log" 2>&1 &
	fi
	STEP_PID=$!
	set +m
	while kill -0 "$STEP_PID" 2>/dev/null; do
		[[ $V == 1 ]] || progress "$name" $((SECONDS - start)) "$log"
		tick=$((tick + 1))
		((tick % 60 != 0)) || keep_root
		if ((tick < 5)); then sleep 0.2; else sleep 1; fi
	done
	wait "$STEP_PID" || rc=$?
	STEP_PID=
	[[ -t 2 && $V != 1 ]] && printf '\r\033[K' >&2
	if ((rc != 0)); then
		say "Failed: $what (step '$name', status $rc). The last lines of $log:"
		tail -n 15 "$log" | sed 's/^/    /' >&2
		die "step '$name' failed: $(likely_cure "$log"). Log: $log"
	fi
	say "    done in $((SECONDS - start)) s"
}
