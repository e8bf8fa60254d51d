// SPDX-License-Identifier: GPL-2.0
/*
 * A uverbs method that costs what uverbs itself costs: it has the attributes of a bind, copies what
 * a bind of one block copies from and to the process, and does nothing. The benchmark compares a
 * bind with it.
 *
 * Load this before ib_uverbs: it adds its method to those of the device, and ib_uverbs finds all of
 * them.
 */

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#define UVERBS_MODULE_NAME mkey_floor
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/ib_mkey.h>
#include <rdma/ib_mkey_ioctl.h>

#include "mkey_floor.h"

static int UVERBS_HANDLER(MKEY_FLOOR_METHOD)(struct uverbs_attr_bundle *attrs)
{
	struct ib_mr *mr = uverbs_attr_get_obj(attrs, MKEY_FLOOR_ATTR_HANDLE);
	u64 repeat_count[IB_MKEY_MAX_DIMS];
	struct ib_uverbs_mkey_bind layout;
	struct ib_uverbs_mkey_block block;
	int ret;

	ret = uverbs_copy_from_or_zero(&layout, attrs, MKEY_FLOOR_ATTR_LAYOUT);
	if (ret)
		return ret;
	if (layout.kind != IB_UVERBS_MKEY_INTERLEAVED || layout.num_entries != 1 ||
	    layout.entry_size != sizeof(block) || layout.num_dims > IB_MKEY_MAX_DIMS)
		return -EINVAL;
	if (copy_from_user(repeat_count, u64_to_user_ptr(layout.repeat_count),
			   layout.num_dims * sizeof(u64)) ||
	    copy_from_user(&block, u64_to_user_ptr(layout.entries), sizeof(block)))
		return -EFAULT;

	return uverbs_copy_to(attrs, MKEY_FLOOR_ATTR_RESP_RKEY, &mr->rkey, sizeof(mr->rkey));
}

DECLARE_UVERBS_NAMED_METHOD(MKEY_FLOOR_METHOD,
			    UVERBS_ATTR_IDR(MKEY_FLOOR_ATTR_HANDLE, UVERBS_OBJECT_MR,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(MKEY_FLOOR_ATTR_LAYOUT,
					       UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_bind,
								  reserved),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(MKEY_FLOOR_ATTR_RESP_RKEY,
						UVERBS_ATTR_TYPE(u32), UA_OPTIONAL));

ADD_UVERBS_METHODS(mkey_floor_mr, UVERBS_OBJECT_MR, &UVERBS_METHOD(MKEY_FLOOR_METHOD));

static const struct uapi_definition floor_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_MR, &mkey_floor_mr),
	{}
};

/* The definitions of a device: its own ones and those of this module. */
struct floor {
	const struct uapi_definition *own;
	struct uapi_definition defs[3];
};

static struct ib_client floor_client;

static int floor_add(struct ib_device *device)
{
	struct floor *floor;

	if (device->ops.driver_id != RDMA_DRIVER_RXE)
		return -EOPNOTSUPP;
	floor = kzalloc_obj(*floor);
	if (!floor)
		return -ENOMEM;
	floor->own = device->driver_def;
	floor->defs[0] = (struct uapi_definition)UAPI_DEF_CHAIN(floor_defs);
	if (floor->own)
		floor->defs[1] = (struct uapi_definition)UAPI_DEF_CHAIN(floor->own);
	device->driver_def = floor->defs;
	ib_set_client_data(device, &floor_client, floor);

	return 0;
}

static void floor_remove(struct ib_device *device, void *data)
{
	struct floor *floor = data;

	device->driver_def = floor->own;
	kfree(floor);
}

static struct ib_client floor_client = {
	.name = "mkey_floor",
	.add = floor_add,
	.remove = floor_remove,
};

static int __init mkey_floor_init(void)
{
	return ib_register_client(&floor_client);
}
module_init(mkey_floor_init);

static void __exit mkey_floor_exit(void)
{
	ib_unregister_client(&floor_client);
}
module_exit(mkey_floor_exit);

MODULE_DESCRIPTION("A uverbs method that does nothing, for the benchmark of binds");
MODULE_LICENSE("GPL");
