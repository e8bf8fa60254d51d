// SPDX-License-Identifier: GPL-2.0
/*
 * uverbs methods of ib_mkey: each reads attributes, calls one Rust function and
 * writes attributes.
 * This is C, because the macros that build the tables exist in C only.
 */

#include <linux/args.h>
#include <linux/build_bug.h>
#include <linux/dma-buf.h>
#include <linux/file.h>

#define UVERBS_MODULE_NAME ib_mkey
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/ib_mkey.h>

#include "uverbs_table.h"

/* Writes the structure @from, for a caller that wants it. */
static int answer(struct uverbs_attr_bundle *attrs, u16 attr, const void *from, size_t size)
{
	if (!uverbs_attr_is_valid(attrs, attr))
		return 0;
	return uverbs_copy_to_struct_or_zero(attrs, attr, from, size);
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_QUERY_CAPS)(struct uverbs_attr_bundle *attrs)
{
	const u16 refused_attr = IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS;
	struct ib_uverbs_mkey_refused_access refused_access;
	struct ib_uverbs_mkey_caps caps;
	struct ib_ucontext *context;
	int ret;

	context = ib_uverbs_get_ucontext(attrs);
	if (IS_ERR(context))
		return PTR_ERR(context);

	ret = ib_query_mkey_caps(context->device, &caps);
	if (ret)
		return ret;

	if (uverbs_attr_is_valid(attrs, refused_attr)) {
		ret = ib_mkey_uapi_query_refused_access(context, &refused_access) ?:
		      answer(attrs, refused_attr, &refused_access, sizeof(refused_access));
		if (ret)
			return ret;
	}

	return uverbs_copy_to_struct_or_zero(attrs, IB_MKEY_ATTR_QUERY_CAPS_RESP,
					     &caps, sizeof(caps));
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_DM_COPY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *dm = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_DM_COPY_HANDLE);
	enum ib_uverbs_mkey_dm_copy_dir dir;
	u64 offset, addr, length;
	int ret;

	ret = uverbs_get_const(&dir, attrs, IB_MKEY_ATTR_DM_COPY_DIR);
	if (!ret)
		ret = uverbs_copy_from(&offset, attrs, IB_MKEY_ATTR_DM_COPY_OFFSET);
	if (!ret)
		ret = uverbs_copy_from(&addr, attrs, IB_MKEY_ATTR_DM_COPY_ADDR);
	if (!ret)
		ret = uverbs_copy_from(&length, attrs, IB_MKEY_ATTR_DM_COPY_LENGTH);
	if (ret)
		return ret;
	if (dir != IB_UVERBS_MKEY_DM_COPY_TO && dir != IB_UVERBS_MKEY_DM_COPY_FROM)
		return -EINVAL;

	return ib_mkey_uapi_dm_copy(dm, dir == IB_UVERBS_MKEY_DM_COPY_TO, offset,
				    addr, length);
}

/* Writes a new file descriptor of the dma-buf that @make makes of @dm to @attr. */
static int answer_dmabuf(struct uverbs_attr_bundle *attrs, u16 attr, struct ib_dm *dm,
			 struct dma_buf *(*make)(struct ib_dm *dm))
{
	struct dma_buf *dmabuf;
	int ret, fd;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	dmabuf = make(dm);
	if (IS_ERR(dmabuf)) {
		ret = PTR_ERR(dmabuf);
		goto err_fd;
	}
	ret = uverbs_copy_to(attrs, attr, &fd, sizeof(fd));
	if (ret)
		goto err_dmabuf;
	/* The descriptor takes the reference. Nothing fails from here on. */
	fd_install(fd, dmabuf->file);
	return 0;

err_dmabuf:
	dma_buf_put(dmabuf);
err_fd:
	put_unused_fd(fd);
	return ret;
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_DM_EXPORT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *dm = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_DM_EXPORT_HANDLE);

	return answer_dmabuf(attrs, IB_MKEY_ATTR_DM_EXPORT_RESP_FD, dm, ib_export_dm);
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_DM_VIEW)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *dm = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_DM_VIEW_HANDLE);
	u64 length = dm->length;
	int ret;

	ret = uverbs_copy_to(attrs, IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH, &length, sizeof(length));
	if (ret)
		return ret;

	return answer_dmabuf(attrs, IB_MKEY_ATTR_DM_VIEW_RESP_FD, dm, ib_mkey_uapi_dm_view);
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_DM_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *dm = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_DM_QUERY_HANDLE);
	u64 dm_class;
	int ret;

	ret = ib_query_dm_class(dm, &dm_class);
	if (ret)
		return ret;

	return uverbs_copy_to(attrs, IB_MKEY_ATTR_DM_QUERY_RESP_CLASS, &dm_class,
			      sizeof(dm_class));
}

