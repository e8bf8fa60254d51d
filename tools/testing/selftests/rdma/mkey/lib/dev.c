// SPDX-License-Identifier: GPL-2.0
/* The devices under test, in any network namespace. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "mkey_test.h"

/*
 * Every test is a process, and looking for devices loads the drivers of all
 * devices. Do that once, in the parent process of the tests.
 */
__attribute__((constructor)) static void mkt_load_drivers(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (list)
		ibv_free_device_list(list);
}

static void mkt_dev_name(struct mkt_dev *dev, unsigned int which)
{
	static const char *const names[] = { "rxe0", "rxe1" };
	static const char *const netns[] = { "ns0", "ns1" };
	const char *name, *ns;

	name = getenv(which ? "MKEY_TEST_DEV1" : "MKEY_TEST_DEV0");
	ns = getenv(which ? "MKEY_TEST_NETNS1" : "MKEY_TEST_NETNS0");
	snprintf(dev->name, sizeof(dev->name), "%s", name ?: names[which]);
	snprintf(dev->netns, sizeof(dev->netns), "%s", ns ?: netns[which]);
}

static struct ibv_context *mkt_open_here(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	unsigned int i;

	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

int mkt_in_netns(const struct mkt_dev *dev, int (*run)(void *arg), void *arg)
{
	int here, there, err = ENOENT;
	char path[96];

	snprintf(path, sizeof(path), "/run/netns/%s", dev->netns);
	there = open(path, O_RDONLY | O_CLOEXEC);
	here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (there >= 0 && here >= 0 && !setns(there, CLONE_NEWNET)) {
		err = run(arg);
		if (setns(here, CLONE_NEWNET)) {
			perror("# back to the first network namespace");
			exit(1);
		}
	}
	if (there >= 0)
		close(there);
	if (here >= 0)
		close(here);
	return err;
}

/*
 * If devices belong to namespaces (rdma system set netns exclusive), netlink
 * and sysfs show only the devices of one namespace; for sysfs that is the
 * namespace that mounted it. This matters only for opening: an open file works
 * in any namespace.
 */
static int mkt_open_in_netns(void *arg)
{
	struct mkt_dev *dev = arg;

	dev->ctx = mkt_open_here(dev->name);
	if (!dev->ctx && !unshare(CLONE_NEWNS) &&
	    !mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) &&
	    !mount("sysfs", "/sys", "sysfs", 0, NULL)) {
		dev->ctx = mkt_open_here(dev->name);
		umount2("/sys", MNT_DETACH);
	}
	return 0;
}

static struct ibv_context *mkt_open_there(const struct mkt_dev *dev)
{
	struct mkt_dev other = *dev;

	other.ctx = NULL;
	mkt_in_netns(dev, mkt_open_in_netns, &other);
	return other.ctx;
}

/* the links have IPv4 addresses, so the GID is RoCE v2 over IPv4 */
static int mkt_dev_find_gid(struct mkt_dev *dev)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry[64];
	ssize_t i, n;

	n = ibv_query_gid_table(dev->ctx, entry, 64, 0);
	for (i = 0; i < n; i++) {
		if (entry[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(entry[i].gid.raw, mapped, sizeof(mapped)))
			continue;
		dev->gid = entry[i].gid;
		dev->gid_index = entry[i].gid_index;
		return 0;
	}
	return ENODEV;
}

int mkt_dev_try_open(struct mkt_dev *dev, unsigned int which)
{
	struct ibv_port_attr port;
	int err;

	memset(dev, 0, sizeof(*dev));
	mkt_dev_name(dev, which);
	dev->ctx = mkt_open_here(dev->name);
	if (!dev->ctx)
		dev->ctx = mkt_open_there(dev);
	if (!dev->ctx)
		return ENODEV;

	err = mkt_dev_find_gid(dev);
	if (err)
		goto err_close;
	err = ibv_query_port(dev->ctx, 1, &port);
	if (err)
		goto err_close;
	dev->max_mtu = port.active_mtu;

	dev->pd = ibv_alloc_pd(dev->ctx);
	if (!dev->pd) {
		err = errno;
		goto err_close;
	}
	dev->extended = !ibmkey_enable(dev->ctx) &&
			!ibmkey_query_caps(dev->ctx, &dev->caps);
	if (!dev->extended)
		memset(&dev->caps, 0, sizeof(dev->caps));
	return 0;

err_close:
	ibv_close_device(dev->ctx);
	dev->ctx = NULL;
	return err;
}

bool mkt_dev_on_demand(const struct mkt_dev *dev)
{
	struct ibv_device_attr_ex attr;

	return !ibv_query_device_ex(dev->ctx, NULL, &attr) &&
	       attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
}

struct ibv_context *mkt_dev_reopen(const struct mkt_dev *dev)
{
	return mkt_open_here(dev->name) ?: mkt_open_there(dev);
}

int mkt_dev_open(struct mkt_dev *dev, unsigned int which)
{
	int err = mkt_dev_try_open(dev, which);

	if (err)
		mkt_diag("cannot use device %s (netns %s): %s", dev->name,
			 dev->netns, strerror(err));
	return err;
}

void mkt_dev_close(struct mkt_dev *dev)
{
	int err;

	if (!dev->ctx)
		return;
	err = ibv_dealloc_pd(dev->pd);
	if (err)
		mkt_diag("%s: something is left in the PD: %s", dev->name,
			 strerror(err));
	ibv_close_device(dev->ctx);
	dev->ctx = NULL;
}

int mkt_dev_count(const struct mkt_dev *dev, const char *kind)
{
	char line[512], want[32], *at;

	if (!mkt_command(line, sizeof(line),
			 "rdma -j resource show %s 2>/dev/null", dev->name) &&
	    !mkt_command(line, sizeof(line),
			 "ip netns exec %s rdma -j resource show %s 2>/dev/null",
			 dev->netns, dev->name))
		return -1;
	snprintf(want, sizeof(want), "\"%s\":", kind);
	at = strstr(line, want);
	return at ? atoi(at + strlen(want)) : -1;
}

unsigned long mkt_dev_counter(const struct mkt_dev *dev, const char *name)
{
	unsigned long value = 0;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
		 dev->name, name);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%lu", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}
