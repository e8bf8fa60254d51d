#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# test.sh: runs the user samples and mkey_demo, and reports in TAP. It is installed
# beside the samples. It needs root, ib_mkey, rxe0 in ns0 and rxe1 in ns1.

here=$(cd "$(dirname "$0")" && pwd)
demo=$here/../bin/mkey_demo
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# shellcheck source=/dev/null # of the kernel's source
. "$here/../selftests/ktap_helpers.sh"

# result STATUS NAME: prints the output of the test, and then one TAP line
result()
{
	sed 's/^/# /' "$tmp/log"
	ktap_test_result "$2" [ "$1" -eq 0 ]
}

# works NAME COMMAND...: tests that COMMAND succeeds and prints something
works()
{
	name=$1
	shift
	"$@" >"$tmp/log" 2>&1
	status=$?
	[ -s "$tmp/log" ] || status=1
	result "$status" "$name"
}

# refuses NAME WORDS COMMAND...: tests that COMMAND fails and prints one line with WORDS
refuses()
{
	name=$1
	words=$2
	shift 2
	if "$@" >"$tmp/out" 2>"$tmp/log"; then
		status=1
	else
		status=0
	fi
	[ "$(wc -l <"$tmp/log")" -eq 1 ] || status=1
	grep -q -e "$words" "$tmp/log" || status=1
	result "$status" "$name"
}

# unwritten COMMAND...: runs COMMAND with a standard output that cannot be written
unwritten()
{
	"$@" >/dev/full
}

# closed COMMAND...: runs COMMAND without standard output
closed()
{
	"$@" >&-
}

# nodes SAMPLE OPTIONS...: runs SAMPLE on rxe1, and on rxe0 with the address of rxe1
nodes()
{
	sample=$here/$1
	shift
	ip netns exec ns1 "$sample" "$@" rxe1 >"$tmp/there" 2>&1 &
	there=$!
	ip netns exec ns0 "$sample" "$@" rxe0 10.0.0.2
	status=$?
	[ "$status" -eq 0 ] || kill "$there" 2>/dev/null
	wait "$there" || status=1
	cat "$tmp/there"
	return "$status"
}

# multicast PAYLOADS [COMMAND...]: runs a source, started by COMMAND, and 3 destinations
multicast()
{
	payloads=$1
	shift
	ip netns exec ns1 "$@" "$here/dm_multicast" -n "$payloads" rxe1 >"$tmp/there" 2>&1 &
	there=$!
	destinations=
	for _ in 1 2 3; do
		ip netns exec ns0 "$here/dm_multicast" rxe0 10.0.0.2 &
		destinations="$destinations $!"
	done
	status=0
	for pid in $destinations; do
		wait "$pid" || status=1
	done
	[ "$status" -eq 0 ] || kill "$there" 2>/dev/null
	wait "$there" || status=1
	cat "$tmp/there"
	return "$status"
}

# Tests from outside how often a payload is copied: counts the commands to the device right
# before a work request is posted. The first copies of a buffer are such commands. After the
# eighth copy the library maps the buffer, and later copies are not commands.
multicast_copies_once()
{
	multicast 7 strace -e trace=ioctl,write -o "$tmp/strace" || return 1
	copies=$(awk -F '[(,]' '
		$1 == "ioctl" { fd = / RDMA_VERBS_IOCTL/ ? $2 : ""; next }
		fd != "" && $2 == fd { n++ }
		{ fd = "" }
		END { print n + 0 }' "$tmp/strace")
	echo "7 payloads, $copies copies"
	[ "$copies" -eq 7 ]
}

# picture WIDTH HEIGHT MAXIMUM: prints a PPM file in which all rows differ
picture()
{
	awk -v w="$1" -v h="$2" -v max="$3" 'BEGIN {
		print "P3 # made by a test"
		print w, h
		print max
		for (y = 0; y < h; y++)
			for (x = 0; x < w; x++)
				print (x * 7) % (max + 1), (y * 5) % (max + 1),
				      (x * y) % (max + 1)
	}'
}

# png FILE WIDTH HEIGHT: succeeds if FILE is a PNG of that size
png()
{
	[ "$(od -An -v -tx1 -N24 "$1" | tr -d ' \n')" = \
		"$(printf '89504e470d0a1a0a0000000d49484452%08x%08x' "$2" "$3")" ]
}

demo_writes_pictures()
{
	picture 41 20 99 >"$tmp/picture.ppm"
	"$demo" -r 1 -s 65 "$tmp/picture.ppm" "$tmp/out.d" >"$tmp/said" || return 1
	cat "$tmp/said"
	# The picture is three times as large. The canvas is wider by a quarter and one pixel.
	png "$tmp/out.d/1-source.png" 123 60 &&
		png "$tmp/out.d/1-before.png" 154 60 &&
		png "$tmp/out.d/1-after.png" 154 60 || return 1
	! cmp -s "$tmp/out.d/1-before.png" "$tmp/out.d/1-after.png"
}

