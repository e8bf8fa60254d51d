// SPDX-License-Identifier: GPL-2.0
/* What a test finds out about its machine, or changes there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mkey_test.h"

bool mkt_hardware(char *what, size_t size, const char *class)
{
	if (!mkt_command(what, size, "bash ./dm_hardware.sh %s 2>/dev/null",
			 class))
		return false;
	what[strcspn(what, "\n")] = '\0';
	return true;
}

int mkt_pool(const struct mkt_dev *dev, const char *class,
	     struct mkt_pool *pool)
{
	FILE *file = fopen("/sys/kernel/debug/ib_mkey/pools", "re");
	char line[256], name[64], kind[64], total[32];
	int err = ENOENT;

	if (!file)
		return errno;
	while (err && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %63s %31s %" SCNu64 " %" SCNu64 " %" SCNu64,
			   name, kind, total, &pool->used, &pool->high,
			   &pool->buffers) == 6 &&
		    !strcmp(name, dev->name) &&
		    !strncmp(kind, class, strlen(class))) {
			pool->total = strtoull(total, NULL, 10);
			err = 0;
		}
	fclose(file);
	return err;
}

bool mkt_pool_grew(const struct mkt_dev *dev, const char *class, const struct mkt_pool *before,
		   uint64_t more)
{
	struct mkt_pool now = {};
	int err = mkt_pool(dev, class, &now);

	if (!err && now.used == before->used + more && (more || now.buffers == before->buffers))
		return true;
	mkt_diag("%s: errno %d, %" PRIu64 " bytes in %" PRIu64 " buffers, before %" PRIu64 " in %"
		 PRIu64, class, err, now.used, now.buffers, before->used, before->buffers);
	return false;
}

uint64_t mkt_dm_share(const struct mkt_dev *dev)
{
	return dev->caps.max_dm_size / 2;
}

int64_t mkt_owner_bytes(const struct mkt_dev *dev, uid_t uid)
{
	FILE *file = fopen("/sys/kernel/debug/ib_mkey/owners", "re");
	char line[256], name[64];
	int64_t bytes, found = -1;
	unsigned int number;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %u %" SCNd64, name, &number, &bytes) == 3 &&
		    !strcmp(name, dev->name) && number == uid)
			found = bytes;
	if (file)
		fclose(file);
	return found;
}

struct ibv_dm *mkt_dm_alloc(const struct mkt_dev *dev, size_t length, uint32_t log_align,
			    uint64_t class)
{
	struct ibv_alloc_dm_attr attr = {
		.length = length,
		.log_align_req = log_align,
	};

	errno = 0;
	return class ? ibmkey_alloc_dm(dev->ctx, &attr, class) : ibv_alloc_dm(dev->ctx, &attr);
}

void *mkt_dm_map(struct ibv_dm *dm, size_t length)
{
	int fd, err = ibmkey_export_dm(dm, &fd);
	void *at;

	if (err) {
		errno = err;
		return NULL;
	}
	at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	err = errno;
	close(fd);
	errno = err;
	return at == MAP_FAILED ? NULL : at;
}

uint64_t mkt_physical(const void *at)
{
	uint64_t page = sysconf(_SC_PAGESIZE), entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	/* fault the page in */
	__atomic_load_n((const uint8_t *)at, __ATOMIC_RELAXED);
	if (fd < 0)
		return 0;
	n = pread(fd, &entry, sizeof(entry), (uintptr_t)at / page * 8);
	close(fd);
	if (n != sizeof(entry) || !(entry >> 63))
		return 0;
	return (entry & ((1ull << 55) - 1)) * page + (uintptr_t)at % page;
}

static uint64_t mkt_read_hex(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (read(fd, text, sizeof(text) - 1) < 0)
			text[0] = '\0';
		close(fd);
	}
	return strtoull(text, NULL, 16);
}

int mkt_node_of(uint64_t physical)
{
	uint64_t size = mkt_read_hex("/sys/devices/system/memory/block_size_bytes");
	char path[128];
	int node;

	for (node = 0; size && node < 64; node++) {
		snprintf(path, sizeof(path),
			 "/sys/devices/system/node/node%d/memory%llu", node,
			 (unsigned long long)(physical / size));
		if (!access(path, F_OK))
			return node;
	}
	return -1;
}

bool mkt_in_bar(uint64_t physical, const char *device)
{
	unsigned long long start, end, flags;
	char path[128];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", device);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (fscanf(file, "%llx %llx %llx", &start, &end, &flags) == 3)
		if (end && physical >= start && physical <= end)
			found = true;
	fclose(file);
	return found;
}

bool mkt_in_iomem(uint64_t physical, const char *what)
{
	unsigned long long start, end;
	bool found = false;
	char line[256];
	FILE *file = fopen("/proc/iomem", "re");

	if (!file)
		return false;
	while (fgets(line, sizeof(line), file))
		if (strstr(line, what) &&
		    sscanf(line, " %llx-%llx", &start, &end) == 2 &&
		    physical >= start && physical <= end)
			found = true;
	fclose(file);
	return found;
}

bool mkt_write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");
	bool written = f && fputs(text, f) >= 0;

	return f && !fclose(f) && written;
}

bool mkt_faults_may_sleep(bool on)
{
	static const char *const dirs[] = { "failslab", "fail_page_alloc", NULL };
	const char *const *dir;
	bool done = true;
	char path[64];

	for (dir = dirs; *dir; dir++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/ignore-gfp-wait", *dir);
		done &= mkt_write_file(path, on ? "N" : "Y");
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", *dir);
		done &= mkt_write_file(path, on ? "0" : "2");
	}
	return done;
}

bool mkt_netem_open(struct mkt_netem *netem, const struct mkt_dev *dev)
{
	memset(netem, 0, sizeof(*netem));
	if (!*dev->netns ||
	    !mkt_command(netem->netdev, sizeof(netem->netdev),
			 "ip netns exec %s cat /sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0",
			 dev->netns, dev->name))
		return false;
	netem->netdev[strcspn(netem->netdev, "\n")] = '\0';
	netem->dev = dev;
	return true;
}

static int mkt_netem_tc(struct mkt_netem *netem, const char *verb, const char *what)
{
	char command[384];

	snprintf(command, sizeof(command),
		 "ip netns exec %s tc qdisc %s dev %s root %s 2>/dev/null",
		 netem->dev->netns, verb, netem->netdev, what);
	return system(command);
}

bool mkt_netem_set(struct mkt_netem *netem, const char *what)
{
	char discipline[128];

	snprintf(discipline, sizeof(discipline), "netem %s", what);
	return !mkt_netem_tc(netem, "replace", discipline);
}

void mkt_netem_close(struct mkt_netem *netem)
{
	if (netem->dev)
		mkt_netem_tc(netem, "del", "");
	netem->dev = NULL;
}
