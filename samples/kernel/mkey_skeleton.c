// SPDX-License-Identifier: GPL-2.0
/*
 * A ULP to start from. It uses rdma_cm for connections, a callback for completions, and
 * a key at the server.
 *
 * The server listens at an address. For each connection it makes a key over device
 * memory and over a buffer, and tells the client the rkey when it accepts. The
 * client is in the same module: it connects, reads all bytes of the key by one RDMA
 * READ and compares them. The module loads only if all bytes are right. The server
 * continues to listen until the module is removed.
 *
 *   insmod mkey_skeleton.ko address=10.0.0.2
 *
 * A work item releases each connection, because a handler of rdma_cm must not destroy
 * the id that it was called for.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/inet.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_mkey.h>
#include <rdma/rdma_cm.h>

#define SKELETON_DEPTH 4
#define SKELETON_TIMEOUT_MS 10000

static const char in_dm[] = "device memory, ";
static const char in_ram[] = "then RAM";
#define SKELETON_LENGTH (sizeof(in_dm) - 1 + sizeof(in_ram))

/* The private data that the server sends when it accepts. */
struct skeleton_private {
	__be32 rkey;
	__be32 length;
};

struct skeleton_conn {
	struct list_head entry;		/* in conns */
	struct work_struct release;
	struct rdma_cm_id *id;
	bool closing;
	bool is_client;
	struct ib_pd *pd;
	struct ib_cq *cq;
	/* objects that only the server has */
	struct ib_dm *dm;
	struct ib_mr *dm_mr;
	struct ib_mr *key;
	/* a buffer, which is mapped for DMA unless @dma_len is 0 */
	char *buffer;
	u64 dma;
	size_t dma_len;
	/* the client waits until a step is done; @status is the result of the step */
	struct completion done;
	int status;
	struct ib_cqe cqe;
	struct skeleton_private peer;
};

static char *address = "";
module_param(address, charp, 0444);
MODULE_PARM_DESC(address, "IP address to listen at");

static DEFINE_MUTEX(conns_lock);	/* protects conns */
static LIST_HEAD(conns);
static struct workqueue_struct *release_wq;
static struct rdma_cm_id *listener;

/* Frees in reverse order: the key before its leaves, the memory last. */
static void skeleton_release(struct work_struct *work)
{
	struct skeleton_conn *conn = container_of(work, struct skeleton_conn, release);

	if (conn->id->qp) {
		rdma_disconnect(conn->id);
		ib_drain_qp(conn->id->qp);
		rdma_destroy_qp(conn->id);
	}
	if (conn->key)
		ib_dereg_mr(conn->key);
	if (conn->dm_mr)
		ib_dereg_mr(conn->dm_mr);
	if (conn->dm)
		WARN_ON(ib_free_dm(conn->dm));
	if (conn->dma_len)
		ib_dma_unmap_single(conn->id->device, conn->dma, conn->dma_len,
				    DMA_BIDIRECTIONAL);
	if (conn->cq)
		ib_free_cq(conn->cq);
	if (conn->pd)
		ib_dealloc_pd(conn->pd);
	/* Waits until no handler of the id runs. */
	rdma_destroy_id(conn->id);

	mutex_lock(&conns_lock);
	list_del(&conn->entry);
	mutex_unlock(&conns_lock);
	kfree(conn->buffer);
	kfree(conn);
}

static void skeleton_close(struct skeleton_conn *conn)
{
	if (!xchg(&conn->closing, true))
		queue_work(release_wq, &conn->release);
}

static struct skeleton_conn *skeleton_new(struct rdma_cm_id *id, bool is_client)
{
	struct skeleton_conn *conn = kzalloc_obj(*conn);

	if (!conn)
		return NULL;
	conn->buffer = kzalloc(PAGE_SIZE, GFP_KERNEL);
	if (!conn->buffer) {
		kfree(conn);
		return NULL;
	}
	INIT_WORK(&conn->release, skeleton_release);
	init_completion(&conn->done);
	conn->id = id;
	conn->is_client = is_client;
	mutex_lock(&conns_lock);
	list_add(&conn->entry, &conns);
	mutex_unlock(&conns_lock);

	return conn;
}

/*
 * Makes the objects of both ends: PD, completion queue, queue pair and a mapped
 * buffer.
 */