/* Writes why a call fails with @err, for a caller that wants to know. Returns the error. */
static int answer_refused(struct uverbs_attr_bundle *attrs, u16 attr,
			  const struct ib_uverbs_mkey_refused *refused, int err)
{
	return answer(attrs, attr, refused, sizeof(*refused)) ? -EFAULT : err;
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_CREATE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj =
		uverbs_attr_get_uobject(attrs, IB_MKEY_ATTR_CREATE_HANDLE);
	struct ib_pd *pd = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_CREATE_PD_HANDLE);
	struct ib_uverbs_mkey_refused refused;
	u32 max_entries, flags;
	struct ib_mr *mr;
	int ret;

	ret = uverbs_copy_from(&max_entries, attrs, IB_MKEY_ATTR_CREATE_MAX_ENTRIES);
	if (ret)
		return ret;
	ret = uverbs_get_flags32(&flags, attrs, IB_MKEY_ATTR_CREATE_FLAGS,
				 IB_UVERBS_MKEY_CREATE_REVOCABLE);
	if (ret)
		return ret;

	mr = ib_mkey_uapi_create(pd, max_entries, flags & IB_UVERBS_MKEY_CREATE_REVOCABLE,
				 &refused);
	if (IS_ERR(mr))
		return answer_refused(attrs, IB_MKEY_ATTR_CREATE_RESP_REFUSED, &refused,
				      PTR_ERR(mr));

	mr->uobject = uobj;
	uobj->object = mr;
	/* From here on a failure destroys the uobject and the key. */
	uverbs_finalize_uobj_create(attrs, IB_MKEY_ATTR_CREATE_HANDLE);

	ret = uverbs_copy_to(attrs, IB_MKEY_ATTR_CREATE_RESP_LKEY, &mr->lkey,
			     sizeof(mr->lkey));
	if (ret)
		return ret;

	return uverbs_copy_to(attrs, IB_MKEY_ATTR_CREATE_RESP_RKEY, &mr->rkey,
			      sizeof(mr->rkey));
}

/* Writes the lkey and rkey of a key, which a bind or an unbind may have changed. */
static int answer_rkey(struct uverbs_attr_bundle *attrs, u16 attr, struct ib_mr *mkey)
{
	u32 rkey = READ_ONCE(mkey->rkey);

	if (!uverbs_attr_is_valid(attrs, attr))
		return 0;
	return uverbs_copy_to(attrs, attr, &rkey, sizeof(rkey));
}

