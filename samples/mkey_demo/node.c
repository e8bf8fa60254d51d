// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/mkey.h>
#include <peer.h>

#include "node.h"

/*
 * Does what "ip netns exec" does. sysfs shows the devices of the namespace that
 * mounted it, so the process needs its own mount.
 */
static void enter_namespace(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		err(1, "network namespace %s: %s", name, path);
	if (setns(fd, CLONE_NEWNET))
		err(1, "cannot enter network namespace %s", name);
	close(fd);
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) ||
	    umount2("/sys", MNT_DETACH) ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL))
		err(1, "network namespace %s: cannot mount its sysfs", name);
}

void node_open(struct node *node)
{
	char *device = strdup(node->where);
	char *at;
	int ret;

	if (!device)
		err(1, "%s", node->where);
	at = strchr(device, '@');
	if (at) {
		*at = '\0';
		enter_namespace(at + 1);
	}
	rc_open(&node->dev, device);

	ret = ibmkey_enable(node->dev.ctx);
	if (ret)
		die(ret, "%s has no ib_mkey (mkeyctl doctor tells why)", device);
	free(device);

	peer_link(&node->conn, &node->dev, node->sock, node->where);
}

void node_close(struct node *node)
{
	rc_destroy(&node->conn);
	rc_close(&node->dev);
}

void node_tell(struct node *node, const void *buffer, size_t length)
{
	peer_tell(node->sock, buffer, length);
}

void node_hear(struct node *node, void *buffer, size_t length)
{
	peer_hear(node->sock, buffer, length);
}

void node_meet(struct node *node)
{
	peer_meet(node->sock);
}

double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}