static int skeleton_prepare(struct skeleton_conn *conn)
{
	struct ib_device *device = conn->id->device;
	struct ib_qp_init_attr init = {
		.cap = {
			.max_send_wr = SKELETON_DEPTH,
			.max_recv_wr = SKELETON_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_pd *pd;
	struct ib_cq *cq;
	u64 dma;

	pd = ib_alloc_pd(device, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	conn->pd = pd;
	/* ib_drain_qp() needs two more completions of each kind. */
	cq = ib_alloc_cq(device, conn, 2 * SKELETON_DEPTH + 2, 0, IB_POLL_WORKQUEUE);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	conn->cq = cq;
	dma = ib_dma_map_single(device, conn->buffer, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(device, dma))
		return -EIO;
	conn->dma = dma;
	conn->dma_len = PAGE_SIZE;
	init.send_cq = cq;
	init.recv_cq = cq;

	return rdma_create_qp(conn->id, pd, &init);
}

/* The key: first bytes of device memory, then bytes of the buffer. */
static int skeleton_make_key(struct skeleton_conn *conn)
{
	struct ib_dm_alloc_attr attr = { .length = PAGE_SIZE };
	struct ib_sge parts[2];
	struct ib_dm *dm;
	struct ib_mr *mr;
	int ret;

	dm = ib_alloc_dm(conn->id->device, &attr);
	if (IS_ERR(dm))
		return PTR_ERR(dm);
	conn->dm = dm;
	ret = ib_memcpy_to_dm(dm, 0, in_dm, sizeof(in_dm) - 1);
	if (ret)
		return ret;
	mr = ib_reg_dm_mr(conn->pd, dm, 0, PAGE_SIZE, 0);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	conn->dm_mr = mr;
	ib_dma_sync_single_for_cpu(conn->id->device, conn->dma, PAGE_SIZE, DMA_BIDIRECTIONAL);
	memcpy(conn->buffer, in_ram, sizeof(in_ram));
	ib_dma_sync_single_for_device(conn->id->device, conn->dma, PAGE_SIZE, DMA_BIDIRECTIONAL);

	mr = ib_alloc_mkey(conn->pd, ARRAY_SIZE(parts));
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	conn->key = mr;
	parts[0] = (struct ib_sge) {
		.addr = 0,		/* device memory begins at 0 */
		.length = sizeof(in_dm) - 1,
		.lkey = conn->dm_mr->lkey,
	};
	parts[1] = (struct ib_sge) {
		.addr = conn->dma,	/* the local DMA lkey takes DMA addresses */
		.length = sizeof(in_ram),
		.lkey = conn->pd->local_dma_lkey,
	};

	return ib_bind_mkey_list(mr, parts, ARRAY_SIZE(parts), IB_ACCESS_REMOTE_READ);
}

/* Returns 0, or an errno. rdma_cm rejects the request and destroys @id after an errno. */
static int skeleton_accept(struct rdma_cm_id *id)
{
	struct skeleton_private private;
	struct rdma_conn_param param = {
		.private_data = &private,
		.private_data_len = sizeof(private),
		.responder_resources = 1,
		.rnr_retry_count = 7,
	};
	struct skeleton_conn *conn = skeleton_new(id, false);
	int ret;

	if (!conn)
		return -ENOMEM;
	id->context = conn;
	ret = skeleton_prepare(conn);
	if (!ret)
		ret = skeleton_make_key(conn);
	if (!ret) {
		private.rkey = cpu_to_be32(conn->key->rkey);
		private.length = cpu_to_be32(conn->key->length);
		ret = rdma_accept(id, &param);
	}
	if (ret) {
		pr_err("cannot accept a connection on %s: error %d\n",
		       dev_name(&id->device->dev), ret);
		rdma_reject(id, NULL, 0, IB_CM_REJ_CONSUMER_DEFINED);
		/* The work item destroys the id, so rdma_cm must not. */
		skeleton_close(conn);
	}

	return 0;
}

static void skeleton_step(struct skeleton_conn *conn, int status)
{
	conn->status = status;
	complete(&conn->done);
}

static int skeleton_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct skeleton_conn *conn = id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return skeleton_accept(id);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		skeleton_step(conn, 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (!conn->is_client)
			break;
		if (event->param.conn.private_data_len < sizeof(conn->peer)) {
			skeleton_step(conn, -EPROTO);
			break;
		}
		memcpy(&conn->peer, event->param.conn.private_data, sizeof(conn->peer));
		skeleton_step(conn, 0);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		/*
		 * The peer has disconnected, an error has occurred, or the device is being
		 * removed. The removal waits until all ids of the device are destroyed. If this
		 * handler returns a value other than 0, rdma_cm destroys the id.
		 */
		if (!conn)
			return cmpxchg(&listener, id, NULL) == id;
		if (conn->is_client)
			skeleton_step(conn, event->status < 0 ? event->status : -ENOTCONN);
		else
			skeleton_close(conn);
	}

	return 0;
}

static void skeleton_read_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct skeleton_conn *conn = cq->cq_context;

	skeleton_step(conn, wc->status == IB_WC_SUCCESS ? 0 : -EIO);
}

/*
 * Waits for the step that a call with the result @ret has begun. Returns the result of
 * the step, or @ret if the call failed.
 */
static int skeleton_wait(struct skeleton_conn *conn, int ret)
{
	if (ret)
		return ret;
	if (!wait_for_completion_timeout(&conn->done, msecs_to_jiffies(SKELETON_TIMEOUT_MS)))
		return -ETIMEDOUT;

	return conn->status;
}

/* Reads all of the peer's key into the buffer. */
static int skeleton_read(struct skeleton_conn *conn)
{
	struct ib_sge sge = {
		.addr = conn->dma,
		.length = SKELETON_LENGTH,
		.lkey = conn->pd->local_dma_lkey,
	};
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &conn->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_RDMA_READ,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = 0,	/* a key begins at 0 */
		.rkey = be32_to_cpu(conn->peer.rkey),
	};
	int ret;

	if (be32_to_cpu(conn->peer.length) != SKELETON_LENGTH)
		return -EPROTO;
	conn->cqe.done = skeleton_read_done;
	ret = skeleton_wait(conn, ib_post_send(conn->id->qp, &wr.wr, NULL));
	if (ret)
		return ret;
	ib_dma_sync_single_for_cpu(conn->id->device, conn->dma, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (memcmp(conn->buffer, in_dm, sizeof(in_dm) - 1) ||
	    memcmp(conn->buffer + sizeof(in_dm) - 1, in_ram, sizeof(in_ram)))
		return -EBADMSG;
	pr_info("%s: one READ of a key: %s\n", dev_name(&conn->id->device->dev), conn->buffer);

	return 0;
}

static int skeleton_connect(struct skeleton_conn *conn, struct sockaddr *to)
{
	struct rdma_conn_param param = {
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_id *id = conn->id;
	int ret;

	ret = skeleton_wait(conn, rdma_resolve_addr(id, NULL, to, SKELETON_TIMEOUT_MS));
	if (!ret)
		ret = skeleton_wait(conn, rdma_resolve_route(id, SKELETON_TIMEOUT_MS));
	if (!ret)
		ret = skeleton_prepare(conn);
	if (!ret)
		ret = skeleton_wait(conn, rdma_connect(id, &param));
	if (!ret)
		ret = skeleton_read(conn);

	return ret;
}

static int skeleton_try(struct sockaddr *to)
{
	struct skeleton_conn *conn;
	struct rdma_cm_id *id;
	int ret;

	id = rdma_create_id(current->nsproxy->net_ns, skeleton_event, NULL, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	conn = skeleton_new(id, true);
	if (!conn) {
		rdma_destroy_id(id);
		return -ENOMEM;
	}
	id->context = conn;
	ret = skeleton_connect(conn, to);
	skeleton_close(conn);

	return ret;
}

static void skeleton_end(void)
{
	struct rdma_cm_id *id = xchg(&listener, NULL);
	struct skeleton_conn *conn;

	if (id)
		rdma_destroy_id(id);
	mutex_lock(&conns_lock);
	list_for_each_entry(conn, &conns, entry)
		skeleton_close(conn);
	mutex_unlock(&conns_lock);
	destroy_workqueue(release_wq);
}

static int __init skeleton_init(void)
{
	struct sockaddr_storage at;
	struct rdma_cm_id *id;
	int ret;

	ret = inet_pton_with_scope(current->nsproxy->net_ns, AF_UNSPEC, address, "18516", &at);
	if (ret) {
		pr_err("address='%s' is not an IP address\n", address);
		return -EINVAL;
	}
	release_wq = alloc_workqueue("mkey_skeleton", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!release_wq)
		return -ENOMEM;
	id = rdma_create_id(current->nsproxy->net_ns, skeleton_event, NULL, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id)) {
		destroy_workqueue(release_wq);
		return PTR_ERR(id);
	}
	listener = id;
	ret = rdma_bind_addr(id, (struct sockaddr *)&at);
	if (!ret)
		ret = rdma_listen(id, SKELETON_DEPTH);
	if (!ret)
		ret = skeleton_try((struct sockaddr *)&at);
	if (ret)
		skeleton_end();

	return ret;
}

static void __exit skeleton_exit(void)
{
	skeleton_end();
}

module_init(skeleton_init);
module_exit(skeleton_exit);
MODULE_DESCRIPTION("A ULP to start from, which uses memory keys");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("IB_MKEY");