/* Writes the lkeys and rkeys of @mkeys. */
static int answer_rkeys(struct uverbs_attr_bundle *attrs, struct ib_mr **mkeys, int num)
{
	const u16 attr = IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS;
	u32 *rkeys;
	int i, ret;

	if (!uverbs_attr_is_valid(attrs, attr))
		return 0;
	ret = uverbs_attr_get_len(attrs, attr);
	if (ret < 0)
		return ret;
	rkeys = uverbs_kcalloc(attrs, num, sizeof(*rkeys));
	if (IS_ERR(rkeys))
		return PTR_ERR(rkeys);
	for (i = 0; i < num; i++)
		rkeys[i] = READ_ONCE(mkeys[i]->rkey);

	return uverbs_copy_to(attrs, attr, rkeys, min_t(size_t, ret, num * sizeof(*rkeys)));
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_BIND)(struct uverbs_attr_bundle *attrs)
{
	struct ib_mr *mkey = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_BIND_HANDLE);
	struct ib_uverbs_mkey_refused refused;
	struct ib_uverbs_mkey_bind layout;
	int ret;

	ret = uverbs_copy_from_or_zero(&layout, attrs, IB_MKEY_ATTR_BIND_LAYOUT);
	if (ret)
		return ret;

	ret = ib_mkey_uapi_bind(mkey, &layout, &refused);
	if (ret)
		return answer_refused(attrs, IB_MKEY_ATTR_BIND_RESP_REFUSED, &refused, ret);

	return answer_rkey(attrs, IB_MKEY_ATTR_BIND_RESP_RKEY, mkey);
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_BIND_MANY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uverbs_mkey_refused refused;
	struct ib_uobject **handles;
	int i, ret, num, length;
	struct ib_mr **mkeys;
	u32 failed, size;
	const void *binds;

	num = uverbs_attr_get_uobjs_arr(attrs, IB_MKEY_ATTR_BIND_MANY_HANDLES, &handles);
	mkeys = uverbs_kcalloc(attrs, num, sizeof(*mkeys));
	if (IS_ERR(mkeys))
		return PTR_ERR(mkeys);
	for (i = 0; i < num; i++)
		mkeys[i] = handles[i]->object;
	ret = uverbs_copy_from(&size, attrs, IB_MKEY_ATTR_BIND_MANY_BIND_SIZE);
	if (ret)
		return ret;
	binds = uverbs_attr_get_alloced_ptr(attrs, IB_MKEY_ATTR_BIND_MANY_BINDS);
	length = uverbs_attr_get_len(attrs, IB_MKEY_ATTR_BIND_MANY_BINDS);

	ret = ib_mkey_uapi_bind_many(mkeys, num, binds, length, size, &failed, &refused);
	if (!ret)
		return answer_rkeys(attrs, mkeys, num);
	if (uverbs_attr_is_valid(attrs, IB_MKEY_ATTR_BIND_MANY_RESP_FAILED) &&
	    uverbs_copy_to(attrs, IB_MKEY_ATTR_BIND_MANY_RESP_FAILED, &failed, sizeof(failed)))
		return -EFAULT;

	return answer_refused(attrs, IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED, &refused, ret);
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_UNBIND)(struct uverbs_attr_bundle *attrs)
{
	struct ib_mr *mkey = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_UNBIND_HANDLE);
	int ret = ib_unbind_mkey(mkey);

	return ret ?: answer_rkey(attrs, IB_MKEY_ATTR_UNBIND_RESP_RKEY, mkey);
}

static int UVERBS_HANDLER(IB_MKEY_METHOD_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_mr *mkey = uverbs_attr_get_obj(attrs, IB_MKEY_ATTR_QUERY_HANDLE);
	u64 repeat_count[IB_MKEY_MAX_DIMS] = {};
	struct ib_uverbs_mkey_indexed wanted = {}, indexed = {};
	struct ib_uverbs_mkey_refused_access refused_access = {};
	struct ib_uverbs_mkey_refused refused = {};
	struct ib_uverbs_mkey_info info = {};
	u64 blocks = 0, base = 0;
	u32 num_blocks = 0;
	int ret, len;

	if (uverbs_attr_is_valid(attrs, IB_MKEY_ATTR_QUERY_BLOCKS)) {
		if (!uverbs_attr_is_valid(attrs, IB_MKEY_ATTR_QUERY_NUM_BLOCKS))
			return -EINVAL;
		ret = uverbs_copy_from(&blocks, attrs, IB_MKEY_ATTR_QUERY_BLOCKS);
		if (!ret)
			ret = uverbs_copy_from(&num_blocks, attrs,
					       IB_MKEY_ATTR_QUERY_NUM_BLOCKS);
		if (ret)
			return ret;
	}

	if (uverbs_attr_is_valid(attrs, IB_MKEY_ATTR_QUERY_INDEXED)) {
		ret = uverbs_copy_from_or_zero(&wanted, attrs, IB_MKEY_ATTR_QUERY_INDEXED);
		if (ret)
			return ret;
		if (wanted.addr || wanted.unit || wanted.bytes_count || wanted.lkey ||
		    wanted.index_bytes != sizeof(u64) || wanted.comp_mask)
			return -EINVAL;
	}

	ret = ib_mkey_uapi_query(mkey, &info, &base, repeat_count, IB_MKEY_MAX_DIMS, &wanted,
				 &indexed, blocks, num_blocks, &refused, &refused_access);
	if (ret)
		return ret;

	ret = answer(attrs, IB_MKEY_ATTR_QUERY_RESP_REFUSED, &refused, sizeof(refused)) ?:
	      answer(attrs, IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS, &refused_access,
		     sizeof(refused_access)) ?:
	      answer(attrs, IB_MKEY_ATTR_QUERY_RESP_BASE_ADDR, &base, sizeof(base)) ?:
	      answer(attrs, IB_MKEY_ATTR_QUERY_RESP_INDEXED, &indexed, sizeof(indexed));
	if (ret)
		return ret;

	if (info.num_dims &&
	    uverbs_attr_is_valid(attrs, IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT)) {
		len = uverbs_attr_get_len(attrs, IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT);
		if (len < 0)
			return len;
		ret = uverbs_copy_to(attrs, IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT,
				     repeat_count,
				     min_t(size_t, len,
					   info.num_dims * sizeof(u64)));
		if (ret)
			return ret;
	}

	return uverbs_copy_to_struct_or_zero(attrs, IB_MKEY_ATTR_QUERY_RESP, &info,
					     sizeof(info));
}

