// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Runs every command and call with its first allocation or user copy failing, then with
 * its second, and so on until it succeeds. What fails changes nothing. Needs a kernel with fault
 * injection; kmemleak finds leaks.
 * needs: faults
 */
#include <fcntl.h>
#include <sys/uio.h>

#include "commands.h"
#include "fail.h"

FIXTURE(fail_nth)
{
	struct mkt_commands c;
	int fd;			/* /proc/thread-self/fail-nth */
	struct mkt_ioctl cmd;	/* what is run */
	struct ibv_dm *dm;
	struct ibv_mr *mr, *shared, *revocable;
	struct ibv_mw *mw;
	uint8_t *memory;	/* of @iov */
	struct iovec iov[3];
	struct ib_uverbs_mkey_indexed wanted;
	int shared_fd;
	const FIXTURE_VARIANT(fail_nth) *call;
};

/* a call under test: a command, or run(), which alone has faults */
FIXTURE_VARIANT(fail_nth)
{
	enum mkt_what what;
	/* the command before it, and the kinds of layout after both */
	bool bound;
	enum mkt_what from;
	uint32_t kind, kept;
	int (*before)(FIXTURE_DATA(fail_nth) *self);
	int (*run)(FIXTURE_DATA(fail_nth) *self);
	/* undoes the call and checks the state that @err implies */
	int (*after)(FIXTURE_DATA(fail_nth) *self, int err);
	bool none;		/* the call may have no allocation or copy */
	uint32_t class;		/* of the device memory that it allocates */
	const char *pool;
};

static int fail_command(FIXTURE_DATA(fail_nth) *self, enum mkt_what what)
{
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, what);
	return mkt_ioctl_run(self->c.dev.ctx, &cmd);
}

static int fail_created(FIXTURE_DATA(fail_nth) *self, int err)
{
	struct mkt_ioctl cmd;

	if (err)
		return 0;
	mkt_raw_mr_destroy(&cmd, self->cmd.attr[0].data);
	return mkt_ioctl_run(self->c.dev.ctx, &cmd);
}

/* the key was bound to another kind of layout, which stays if the call fails */
static int fail_bound(FIXTURE_DATA(fail_nth) *self, int err)
{
	uint32_t kind = err ? self->call->kept : self->call->kind;

	return fail_command(self, QUERY) ?: self->c.info.kind == kind ? 0 : EBADMSG;
}

/* ranges of another key: the bind makes one layout of both */
static int fail_nested(FIXTURE_DATA(fail_nth) *self)
{
	struct mkt_ioctl cmd;
	unsigned int i;

	for (i = 0; i < 2; i++)
		self->c.sge[i] = (struct ib_uverbs_mkey_sge){ 30 * i, 25, self->c.other->lkey };
	mkt_raw_bind(&cmd, self->c.other->handle, &self->c.bind[1]);
	return mkt_ioctl_run(self->c.dev.ctx, &cmd);
}

/* the class of device memory */
static int fail_dm_query(FIXTURE_DATA(fail_nth) *self)
{
	mkt_ioctl_init(&self->cmd, UVERBS_OBJECT_DM, IB_MKEY_METHOD_DM_QUERY);
	mkt_ioctl_add(&self->cmd, IB_MKEY_ATTR_DM_QUERY_HANDLE, 0,
		      self->c.arena.mem[1].dm->handle);
	mkt_ioctl_add(&self->cmd, IB_MKEY_ATTR_DM_QUERY_RESP_CLASS, sizeof(uint64_t),
		      (uintptr_t)self->c.bytes);
	return 0;
}

/* asks for the last refusals, too */
static int fail_query_refused(FIXTURE_DATA(fail_nth) *self)
{
	mkt_ioctl_add(&self->cmd, IB_MKEY_ATTR_QUERY_RESP_REFUSED,
		      sizeof(struct ib_uverbs_mkey_refused), (uintptr_t)self->c.bytes);
	mkt_ioctl_add(&self->cmd, IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS,
		      sizeof(struct ib_uverbs_mkey_refused_access), (uintptr_t)self->c.bytes);
	return 0;
}

/* asks for the indices, too */
static int fail_query_indices(FIXTURE_DATA(fail_nth) *self)
{
	self->wanted = (struct ib_uverbs_mkey_indexed){
		.indices = (uintptr_t)self->c.bytes,
		.num_indices = 3,
		.index_bytes = 8,
	};
	mkt_ioctl_add(&self->cmd, IB_MKEY_ATTR_QUERY_INDEXED,
		      sizeof(self->wanted), (uintptr_t)&self->wanted);
	return 0;
}

