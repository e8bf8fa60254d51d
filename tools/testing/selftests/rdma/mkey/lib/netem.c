// SPDX-License-Identifier: GPL-2.0
/* A link that loses packets or changes their order, by the queueing discipline netem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkey_test.h"

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