/* The last refused access. */
#define ATTR_REFUSED_ACCESS(_id)							\
	UVERBS_ATTR_PTR_OUT(_id,							\
			    UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_refused_access, reserved), \
			    UA_OPTIONAL)

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_QUERY_CAPS,
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_QUERY_CAPS_RESP,
						UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_caps,
								   dm_classes),
						UA_MANDATORY),
			    ATTR_REFUSED_ACCESS(IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS));

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_DM_COPY,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_DM_COPY_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_CONST_IN(IB_MKEY_ATTR_DM_COPY_DIR,
						 enum ib_uverbs_mkey_dm_copy_dir, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_DM_COPY_OFFSET, UVERBS_ATTR_TYPE(u64),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_DM_COPY_ADDR, UVERBS_ATTR_TYPE(u64),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_DM_COPY_LENGTH, UVERBS_ATTR_TYPE(u64),
					       UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_DM_EXPORT,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_DM_EXPORT_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_DM_EXPORT_RESP_FD,
						UVERBS_ATTR_TYPE(s32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_DM_VIEW,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_DM_VIEW_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_DM_VIEW_RESP_FD,
						UVERBS_ATTR_TYPE(s32), UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH,
						UVERBS_ATTR_TYPE(u64), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_DM_QUERY,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_DM_QUERY_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_DM_QUERY_RESP_CLASS,
						UVERBS_ATTR_TYPE(u64), UA_MANDATORY));

ADD_UVERBS_ATTRIBUTES_SIMPLE(ib_mkey_dm_alloc, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC,
			     UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_DM_ALLOC_CLASS,
						UVERBS_ATTR_TYPE(u64), UA_OPTIONAL));

/* Why a key was not created or bound. */
#define ATTR_REFUSED(_id)								\
	UVERBS_ATTR_PTR_OUT(_id, UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_refused, value), \
			    UA_OPTIONAL)

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_CREATE,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_CREATE_HANDLE, UVERBS_OBJECT_MR,
					    UVERBS_ACCESS_NEW, UA_MANDATORY),
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_CREATE_PD_HANDLE, UVERBS_OBJECT_PD,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_CREATE_MAX_ENTRIES,
					       UVERBS_ATTR_TYPE(u32),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_CREATE_RESP_LKEY,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_CREATE_RESP_RKEY,
						UVERBS_ATTR_TYPE(u32),
						UA_MANDATORY),
			    UVERBS_ATTR_FLAGS_IN(IB_MKEY_ATTR_CREATE_FLAGS,
						 enum ib_uverbs_mkey_create_flags, UA_OPTIONAL),
			    ATTR_REFUSED(IB_MKEY_ATTR_CREATE_RESP_REFUSED));

/* UVERBS_ACCESS_READ excludes destruction of the key. The key's mutex serialises binds. */
DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_BIND,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_BIND_HANDLE, UVERBS_OBJECT_MR,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_BIND_LAYOUT,
					       UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_bind,
								  reserved),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_BIND_RESP_RKEY,
						UVERBS_ATTR_TYPE(u32), UA_OPTIONAL),
			    ATTR_REFUSED(IB_MKEY_ATTR_BIND_RESP_REFUSED));