/* binds one key to blocks and another to nothing: both or neither */
static int fail_many(FIXTURE_DATA(fail_nth) *self)
{
	struct mkt_ioctl unbind;

	mkt_raw_unbind(&unbind, self->c.other->handle);
	return mkt_ioctl_run(self->c.dev.ctx, &unbind);
}

static int fail_many_bound(FIXTURE_DATA(fail_nth) *self, int err)
{
	uint32_t kind = err ? IB_UVERBS_MKEY_UNBOUND : IB_UVERBS_MKEY_INTERLEAVED;
	int seen = fail_bound(self, err);
	struct mkt_ioctl other;

	mkt_raw_query(&other, self->c.other->handle, &self->c.info);
	return seen ?: mkt_ioctl_run(self->c.dev.ctx, &other) ?:
	       self->c.info.kind == kind ? 0 : EBADMSG;
}

/* three registrations, a key and a bind: what was done before the failure is undone */
static int fail_iov(FIXTURE_DATA(fail_nth) *self)
{
	const size_t page = sysconf(_SC_PAGESIZE), size = 2 * ARRAY_SIZE(self->iov) * page;
	unsigned int i;

	if (!self->memory)
		self->memory = aligned_alloc(page, size);
	if (!self->memory)
		return ENOMEM;
	memset(self->memory, 0, size);
	for (i = 0; i < ARRAY_SIZE(self->iov); i++)
		self->iov[i] = (struct iovec){ self->memory + 2 * i * page, 100 };
	return 0;
}

static int fail_reg_iov(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibmkey_reg_iov(self->c.dev.pd, self->iov, ARRAY_SIZE(self->iov),
				  MKT_ACCESS_ALL);
	return self->mr ? 0 : errno;
}

static int fail_iov_registered(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibmkey_dereg(self->mr);
}

static int fail_dm_alloc(FIXTURE_DATA(fail_nth) *self)
{
	self->dm = mkt_dm_alloc(&self->c.dev, 100000, self->call->class ? 15 : 0,
				self->call->class);
	return self->dm ? 0 : errno;
}

static int fail_dm_allocated(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_free_dm(self->dm);
}

