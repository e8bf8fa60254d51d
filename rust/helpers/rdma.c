// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_verbs.h>

__rust_helper void *rust_helper_ib_get_client_data(struct ib_device *device,
						   struct ib_client *client)
{
	return ib_get_client_data(device, client);
}
