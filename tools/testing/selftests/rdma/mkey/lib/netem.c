// SPDX-License-Identifier: GPL-2.0
/* A link that loses packets or changes their order, by the queueing discipline netem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkey_test.h"

bool mkt_netem_open(struct mkt_netem *netem, const struct mkt_dev *dev)
{
	bool found = false;

	memset(netem, 0, sizeof(*netem));
	if (mkt_dev_here(dev))
		found = *dev->netns &&
			mkt_command(netem->netdev, sizeof(netem->netdev),
				    "ip netns exec %s cat /sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0",
				    dev->netns, dev->name);
	netem->netdev[strcspn(netem->netdev, "\n")] = '\0';
	mkt_share(dev, &found, sizeof(found));
	mkt_share(dev, netem->netdev, sizeof(netem->netdev));
	netem->dev = found ? dev : NULL;
	return found;
}

static int mkt_netem_tc(struct mkt_netem *netem, const char *verb, const char *what)
{
	char command[256];
	int status = 0;

	snprintf(command, sizeof(command),
		 "ip netns exec %s tc qdisc %s dev %s root %s 2>/dev/null",
		 netem->dev->netns, verb, netem->netdev, what);
	if (mkt_dev_here(netem->dev))
		status = system(command);
	mkt_share(netem->dev, &status, sizeof(status));
	return status;
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
