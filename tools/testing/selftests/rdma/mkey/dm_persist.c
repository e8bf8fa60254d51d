// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test by itself, see dm_restart.sh: bytes that a peer wrote to
 * persistent device memory and flushed are there after the machine was
 * restarted.
 *
 *   dm_persist            writes, and prints the place on /dev/pmemN
 *   dm_persist N OFFSET   compares the bytes at that place
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mkey_test.h"

#define LENGTH 100000

static void pattern(uint8_t *bytes)
{
	size_t i;

	for (i = 0; i < LENGTH; i++)
		bytes[i] = i * 31 + (i >> 8) + 2;
}

/* the offset of a physical address on the block device */
static int64_t on_device(const char *n, uint64_t physical)
{
	char line[64];

	if (!mkt_command(line, sizeof(line),
			 "cat /sys/bus/nd/devices/pfn%s.0/resource", n))
		return -1;
	return physical - strtoull(line, NULL, 16);
}

static int put(void)
{
	struct mkt_wants wants = { .mtu = IBV_MTU_1024, .host = 256 * 1024 };
	struct mkt_setup s = {};
	struct mkt_wr wr;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	uint8_t *map;
	char n[64];

	if (!mkt_hardware(n, sizeof(n), "pmem"))
		return 4;
	if (mkt_dev_open(&s.dev[0], 0) || mkt_dev_open(&s.dev[1], 1) ||
	    mkt_setup(&s, &wants, "persist"))
		return 1;
	dm = mkt_dm_alloc(&s.dev[0], LENGTH, 0, IBMKEY_DM_PMEM);
	if (!dm) {
		mkt_diag("no persistent memory: %s", strerror(errno));
		return 1;
	}
	mr = ibv_reg_dm_mr(s.dev[0].pd, dm, 0, LENGTH,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED |
			   IBV_ACCESS_FLUSH_PERSISTENT);
	map = mkt_dm_map(dm, LENGTH);
	if (!mr || !map)
		return 1;

	pattern(s.arena[1].mem[0].host + s.arena[1].leaf[0].at);
	wr = mkt_plain_wr(&s, 1, MKT_WRITE, LENGTH, 0, mr->rkey);
	if (mkt_status(&s.pair, 1, &wr) != IBV_WC_SUCCESS)
		return 1;
	wr = (struct mkt_wr){
		.op = MKT_FLUSH,
		.rkey = mr->rkey,
		.flush_length = LENGTH,
		.persistent = true,
	};
	if (mkt_status(&s.pair, 1, &wr) != IBV_WC_SUCCESS)
		return 1;
	printf("%s %" PRId64 "\n", n, on_device(n, mkt_physical(map)));
	/* end without freeing, as after a loss of power */
	return 0;
}

static int look(const char *n, const char *offset)
{
	static uint8_t want[LENGTH], seen[LENGTH];
	char path[64];
	int fd;

	pattern(want);
	snprintf(path, sizeof(path), "/dev/pmem%s", n);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pread(fd, seen, LENGTH, strtoll(offset, NULL, 10)) != LENGTH) {
		perror(path);
		return 1;
	}
	close(fd);
	if (!memcmp(want, seen, LENGTH))
		return 0;
	puts("other bytes than were written");
	return 1;
}

int main(int argc, char **argv)
{
	return argc > 2 ? look(argv[1], argv[2]) : put();
}
