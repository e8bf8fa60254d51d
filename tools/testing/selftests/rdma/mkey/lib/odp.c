// SPDX-License-Identifier: GPL-2.0
/* MRs on demand: the statistics of their page faults, and pages that are mapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "odp.h"
#include "qp.h"

/* runs @command, a pipe that begins with an rdma(8) command, and reads the first line */
static bool mkt_rdma(char *line, size_t size, const struct mkt_dev *dev, const char *command)
{
	return mkt_command(line, size, "rdma %s", command) ||
	       mkt_command(line, size, "ip netns exec %s rdma %s", dev->netns, command);
}

static bool mkt_number(const char *object, const char *name, unsigned long long *number)
{
	char want[64], *at;

	snprintf(want, sizeof(want), "\"%s\":", name);
	at = strstr(object, want);
	return at && sscanf(at + strlen(want), "%llu", number) == 1;
}

int mkt_odp_stats(const struct mkt_dev *dev, const struct ibv_mr *mr,
		  struct mkt_odp_stats *stats)
{
	char object[512], command[256], *at;
	unsigned long long mrn;

	/* how JSON has a key depends on the version of iproute2 */
	snprintf(command, sizeof(command),
		 "-dd resource show mr 2>/dev/null | grep '^dev %s .* lkey 0x%x '", dev->name,
		 mr->lkey);
	if (!mkt_rdma(object, sizeof(object), dev, command))
		return ENOENT;
	at = strstr(object, " mrn ");
	if (!at || sscanf(at, " mrn %llu", &mrn) != 1)
		return ENOENT;
	snprintf(command, sizeof(command),
		 "-j statistic show mr 2>/dev/null | tr '{' '\\n' | grep '\"%s\",\"mrn\":%llu[^0-9]'",
		 dev->name, mrn);
	if (!mkt_rdma(object, sizeof(object), dev, command))
		return ENOENT;
	if (!mkt_number(object, "page_faults", &stats->faults) ||
	    !mkt_number(object, "page_faults_handled", &stats->faults_handled) ||
	    !mkt_number(object, "page_invalidations", &stats->invalidations) ||
	    !mkt_number(object, "page_invalidations_handled", &stats->invalidations_handled) ||
	    !mkt_number(object, "page_prefetch", &stats->prefetch))
		return ENODATA;
	return 0;
}

int mkt_odp_since(const struct mkt_dev *dev, const struct ibv_mr *mr,
		  const struct mkt_odp_stats *before, struct mkt_odp_stats *since)
{
	/* both may be one */
	struct mkt_odp_stats was = *before;
	int err = mkt_odp_stats(dev, mr, since);

	since->faults -= was.faults;
	since->faults_handled -= was.faults_handled;
	since->invalidations -= was.invalidations;
	since->invalidations_handled -= was.invalidations_handled;
	since->prefetch -= was.prefetch;
	return err;
}

uint8_t *mkt_untouched(size_t length)
{
	uint8_t *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	/* a huge page would be mapped as a whole */
	madvise(memory, length, MADV_NOHUGEPAGE);
	return memory;
}

uint32_t mkt_mapped(const uint8_t *memory, unsigned int pages)
{
	unsigned char present[32];
	uint32_t mapped = 0;
	unsigned int i;

	if (mincore((void *)memory, pages * MKT_PAGE, present))
		return ~0u;
	for (i = 0; i < pages; i++)
		mapped |= (uint32_t)(present[i] & 1) << i;
	return mapped;
}

uint8_t *mkt_clean_pages(bool shared, unsigned int pages)
{
	volatile uint8_t *memory;
	int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned int i;

	if (shared) {
		fd = memfd_create("mkey test", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, pages * MKT_PAGE))
			return NULL;
		flags = MAP_SHARED;
	}
	memory = mmap(NULL, pages * MKT_PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (shared)
		close(fd);
	if (memory == MAP_FAILED)
		return NULL;
	for (i = 0; i < pages; i++) {
		if (shared)
			(void)memory[i * MKT_PAGE];
		else
			memory[i * MKT_PAGE] = 1;
	}
	if (!shared && madvise((void *)memory, pages * MKT_PAGE, MADV_FREE))
		return NULL;
	return (void *)memory;
}

/* A page that a processor has yet to put into a list of reclaim is not reclaimed before. */
static void drain_lists(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1", 1) != 1)
		perror("drop_caches");
	if (fd >= 0)
		close(fd);
}

bool mkt_reclaim(uint8_t *memory, unsigned int pages)
{
	drain_lists();
	return mkt_until(!madvise(memory, pages * MKT_PAGE, MADV_PAGEOUT) &&
			 !(mkt_mapped(memory, pages) >> (pages - 1)));
}
