// SPDX-License-Identifier: GPL-2.0
/*
 * Finds two devices by their names, for a module that does all its work when it is
 * loaded. Each module that is linked with this file registers its own client.
 */

#include <linux/mutex.h>

#include "mkey_ulp.h"

static const char *wanted[2];

/* Protects @found, and is held while the devices are in use. */
static DEFINE_MUTEX(lock);
static struct ib_device *found[2];

static int ulp_client_add(struct ib_device *device)
{
	int i;

	mutex_lock(&lock);
	for (i = 0; i < 2; i++)
		if (!strcmp(dev_name(&device->dev), wanted[i]))
			found[i] = device;
	mutex_unlock(&lock);

	return 0;
}

/* The device may go when this returns, so it waits until the device is not in use. */
static void ulp_client_remove(struct ib_device *device, void *data)
{
	int i;

	mutex_lock(&lock);
	for (i = 0; i < 2; i++)
		if (found[i] == device)
			found[i] = NULL;
	mutex_unlock(&lock);
}

static struct ib_client ulp_client = {
	.add = ulp_client_add,
	.remove = ulp_client_remove,
};

/**
 * ulp_client_run() - call @run with two devices
 * @name: name of the client
 * @device: name of the first device
 * @peer: name of the second one
 * @run: returns 0, a negative errno or the status of a request; leaves no object behind
 *
 * The devices stay while @run uses them: their removal waits.
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
	mutex_lock(&lock);
	ret = found[0] && found[1] ? run(found) : -ENODEV;
	mutex_unlock(&lock);
	ib_unregister_client(&ulp_client);

	/* A positive value is the status of a request, not an errno. */
	return ret > 0 ? -EIO : ret;
}
