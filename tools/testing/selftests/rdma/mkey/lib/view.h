/* SPDX-License-Identifier: GPL-2.0 */
/* Device memory that a process maps: the set-up of the tests, which leave nothing behind. */
#ifndef MKEY_TEST_VIEW_H
#define MKEY_TEST_VIEW_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "mkey_harness.h"

/* the first byte after it is not the first one of a page */
#define LENGTH 10000
#define PAGES 3
/* more than the library does by calls */
#define OFTEN 40

FIXTURE(view)
{
	struct mkt_dev dev;
	struct mkt_pool before;
	struct ibv_dm *dm;
	unsigned int files;
	unsigned int left;		/* views that the test cannot remove */
};

static inline unsigned int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int files = 0;

	while (dir && readdir(dir))
		files++;
	if (dir)
		closedir(dir);
	return files;
}

/* the number of views that this process has mapped */
static inline unsigned int views(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int found = 0;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		found += !!strstr(line, "/dmabuf:");
	if (maps)
		fclose(maps);
	return found;
}

/* copy until the library has mapped the memory, if it can */
static inline int copy_often(struct ibv_dm *dm)
{
	uint8_t byte = 0x5a;
	unsigned int i;
	int err = 0;

	for (i = 0; i < OFTEN && !err; i++)
		err = ibv_memcpy_to_dm(dm, i, &byte, 1);
	return err;
}

FIXTURE_SETUP(view)
{
	MKT_OPEN_SIDE(&self->dev, 0);
	if (mkt_pool(&self->dev, "host", &self->before))
		SKIP(return, "no debugfs");
	self->dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, self->dm);
	self->files = open_files();
}

/* check that nothing is left, whatever the test did */
FIXTURE_TEARDOWN(view)
{
	struct mkt_pool now;

	if (self->dm)
		EXPECT_EQ(0, ibv_free_dm(self->dm));
	EXPECT_EQ(self->left, views());
	EXPECT_EQ(self->files, open_files());
	EXPECT_EQ(0, mkt_pool(&self->dev, "host", &now));
	EXPECT_EQ(self->before.used, now.used);
	EXPECT_EQ(self->before.buffers, now.buffers);
	mkt_dev_close(&self->dev);
}

#endif /* MKEY_TEST_VIEW_H */