/* The size of struct ib_uverbs_mkey_bind in the first version of the ABI. */
#define BIND_SIZE offsetofend(struct ib_uverbs_mkey_bind, reserved)

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_BIND_MANY,
			    UVERBS_ATTR_IDRS_ARR(IB_MKEY_ATTR_BIND_MANY_HANDLES, UVERBS_OBJECT_MR,
						 UVERBS_ACCESS_READ, 1, IB_MKEY_MAX_BINDS,
						 UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_BIND_MANY_BINDS,
					       UVERBS_ATTR_MIN_SIZE(BIND_SIZE), UA_MANDATORY,
					       UA_ALLOC_AND_COPY),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_BIND_MANY_BIND_SIZE,
					       UVERBS_ATTR_TYPE(u32), UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_BIND_MANY_RESP_FAILED,
						UVERBS_ATTR_TYPE(u32), UA_OPTIONAL),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS,
						UVERBS_ATTR_MIN_SIZE(sizeof(u32)), UA_OPTIONAL),
			    ATTR_REFUSED(IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED));

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_UNBIND,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_UNBIND_HANDLE, UVERBS_OBJECT_MR,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_UNBIND_RESP_RKEY,
						UVERBS_ATTR_TYPE(u32), UA_OPTIONAL));

DECLARE_UVERBS_NAMED_METHOD(IB_MKEY_METHOD_QUERY,
			    UVERBS_ATTR_IDR(IB_MKEY_ATTR_QUERY_HANDLE, UVERBS_OBJECT_MR,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_info,
								   comp_mask),
						UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT,
						UVERBS_ATTR_MIN_SIZE(sizeof(u64)), UA_OPTIONAL),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_QUERY_BLOCKS, UVERBS_ATTR_TYPE(u64),
					       UA_OPTIONAL),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_QUERY_NUM_BLOCKS, UVERBS_ATTR_TYPE(u32),
					       UA_OPTIONAL),
			    UVERBS_ATTR_PTR_IN(IB_MKEY_ATTR_QUERY_INDEXED,
					       UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_indexed,
								  comp_mask),
					       UA_OPTIONAL),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_QUERY_RESP_INDEXED,
						UVERBS_ATTR_STRUCT(struct ib_uverbs_mkey_indexed,
								   comp_mask),
						UA_OPTIONAL),
			    ATTR_REFUSED(IB_MKEY_ATTR_QUERY_RESP_REFUSED),
			    ATTR_REFUSED_ACCESS(IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS),
			    UVERBS_ATTR_PTR_OUT(IB_MKEY_ATTR_QUERY_RESP_BASE_ADDR,
						UVERBS_ATTR_TYPE(u64), UA_OPTIONAL));

/*
 * Adds methods to an object. The provider keeps the first number of a driver's method,
 * and two more numbers stay free for later versions.
 */
#define ADD_METHODS(_name, _object_id, ...)						\
	ADD_UVERBS_METHODS(_name, _object_id, __VA_ARGS__)				\
	static_assert(1 + COUNT_ARGS(__VA_ARGS__) + 2 <= UVERBS_API_METHOD_KEY_NUM_DRIVER)

ADD_METHODS(ib_mkey_device, UVERBS_OBJECT_DEVICE,
	    &UVERBS_METHOD(IB_MKEY_METHOD_QUERY_CAPS));

ADD_METHODS(ib_mkey_dm, UVERBS_OBJECT_DM,
	    &UVERBS_METHOD(IB_MKEY_METHOD_DM_COPY),
	    &UVERBS_METHOD(IB_MKEY_METHOD_DM_EXPORT),
	    &UVERBS_METHOD(IB_MKEY_METHOD_DM_VIEW),
	    &UVERBS_METHOD(IB_MKEY_METHOD_DM_QUERY));

ADD_METHODS(ib_mkey_mr, UVERBS_OBJECT_MR,
	    &UVERBS_METHOD(IB_MKEY_METHOD_CREATE),
	    &UVERBS_METHOD(IB_MKEY_METHOD_BIND),
	    &UVERBS_METHOD(IB_MKEY_METHOD_BIND_MANY),
	    &UVERBS_METHOD(IB_MKEY_METHOD_UNBIND),
	    &UVERBS_METHOD(IB_MKEY_METHOD_QUERY));

const struct uapi_definition ib_mkey_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &ib_mkey_device),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &ib_mkey_dm),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &ib_mkey_dm_alloc),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_MR, &ib_mkey_mr),
	{}
};