# Tests what a person reads: what the demonstration will show, its acts in order, a table whose
# numbers end below the ends of their headings and whose ratios are right, and the summary.
demo_explains()
{
	awk '
		function fail(what) { print "line " NR ": " what; failed = 1 }
		# ends LINE: the columns in which the words of LINE, or headings of two words, end
		function ends(line,  list, place, end) {
			gsub(/one key/, "one_key", line)
			gsub(/many WRs/, "many_WRs", line)
			list = ""
			place = 18
			line = substr(line, 19)
			while (match(line, /[^ ]+/)) {
				end = place + RSTART + RLENGTH - 1
				list = list " " end
				line = substr(line, RSTART + RLENGTH)
				place = end
			}
			return list
		}
		# near A B: A is B, but for what printing with two digits takes away
		function near(a, b) { return a - b <= 0.02 + b / 20 && b - a <= 0.02 + b / 20 }
		NR == 1 && !/^mkey_demo: rxe0@ns0 sends to rxe1@ns1\./ { fail("no announcement") }
		/^  [123]\. / { plan = plan $1 }
		/^[123]\. / { if (plan != "1.2.3.") fail("an act before the plan"); acts = acts $1 }
		/^times in ms/ { heading = ends($0) }
		/^(tile of a picture|header \+ 3 pieces)/ {
			rows++
			if (ends($0) != heading) fail("columns " ends($0) ", headings" heading)
			if (!near($(NF - 2), $(NF - 3) / $(NF - 4)) || !near($NF, $(NF - 1) / $(NF - 4))) fail("a wrong ratio")
		}
		/^(times|one key|packed|many WRs|ratio)  / && rows == 2 { explained++ }
		/^fetch-and-add / { counted++ }
		/^One RDMA WRITE each .* from rxe0@ns0 to rxe1@ns1\.$/ { moved++ }
		{ last = $0 }
		END {
			if (acts != "1.2.3." || rows != 2 || counted != 1) fail("acts " acts ", " rows " rows")
			# The second table explains its ratio, too.
			if (explained != 6) fail(explained " columns are explained")
			if (moved != 1 || last != "Every byte was checked.") fail("no summary")
			exit failed
		}' "$tmp/said" && cat "$tmp/said"
}

# Tests that a PNG gives the same pictures as the PPM from which it was made.
demo_reads_png()
{
	picture 40 32 255 >"$tmp/same.ppm"
	"$here/../bin/mkey_picture" read "$tmp/same.ppm" | "$here/../bin/mkey_picture" png "$tmp/same.png" || return 1
	for kind in ppm png; do
		"$demo" -r 1 -s 40 "$tmp/same.$kind" "$tmp/out.$kind" || return 1
	done
	cmp "$tmp/out.ppm/1-after.png" "$tmp/out.png/1-after.png"
}

# refused_bind CALL SAMPLE: gives wrong lkeys to the MRs that SAMPLE registers, and tests that it
# says which entry of its bind is wrong, and which part of an MPI datatype
refused_bind()
{
	if LD_PRELOAD=$here/../selftests/wrong_lkey.so ip netns exec ns0 "$here/$2" rxe0 >"$tmp/said" 2>&1; then
		echo "$2 did not fail"
		return 1
	fi
	cat "$tmp/said"
	grep -q "$1: \(.*: \)\?[a-z]*\(\[0\]\)\?\.\?lkey 0x[0-9a-f]* names no MR" "$tmp/said"
}

# Tests that the demonstration shows a picture: a row of half blocks for two rows of pixels.
demo_shows()
{
	"$here/../bin/mkey_picture" show --columns 20 "$tmp/same.ppm" >"$tmp/shown" || return 1
	awk '{ if (gsub(/\342\226\200/, "") != 20) exit 1 } END { exit NR != 8 }' "$tmp/shown" && echo shown
}

ktap_print_header
if ! ip netns exec ns0 rdma link show rxe0/1 >/dev/null 2>&1 ||
   ! ip netns exec ns1 rdma link show rxe1/1 >/dev/null 2>&1; then
	ktap_skip_all "no rxe0 in ns0 and rxe1 in ns1"
	exit "$KSFT_SKIP"
fi
operations=100000 messages=5000 payloads=200
scripts="column halo header_payload kv_gather dm_lock"
if [ -n "${MKEY_TEST_QUICK-}" ]; then
	operations=2000 messages=200 payloads=20
	# Under emulation NumPy takes ten seconds to start, so run one program only. The tests of
	# the cells run all programs in one process.
	scripts=column
