// SPDX-License-Identifier: GPL-2.0
/*
 * Finds two devices by their names, for a module that does its work when it is
 * loaded. Each module that contains this file registers its own client.
 */

#include "mkey_ulp.h"

static const char *wanted[2];
static struct ib_device *found[2];

static int ulp_client_add(struct ib_device *device)
{
	int i;

	for (i = 0; i < 2; i++)
		if (!strcmp(dev_name(&device->dev), wanted[i]))
			found[i] = device;

	return 0;
}

static void ulp_client_remove(struct ib_device *device, void *data)
{
}

static struct ib_client ulp_client = {
	.add = ulp_client_add,
	.remove = ulp_client_remove,
};

/**
 * ulp_client_run() - call @run with two devices, and keep them if it succeeds
 * @name: name of the client
 * @device: name of the first device
 * @peer: name of the second one
 * @run: returns 0, a negative errno or the status of a request
 *
 * A device stays while a client that was added to it is registered. If this call
 * succeeds, the devices stay until ulp_client_end().
 *
 * Return: 0 or a negative errno; -ENODEV if there are no such devices.
 */
int ulp_client_run(const char *name, const char *device, const char *peer,
		   int (*run)(struct ib_device *devices[2]))
{
	int ret;

	ulp_client.name = name;
	wanted[0] = device;
	wanted[1] = peer;
	ret = ib_register_client(&ulp_client);
	if (ret)
		return ret;
	ret = found[0] && found[1] ? run(found) : -ENODEV;
	/* A positive value is the status of a request, not an errno. */
	if (ret > 0)
		ret = -EIO;
	if (ret)
		ib_unregister_client(&ulp_client);

	return ret;
}

/**
 * ulp_client_end() - release the devices, after ulp_client_run() succeeded
 */
void ulp_client_end(void)
{
	ib_unregister_client(&ulp_client);
}