static int fail_export(FIXTURE_DATA(fail_nth) *self)
{
	uint16_t id = self->call->what == DM_VIEW ? IB_MKEY_ATTR_DM_VIEW_HANDLE :
						    IB_MKEY_ATTR_DM_EXPORT_HANDLE;

	mkt_ioctl_attr(&self->cmd, id)->data = self->dm->handle;
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

/* a failure leaves no descriptor, and the memory can be freed */
static int fail_exported(FIXTURE_DATA(fail_nth) *self, int err)
{
	bool open = fcntl(self->c.first_fd, F_GETFD) >= 0;

	if (open)
		close(self->c.first_fd);
	return open == !err ? ibv_free_dm(self->dm) : EBADMSG;
}

static int fail_dm_reg(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibv_reg_dm_mr(self->c.dev.pd, self->c.arena.mem[1].dm, 3,
				 1000, MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	return self->mr ? 0 : errno;
}

/* memory on demand: a part of a process's addresses, and all of them */
static int fail_on_demand(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibv_reg_mr(self->c.dev.pd, self->c.arena.mem[0].host, 8192,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	return self->mr ? 0 : errno;
}

static int fail_implicit(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibv_reg_mr(self->c.dev.pd, NULL, SIZE_MAX,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	return self->mr ? 0 : errno;
}

static int fail_prefetch(FIXTURE_DATA(fail_nth) *self)
{
	return mkt_raw_advise(self->c.dev.pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
			      IB_UVERBS_ADVISE_MR_FLAG_FLUSH,
			      (uintptr_t)self->c.arena.mem[0].host, 8, self->mr->lkey);
}

static int fail_prefetched(FIXTURE_DATA(fail_nth) *self, int err)
{
	return ibv_dereg_mr(self->mr);
}

static int fail_dm_registered(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_dereg_mr(self->mr);
}

/* an MR of two pages, which stays as it is if the call fails */
static int fail_reg(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibv_reg_mr(self->c.dev.pd, self->c.arena.mem[0].host, 8192, MKT_ACCESS_ALL);
	return self->mr ? 0 : errno;
}

static int fail_rereg(FIXTURE_DATA(fail_nth) *self)
{
	uint8_t *to = self->c.arena.mem[0].host + 16384;

	return mkt_raw_rereg_to(self->mr, IBV_REREG_MR_CHANGE_TRANSLATION, self->c.dev.pd,
				MKT_ACCESS_ALL, to, 4096, (uintptr_t)to);
}

static int fail_rereged(FIXTURE_DATA(fail_nth) *self, int err)
{
	uint64_t first = (uintptr_t)self->c.arena.mem[0].host;
	int seen = mkt_bind_range(self->c.third, 0, self->mr, first + (err ? 4096 : 16384), 4096);

	/* the core copies the answer after the change */
	if (seen && err == EFAULT)
		seen = mkt_bind_range(self->c.third, 0, self->mr, first + 16384, 4096);
	return seen ?: ibmkey_unbind(self->c.third) ?: ibv_dereg_mr(self->mr);
}

/* a layout makes it a key */
static int fail_relayout(FIXTURE_DATA(fail_nth) *self)
{
	struct ibv_sge sge = { (uintptr_t)self->c.arena.mem[0].host + 9, 20, self->mr->lkey };

	return ibv_rereg_mr_sg(self->mr, MKT_ACCESS_ALL, 1, &sge);
}

static int fail_laid_out(FIXTURE_DATA(fail_nth) *self, int err)
{
	if (err)
		return self->mr->length == 8192 ? ibv_dereg_mr(self->mr) : EBADMSG;
	return self->mr->length == 20 ? ibmkey_dereg(self->mr) : EBADMSG;
}

/* a revocable key over it, which stays bound if the deregistration fails */
static int fail_revocable(FIXTURE_DATA(fail_nth) *self)
{
	struct ibmkey_alloc_attr attr = { .max_entries = 1, .flags = IBMKEY_ALLOC_REVOCABLE };
	int err = fail_reg(self);

	self->revocable = ibmkey_alloc_ex(self->c.dev.pd, &attr);
	return err ?: !self->revocable ? errno :
	       mkt_bind_range(self->revocable, 0, self->mr, (uintptr_t)self->mr->addr, 8192);
}

static int fail_dereg(FIXTURE_DATA(fail_nth) *self)
{
	return ibv_dereg_mr(self->mr);
}

static int fail_revoked(FIXTURE_DATA(fail_nth) *self, int err)
{
	if (mkt_kind_of(self->revocable) != (err ? IBMKEY_LIST : IBMKEY_UNBOUND))
		return EBADMSG;
	return (err ? ibv_dereg_mr(self->mr) : 0) ?: ibv_dereg_mr(self->revocable);
}

/* MRs whose memory the library allocates and shares */
static int fail_reg_alloc(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibmkey_reg_alloc(self->c.dev.pd, 8192, MKT_ACCESS_ALL);
	/* memfd_create(2) says ENOSPC if it gets no inode */
	return self->mr ? 0 : errno == ENOSPC ? ENOMEM : errno;
}

static int fail_share(FIXTURE_DATA(fail_nth) *self)
{
	int err = fail_reg_alloc(self);

	self->shared = self->mr;
	return err ?: ibmkey_share_mr(self->shared, 0, &self->shared_fd);
}

static int fail_reg_shared(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibmkey_reg_shared(self->c.dev.pd, self->shared_fd, MKT_ACCESS_ALL);
	return self->mr ? 0 : errno;
}

static int fail_shared(FIXTURE_DATA(fail_nth) *self, int err)
{
	close(self->shared_fd);
	return fail_iov_registered(self, err) ?: ibmkey_dereg(self->shared);
}

static int fail_alloc_mw(FIXTURE_DATA(fail_nth) *self)
{
	self->mw = ibv_alloc_mw(self->c.dev.pd, IBV_MW_TYPE_1);
	return self->mw ? 0 : errno;
}

static int fail_mw_allocated(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_dealloc_mw(self->mw);
}

FIXTURE_VARIANT_ADD(fail_nth, create) { .what = CREATE, .after = fail_created };
FIXTURE_VARIANT_ADD(fail_nth, bind_list) {
	.what = BIND_LIST, .bound = true, .from = BIND_INTERLEAVED,
	.kind = IB_UVERBS_MKEY_LIST, .kept = IB_UVERBS_MKEY_INTERLEAVED, .after = fail_bound,
};
FIXTURE_VARIANT_ADD(fail_nth, bind_interleaved) {
	.what = BIND_INTERLEAVED, .bound = true, .from = BIND_LIST,
	.kind = IB_UVERBS_MKEY_INTERLEAVED, .kept = IB_UVERBS_MKEY_LIST, .after = fail_bound,
};
FIXTURE_VARIANT_ADD(fail_nth, bind_indexed) {
	.what = BIND_INDEXED, .bound = true, .from = BIND_LIST,
	.kind = IB_UVERBS_MKEY_INDEXED, .kept = IB_UVERBS_MKEY_LIST, .after = fail_bound,
};
FIXTURE_VARIANT_ADD(fail_nth, bind_many) {
	.what = BIND_MANY, .bound = true, .from = BIND_INTERLEAVED,
	.kind = IB_UVERBS_MKEY_LIST, .kept = IB_UVERBS_MKEY_INTERLEAVED,
	.before = fail_many, .after = fail_many_bound,
};
FIXTURE_VARIANT_ADD(fail_nth, bind_nested) {
	.what = BIND_LIST, .bound = true, .from = BIND_INTERLEAVED,
	.kind = IB_UVERBS_MKEY_LIST, .kept = IB_UVERBS_MKEY_INTERLEAVED,
	.before = fail_nested, .after = fail_bound,
};
FIXTURE_VARIANT_ADD(fail_nth, unbind) {
	.what = UNBIND, .bound = true, .from = BIND_LIST,
	.kind = IB_UVERBS_MKEY_UNBOUND, .kept = IB_UVERBS_MKEY_LIST, .after = fail_bound,
	.none = true,
};
FIXTURE_VARIANT_ADD(fail_nth, query) { .what = QUERY };
FIXTURE_VARIANT_ADD(fail_nth, query_refused) { .what = QUERY, .before = fail_query_refused };
FIXTURE_VARIANT_ADD(fail_nth, query_indices) {
	.what = QUERY, .bound = true, .from = BIND_INDEXED, .before = fail_query_indices,
};
FIXTURE_VARIANT_ADD(fail_nth, reg_iov) {
	.before = fail_iov, .run = fail_reg_iov, .after = fail_iov_registered,
};
FIXTURE_VARIANT_ADD(fail_nth, query_caps) { .what = CAPS };
FIXTURE_VARIANT_ADD(fail_nth, dm_query) { .before = fail_dm_query };
FIXTURE_VARIANT_ADD(fail_nth, dm_copy) { .what = DM_COPY };
FIXTURE_VARIANT_ADD(fail_nth, dm_alloc) { .run = fail_dm_alloc, .after = fail_dm_allocated };
FIXTURE_VARIANT_ADD(fail_nth, dm_alloc_host) {
	.run = fail_dm_alloc, .after = fail_dm_allocated, .class = IBMKEY_DM_HOST, .pool = "host",
};
FIXTURE_VARIANT_ADD(fail_nth, dm_alloc_node) {
	.run = fail_dm_alloc, .after = fail_dm_allocated, .class = IBMKEY_DM_NODE, .pool = "node",
};
FIXTURE_VARIANT_ADD(fail_nth, dm_alloc_p2p) {
	.run = fail_dm_alloc, .after = fail_dm_allocated, .class = IBMKEY_DM_P2P, .pool = "p2p",
};
FIXTURE_VARIANT_ADD(fail_nth, dm_alloc_pmem) {
	.run = fail_dm_alloc, .after = fail_dm_allocated, .class = IBMKEY_DM_PMEM, .pool = "pmem",
};
FIXTURE_VARIANT_ADD(fail_nth, dm_export) {
	.what = DM_EXPORT, .before = fail_dm_alloc, .run = fail_export, .after = fail_exported,
};
FIXTURE_VARIANT_ADD(fail_nth, dm_view) {
	.what = DM_VIEW, .before = fail_dm_alloc, .run = fail_export, .after = fail_exported,
};
FIXTURE_VARIANT_ADD(fail_nth, dm_reg) { .run = fail_dm_reg, .after = fail_dm_registered };
FIXTURE_VARIANT_ADD(fail_nth, on_demand) { .run = fail_on_demand, .after = fail_dm_registered };
FIXTURE_VARIANT_ADD(fail_nth, implicit) { .run = fail_implicit, .after = fail_dm_registered };
FIXTURE_VARIANT_ADD(fail_nth, prefetch) {
	/* the part is made by a work item, which has no faults */
	.before = fail_implicit, .run = fail_prefetch, .after = fail_prefetched,
};

FIXTURE_VARIANT_ADD(fail_nth, rereg) {
	.before = fail_reg, .run = fail_rereg, .after = fail_rereged,
};
FIXTURE_VARIANT_ADD(fail_nth, relayout) {
	.before = fail_reg, .run = fail_relayout, .after = fail_laid_out,
};
FIXTURE_VARIANT_ADD(fail_nth, revoke) {
	.before = fail_revocable, .run = fail_dereg, .after = fail_revoked,
};
FIXTURE_VARIANT_ADD(fail_nth, reg_alloc) {
	.run = fail_reg_alloc, .after = fail_iov_registered,
};
FIXTURE_VARIANT_ADD(fail_nth, reg_shared) {
	.before = fail_share, .run = fail_reg_shared, .after = fail_shared,
};
FIXTURE_VARIANT_ADD(fail_nth, alloc_mw) { .run = fail_alloc_mw, .after = fail_mw_allocated };

FIXTURE_SETUP(fail_nth)
{
	char what[64];

	self->call = variant;
	self->fd = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_LE(0, self->fd);
	MKT_OPEN_SIDE(&self->c.dev, 0);
	if (variant->pool && !(self->c.dev.caps.dm_classes & variant->class))
		SKIP(return, "%s does not offer this class", self->c.dev.name);
	if (variant->class & (IBMKEY_DM_P2P | IBMKEY_DM_PMEM) &&
	    !mkt_hardware(what, sizeof(what), variant->pool))
		SKIP(return, "no memory of this class");
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
	/* Without root, only allocations that may not sleep fail. */
	mkt_faults_may_sleep(true);
}

FIXTURE_TEARDOWN(fail_nth)
{
	mkt_faults_may_sleep(false);
	if (self->c.key)
		EXPECT_EQ(0, mkt_commands_teardown(&self->c));
	free(self->memory);
}

static int fail_arm(int fd, unsigned int nth)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%u", nth);

	return pwrite(fd, text, n, 0) == n ? 0 : errno;
}

/* returns true if the fault was injected; disarms it otherwise */
static bool fail_happened(int fd)
{
	char text[16] = {};

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return false;
	if (atoi(text) == 0)
		return true;
	fail_arm(fd, 0);
	return false;
}

/* makes the call with fault @nth; returns 1 if it came, 0 if not, or a negative errno value */
static int fail_once(FIXTURE_DATA(fail_nth) *self, unsigned int nth)
{
	const FIXTURE_VARIANT(fail_nth) *call = self->call;
	bool happened;
	int err, seen;

	mkt_command_build(&self->c, &self->cmd, call->what);
	err = (call->bound ? fail_command(self, call->from) : 0) ?:
	      (call->before ? call->before(self) : 0) ?: fail_arm(self->fd, nth);
	if (err) {
		mkt_diag("before fault %u: %s", nth, strerror(err));
		return -err;
	}
	err = call->run ? call->run(self) : mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
	happened = fail_happened(self->fd);
	seen = call->after ? call->after(self, err) : 0;
	if (seen) {
		mkt_diag("after fault %u (%s): %s", nth, strerror(err), strerror(seen));
		return -seen;
	}
	if (err && (!happened || (err != ENOMEM && err != EFAULT))) {
		mkt_diag("%s for fault %u%s", strerror(err), nth,
			 happened ? "" : ", which did not come");
		return -err;
	}
	return happened;
}

/* one fault after another until none is left; a failure loses no MR, no quota and no leaf */
TEST_F(fail_nth, in_turn)
{
	uint64_t all = mkt_dm_share(&self->c.dev) - 8192;	/* but those of the fixture */
	int before = mkt_dev_count(&self->c.dev, "mr"), came = 1;
	struct mkt_pool had = {};
	unsigned int faults = 0;
	struct ibv_dm *dm;

	if (variant->pool && mkt_pool(&self->c.dev, variant->pool, &had))
		SKIP(return, "no debugfs");
	while (came > 0 && faults < 10000) {
		came = fail_once(self, faults + 1);
		faults += came > 0;
	}
	EXPECT_EQ(0, came);
	EXPECT_LE(variant->none ? 0 : 1, faults);
	if (before >= 0)
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	if (variant->pool)
		EXPECT_TRUE(mkt_pool_grew(&self->c.dev, variant->pool, &had, 0));
	if (variant->run == fail_dm_alloc && !variant->class && all < 1ull << 30) {
		dm = mkt_dm_alloc(&self->c.dev, all, 0, 0);
		ASSERT_NE(NULL, dm);
		EXPECT_EQ(0, ibv_free_dm(dm));
	}
	/* every MR is released */
	EXPECT_EQ(0, ibmkey_unbind(self->c.key));
	EXPECT_EQ(0, ibmkey_unbind(self->c.other));
	EXPECT_EQ(0, ibmkey_unbind(self->c.third));
	EXPECT_EQ(0, ibv_dereg_mr(self->c.arena.leaf[0].mr));
	self->c.arena.leaf[0] = self->c.arena.leaf[--self->c.arena.num_leaves];
}

FAIL_MAIN