fi
# shellcheck disable=SC2086 # words
set -- $scripts
ktap_set_plan $((44 + $#))

for sample in column header_payload pages kv_gather halo lock dm_counter rebind; do
	works "$sample on rxe0" ip netns exec ns0 "$here/$sample" rxe0
done
export PYTHONPATH="$here/../python/lib" PYTHONDONTWRITEBYTECODE=1
for sample; do
	works "python/$sample on rxe0" ip netns exec ns0 python3 "$here/python/$sample.py" rxe0
done
works "the samples in Python, cell by cell" ip netns exec ns0 python3 "$here/../python/tests/cells.py" rxe0 \
	"$here/python/column.py" "$here/python/halo.py" "$here/python/header_payload.py" "$here/python/kv_gather.py" \
	"$here/python/dm_lock.py"
works "keys in Rust on rxe0" ip netns exec ns0 "$here/keys_rust" rxe0
works "keys in Rust with objects of another crate on rxe0" ip netns exec ns0 "$here/foreign_rust" rxe0
# MPI runs in one process, so it needs no transport to other processes.
export OMPI_MCA_btl=self OMPI_MCA_pml=ob1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
works "send_type on rxe0" ip netns exec ns0 "$here/send_type" rxe0
works "column on the first device" ip netns exec ns1 "$here/column"
for sample in ibmkey_bind_interleaved:column ibmkey_bind_interleaved:halo ibmkey_bind_list:header_payload \
	ibmkey_bind_list:pages ibmkey_bind_indexed:kv_gather ibmkey_mpi_bind:send_type; do
	works "$sample says which lkey is wrong" refused_bind "${sample%:*}" "${sample#*:}"
done
refuses "a device that is not there" "does not list rxe9; mkeyctl doctor" \
	ip netns exec ns0 "$here/column" rxe9
refuses "python/column: a device that is not there" "does not list rxe9; mkeyctl doctor" \
	ip netns exec ns0 python3 "$here/python/column.py" rxe9

refuses "column: output that cannot be written" "column: standard output: No space left" \
	unwritten ip netns exec ns0 "$here/column" rxe0
refuses "column: no standard output" "column: standard output: Bad file descriptor" \
	closed ip netns exec ns0 "$here/column" rxe0

works "fetch, two nodes" nodes fetch
# Packets to this address reach no machine: none has the hardware address.
ip -n ns0 neigh replace 10.0.0.99 lladdr 02:00:00:00:00:99 dev veth0 nud permanent
refuses "fetch, from a host that does not answer" "cannot reach 10.0.0.99, TCP port 18517: Connection timed out" \
	timeout 60 ip netns exec ns0 "$here/fetch" rxe0 10.0.0.99
ip -n ns0 neigh delete 10.0.0.99 dev veth0
works "dm_lock, two nodes" nodes dm_lock -n "$operations"
works "dm_staging, two nodes" nodes dm_staging -n "$messages"
works "dm_multicast, three destinations" multicast "$payloads"
works "dm_multicast copies each payload once" multicast_copies_once

works "mkey_demo writes its pictures" demo_writes_pictures
works "mkey_demo explains what it shows" demo_explains
works "mkey_demo reads PNG" demo_reads_png
works "a picture in the terminal" demo_shows
refuses "no picture" "No such file" "$demo" "$tmp/none.ppm" "$tmp/out.d"
echo "not a picture" >"$tmp/text.ppm"
refuses "not a picture" "not a PNG, JPEG or PNM picture" "$demo" "$tmp/text.ppm" "$tmp/out.d"
picture 40 40 255 | head -n 1000 >"$tmp/short.ppm"
refuses "half a picture" "Not enough data" "$demo" "$tmp/short.ppm" "$tmp/out.d"
picture 400 20 255 >"$tmp/slim.ppm"
refuses "a picture too slim" "400 x 20 pixels: each side needs at least 16, and one side less than 8 times the other" "$demo" "$tmp/slim.ppm" "$tmp/out.d"
picture 20 20 255 >"$tmp/small.ppm"
refuses "a file instead of a directory" "small.ppm is not a directory" \
	"$demo" -r 1 "$tmp/small.ppm" "$tmp/small.ppm"
refuses "no name of a device" "-b @ns1: the name of the device is empty" \
	"$demo" -r 1 -b @ns1 "$tmp/small.ppm" "$tmp/out.d"
refuses "no name of a namespace" "-a rxe0@: the name of the network namespace is empty" \
	"$demo" -r 1 -a rxe0@ "$tmp/small.ppm" "$tmp/out.d"
refuses "help that cannot be written" "mkey_demo: standard output: No space left" unwritten "$demo" -h
refuses "a demonstration that cannot be written" "^mkey_demo: standard output: " \
	unwritten "$demo" -r 1 "$tmp/small.ppm" "$tmp/out.d"
refuses "a demonstration without standard output" "^mkey_demo: standard output: " \
	closed "$demo" -r 1 "$tmp/small.ppm" "$tmp/out.d"
refuses "no such namespace" "namespace nowhere" \
	"$demo" -r 1 -a rxe0@nowhere "$tmp/small.ppm" "$tmp/out.d"

ktap_finished
