// SPDX-License-Identifier: GPL-2.0
/*
 * A ULP to start from: rdma_cm, many requests in flight, completions in softirq, a key for
 * each request, and a connection that is made again after an error.
 *
 * The server has a matrix by columns, half of it in device memory. A client stores it by
 * rows. For each column the client binds a key to the places of its elements and sends the rkey
 * to the server. The server writes the column by one RDMA WRITE and invalidates the key with its
 * reply. Both are in this module: it loads only if the client has the whole matrix. The server
 * continues to listen until the module is removed.
 *
 *   insmod mkey_skeleton.ko address=10.0.0.2
 *
 * Callbacks of completions run in softirq and do not sleep: they map a layout to a key and post
 * REG_MR. A work item releases each connection, because a handler of rdma_cm must not destroy
 * the id that it was called for.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/inet.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <rdma/ib_mkey.h>
#include <rdma/rdma_cm.h>

#define SKELETON_DEPTH 32U		/* requests that a client has in flight */
#define SKELETON_TRIES 3		/* connections that a client makes */
#define SKELETON_BACKLOG 16
#define SKELETON_TIMEOUT_MS 10000
#define SKELETON_ROWS 16U
#define SKELETON_COLUMNS 512U
#define SKELETON_COLUMN_BYTES (SKELETON_ROWS * sizeof(u64))
#define SKELETON_MATRIX_BYTES (SKELETON_COLUMNS * SKELETON_COLUMN_BYTES)

/* The private data that the server sends when it accepts. */
struct skeleton_private {
	__be32 rows;
	__be32 columns;
};

/* A request. The reply is the request, sent back. Both are sent inline: the post copies them. */
struct skeleton_message {
	__be32 slot;
	__be32 column;
	__be32 rkey;
};

/* Memory that is mapped for DMA if @length is not 0. */
struct skeleton_region {
	void *at;
	size_t length;
	u64 dma;
	enum dma_data_direction dir;
};

/* A request in flight, and a receive. */
struct skeleton_slot {
	struct skeleton_conn *conn;
	struct ib_cqe received;
	struct ib_cqe sent;
	struct ib_mr *key;		/* of the client */
	u32 column;
	u32 pending;			/* completions that the client waits for */
};

/* What the client has of the matrix. It outlives a connection. */
struct skeleton_fetch {
	u64 *matrix;
	DECLARE_BITMAP(have, SKELETON_COLUMNS);
};

struct skeleton_conn {
	struct list_head entry;		/* in conns */
	struct work_struct release;
	struct rdma_cm_id *id;
	int closing;
	struct ib_pd *pd;
	struct ib_cq *cq;
	u32 num_slots;
	struct skeleton_slot *slots;
	/* a message for each slot to receive */
	struct skeleton_region in;
	/* the client's matrix, or the half of the server's matrix that is in RAM */
	struct skeleton_region data;
	/* of the server: a key over device memory and RAM */
	struct ib_dm *dm;
	struct ib_mr *dm_mr;
	struct ib_mr *key;
	/* of the client, NULL for the server */
	struct skeleton_fetch *fetch;
	atomic_t next;			/* the next column */
	atomic_t active;		/* slots that are in use */
	struct completion done;		/* of a step */
	int status;			/* the first error */
};

static char *address = "";
module_param(address, charp, 0444);
MODULE_PARM_DESC(address, "IP address to listen at");

static int break_at = -1;
module_param(break_at, int, 0444);
MODULE_PARM_DESC(break_at, "column whose first request has a wrong rkey, so that the connection breaks");

static DEFINE_MUTEX(conns_lock);	/* protects conns */
static LIST_HEAD(conns);
static DEFINE_MUTEX(listener_lock);	/* protects listener */
static struct rdma_cm_id *listener;
static struct workqueue_struct *release_wq;

/* After this there are no new connections. */
static void skeleton_unlisten(struct work_struct *work)
{
	guard(mutex)(&listener_lock);
	if (listener)
		rdma_destroy_id(listener);
	listener = NULL;
}

static DECLARE_WORK(unlisten, skeleton_unlisten);

static int skeleton_map(struct skeleton_conn *conn, struct skeleton_region *region, void *at,
			size_t length, enum dma_data_direction dir)
{
	u64 dma;

	if (!at)
		return -ENOMEM;
	region->at = at;
	dma = ib_dma_map_single(conn->id->device, at, length, dir);
	if (ib_dma_mapping_error(conn->id->device, dma))
		return -EIO;
	region->dma = dma;
	region->length = length;
	region->dir = dir;

	return 0;
}

static void skeleton_unmap(struct skeleton_conn *conn, struct skeleton_region *region)
{
	if (region->length)
		ib_dma_unmap_single(conn->id->device, region->dma, region->length, region->dir);
}

/* Frees in reverse order: keys before their leaves, memory last. */
static void skeleton_release(struct work_struct *work)
{
	struct skeleton_conn *conn = container_of(work, struct skeleton_conn, release);
	u32 i;

	if (conn->id->qp) {
		rdma_disconnect(conn->id);
		/* A callback may post meanwhile. ib_free_cq() waits for the callback of that. */
		ib_drain_qp(conn->id->qp);
		rdma_destroy_qp(conn->id);
	}
	for (i = 0; i < conn->num_slots; i++)
		if (conn->slots[i].key)
			ib_dereg_mr(conn->slots[i].key);
	if (conn->key)
		ib_dereg_mr(conn->key);
	if (conn->dm_mr)
		ib_dereg_mr(conn->dm_mr);
	if (conn->dm)
		WARN_ON(ib_free_dm(conn->dm));
	skeleton_unmap(conn, &conn->data);
	skeleton_unmap(conn, &conn->in);
	if (conn->cq)
		ib_free_cq(conn->cq);
	if (conn->pd)
		ib_dealloc_pd(conn->pd);
	/* Waits until no handler of the id runs. */
	rdma_destroy_id(conn->id);

	mutex_lock(&conns_lock);
	list_del(&conn->entry);
	mutex_unlock(&conns_lock);
	if (!conn->fetch)
		kfree(conn->data.at);
	kfree(conn->in.at);
	kfree(conn->slots);
	kfree(conn);
}

static void skeleton_close(struct skeleton_conn *conn)
{
	if (!xchg(&conn->closing, 1))
		queue_work(release_wq, &conn->release);
}

/* The connection is of no more use. The thread of a client closes it, a server's closes itself. */
static void skeleton_lost(struct skeleton_conn *conn, int error)
{
	if (!conn->fetch) {
		skeleton_close(conn);
		return;
	}
	cmpxchg(&conn->status, 0, error);
	complete(&conn->done);
}

static bool skeleton_succeeded(struct skeleton_conn *conn, const struct ib_wc *wc)
{
	if (likely(wc->status == IB_WC_SUCCESS))
		return true;
	/* All other requests of the queue pair are flushed. */
	if (wc->status != IB_WC_WR_FLUSH_ERR)
		pr_info_ratelimited("%s: connection lost: %s\n", dev_name(&conn->id->device->dev),
				    ib_wc_status_msg(wc->status));
	skeleton_lost(conn, -EIO);

	return false;
}

static int skeleton_post_receive(struct skeleton_slot *slot)
{
	struct skeleton_conn *conn = slot->conn;
	struct ib_sge sge = {
		.addr = conn->in.dma + (slot - conn->slots) * sizeof(struct skeleton_message),
		.length = sizeof(struct skeleton_message),
		.lkey = conn->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_cqe = &slot->received, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(conn->id->qp, &wr, NULL);
}

/* Copies the message that a slot has received. */
static int skeleton_read_message(struct skeleton_slot *slot, const struct ib_wc *wc,
				 struct skeleton_message *message)
{
	struct skeleton_conn *conn = slot->conn;
	size_t at = (slot - conn->slots) * sizeof(*message);

	if (wc->byte_len != sizeof(*message))
		return -EPROTO;
	ib_dma_sync_single_for_cpu(conn->id->device, conn->in.dma + at, sizeof(*message),
				   DMA_FROM_DEVICE);
	memcpy(message, conn->in.at + at, sizeof(*message));
	ib_dma_sync_single_for_device(conn->id->device, conn->in.dma + at, sizeof(*message),
				      DMA_FROM_DEVICE);

	return 0;
}

/*
 * Client: binds the key of the slot to the places of a column and asks for it, in one chain. Ends
 * the step if this was the last slot and there is no column to ask for.
 */
static int skeleton_ask(struct skeleton_slot *slot)
{
	struct skeleton_conn *conn = slot->conn;
	const u64 rows = SKELETON_ROWS;
	struct ib_mkey_block block = {
		.bytes_count = sizeof(u64),
		.lkey = conn->pd->local_dma_lkey,	/* takes DMA addresses */
		.stride = { SKELETON_COLUMNS * sizeof(u64) },
	};
	struct ib_mkey_interleaved layout = {
		.num_dims = 1,
		.num_blocks = 1,
		.repeat_count = &rows,
		.blocks = &block,
	};
	struct skeleton_message message;
	struct ib_sge sge = { .addr = (uintptr_t)&message, .length = sizeof(message) };
	struct ib_send_wr send = {
		.wr_cqe = &slot->sent,
		.opcode = IB_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE,
	};
	/* No completion, unless it fails: SEND is executed after it. */
	struct ib_reg_wr bind = {
		.wr = { .opcode = IB_WR_REG_MR, .wr_cqe = &slot->sent, .next = &send },
		.mr = slot->key,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};
	int ret;

	do {
		slot->column = atomic_inc_return(&conn->next) - 1;
	} while (slot->column < SKELETON_COLUMNS && test_bit(slot->column, conn->fetch->have));
	if (slot->column >= SKELETON_COLUMNS) {
		if (atomic_dec_and_test(&conn->active))
			complete(&conn->done);
		return 0;
	}

	block.addr = conn->data.dma + slot->column * sizeof(u64);
	/* Use another rkey for each request: the rkey of an earlier request is then invalid. */
	ib_update_fast_reg_key(slot->key, ib_inc_rkey(slot->key->rkey));
	ret = ib_map_mkey_interleaved(slot->key, &layout);
	if (ret)
		return ret;
	bind.key = slot->key->rkey;
	message = (struct skeleton_message) {
		.slot = cpu_to_be32(slot - conn->slots),
		.column = cpu_to_be32(slot->column),
		.rkey = cpu_to_be32(slot->key->rkey),
	};
	if (slot->column == break_at) {
		message.rkey = 0;
		break_at = -1;
	}
	slot->pending = 2;

	return ib_post_send(conn->id->qp, &bind.wr, NULL);
}

/* Client: the request is complete when it is sent and the reply is there, in any order. */
static void skeleton_next(struct skeleton_slot *slot)
{
	int ret;

	if (--slot->pending)
		return;
	set_bit(slot->column, slot->conn->fetch->have);
	ret = skeleton_ask(slot);
	if (ret)
		skeleton_lost(slot->conn, ret);
}

static void skeleton_sent_request(struct ib_cq *cq, struct ib_wc *wc)
{
	struct skeleton_slot *slot = container_of(wc->wr_cqe, struct skeleton_slot, sent);

	if (skeleton_succeeded(slot->conn, wc))
		skeleton_next(slot);
}

/* Client: the reply follows the WRITE, so the column is in its place, and the key is unbound. */
static void skeleton_got_reply(struct ib_cq *cq, struct ib_wc *wc)
{
	struct skeleton_slot *slot = container_of(wc->wr_cqe, struct skeleton_slot, received);
	struct skeleton_conn *conn = slot->conn;
	struct skeleton_message message;
	u32 number;
	int ret;

	if (!skeleton_succeeded(conn, wc))
		return;
	ret = skeleton_read_message(slot, wc, &message);
	if (!ret)
		ret = skeleton_post_receive(slot);
	if (ret) {
		skeleton_lost(conn, ret);
		return;
	}
	/* What a peer sends can be anything. */
	number = be32_to_cpu(message.slot);
	if (number >= conn->num_slots || !conn->slots[number].pending ||
	    !(wc->wc_flags & IB_WC_WITH_INVALIDATE) ||
	    wc->ex.invalidate_rkey != conn->slots[number].key->rkey) {
		skeleton_lost(conn, -EPROTO);
		return;
	}
	skeleton_next(&conn->slots[number]);
}

/* Server: writes the column through the peer's key, and replies, in one chain. */
static void skeleton_got_request(struct ib_cq *cq, struct ib_wc *wc)
{
	struct skeleton_slot *slot = container_of(wc->wr_cqe, struct skeleton_slot, received);
	struct skeleton_conn *conn = slot->conn;
	struct ib_sge column = { .length = SKELETON_COLUMN_BYTES, .lkey = conn->key->lkey };
	struct skeleton_message message;
	struct ib_sge sge = { .addr = (uintptr_t)&message, .length = sizeof(message) };
	struct ib_send_wr reply = {
		.wr_cqe = &slot->sent,
		.opcode = IB_WR_SEND_WITH_INV,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE,
	};
	struct ib_rdma_wr write = {
		.wr = {
			.wr_cqe = &slot->sent,
			.opcode = IB_WR_RDMA_WRITE,
			.sg_list = &column,
			.num_sge = 1,
			.next = &reply,
		},
		.remote_addr = 0,	/* a key begins at 0 */
	};

	if (!skeleton_succeeded(conn, wc))
		return;
	if (skeleton_read_message(slot, wc, &message) ||
	    be32_to_cpu(message.column) >= SKELETON_COLUMNS) {
		skeleton_lost(conn, -EPROTO);
		return;
	}
	column.addr = be32_to_cpu(message.column) * SKELETON_COLUMN_BYTES;
	write.rkey = be32_to_cpu(message.rkey);
	reply.ex.invalidate_rkey = write.rkey;
	if (ib_post_send(conn->id->qp, &write.wr, NULL))
		skeleton_lost(conn, -EIO);
}

/* Server: the slot is free, and so is its place in the send queue. */
static void skeleton_sent_reply(struct ib_cq *cq, struct ib_wc *wc)
{
	struct skeleton_slot *slot = container_of(wc->wr_cqe, struct skeleton_slot, sent);

	if (skeleton_succeeded(slot->conn, wc) && skeleton_post_receive(slot))
		skeleton_lost(slot->conn, -EIO);
}

static struct skeleton_conn *skeleton_new(struct rdma_cm_id *id, struct skeleton_fetch *fetch)
{
	struct skeleton_conn *conn = kzalloc_obj(*conn);

	if (!conn)
		return NULL;
	INIT_WORK(&conn->release, skeleton_release);
	init_completion(&conn->done);
	conn->id = id;
	conn->fetch = fetch;
	id->context = conn;
	mutex_lock(&conns_lock);
	list_add(&conn->entry, &conns);
	mutex_unlock(&conns_lock);

	return conn;
}

/* Makes the objects of both ends, and posts the receives. */
static int skeleton_prepare(struct skeleton_conn *conn)
{
	struct ib_device *device = conn->id->device;
	/* A client may ask again before the server sees that its reply has arrived. */
	u32 num_slots = conn->fetch ? SKELETON_DEPTH : 2 * SKELETON_DEPTH;
	size_t length = num_slots * sizeof(struct skeleton_message);
	struct ib_qp_init_attr init = {
		.cap = {
			/* one more of each, for ib_drain_qp() */
			.max_send_wr = 2 * num_slots + 1,
			.max_recv_wr = num_slots + 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = sizeof(struct skeleton_message),
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_pd *pd;
	struct ib_cq *cq;
	u32 i;
	int ret;

	pd = ib_alloc_pd(device, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	conn->pd = pd;
	/* If all requests fail, each has a completion. */
	cq = ib_alloc_cq_any(device, conn, init.cap.max_send_wr + init.cap.max_recv_wr,
			     IB_POLL_SOFTIRQ);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	conn->cq = cq;
	conn->slots = kzalloc_objs(*conn->slots, num_slots);
	if (!conn->slots)
		return -ENOMEM;
	conn->num_slots = num_slots;
	ret = skeleton_map(conn, &conn->in, kzalloc(length, GFP_KERNEL), length, DMA_FROM_DEVICE);
	if (ret)
		return ret;
	init.send_cq = cq;
	init.recv_cq = cq;
	ret = rdma_create_qp(conn->id, pd, &init);
	for (i = 0; i < num_slots && !ret; i++) {
		struct skeleton_slot *slot = &conn->slots[i];

		slot->conn = conn;
		slot->received.done = conn->fetch ? skeleton_got_reply : skeleton_got_request;
		slot->sent.done = conn->fetch ? skeleton_sent_request : skeleton_sent_reply;
		ret = skeleton_post_receive(slot);
	}

	return ret;
}

/* Element @row of @column of the matrix. */
static u64 skeleton_element(u32 row, u32 column)
{
	return (column * SKELETON_ROWS + row + 1) * 0x9e3779b97f4a7c15;
}

/* Server: the key. The first half of the columns is in device memory, the second in RAM. */
static int skeleton_make_key(struct skeleton_conn *conn)
{
	const size_t half = SKELETON_MATRIX_BYTES / 2;
	struct ib_dm_alloc_attr attr = { .length = half };
	u64 *data = kzalloc(half, GFP_KERNEL);
	struct ib_sge parts[2];
	struct ib_dm *dm;
	struct ib_mr *mr;
	u32 i;
	int ret;

	if (!data)
		return -ENOMEM;
	conn->data.at = data;
	for (i = 0; i < half / sizeof(u64); i++)
		data[i] = skeleton_element(i % SKELETON_ROWS, i / SKELETON_ROWS);
	dm = ib_alloc_dm(conn->id->device, &attr);
	if (IS_ERR(dm))
		return PTR_ERR(dm);
	conn->dm = dm;
	ret = ib_memcpy_to_dm(dm, 0, data, half);
	if (ret)
		return ret;
	mr = ib_reg_dm_mr(conn->pd, dm, 0, half, 0);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	conn->dm_mr = mr;
	for (i = 0; i < half / sizeof(u64); i++)
		data[i] = skeleton_element(i % SKELETON_ROWS,
					   i / SKELETON_ROWS + SKELETON_COLUMNS / 2);
	ret = skeleton_map(conn, &conn->data, data, half, DMA_TO_DEVICE);
	if (ret)
		return ret;

	mr = ib_alloc_mkey(conn->pd, ARRAY_SIZE(parts));
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	conn->key = mr;
	parts[0] = (struct ib_sge) {
		.addr = 0,		/* device memory begins at 0 */
		.length = half,
		.lkey = conn->dm_mr->lkey,
	};
	parts[1] = (struct ib_sge) {
		.addr = conn->data.dma,	/* the local DMA lkey takes DMA addresses */
		.length = half,
		.lkey = conn->pd->local_dma_lkey,
	};

	return ib_bind_mkey_list(mr, parts, ARRAY_SIZE(parts), 0);
}

/* Returns 0, or an errno. rdma_cm rejects the request and destroys @id after an errno. */
static int skeleton_accept(struct rdma_cm_id *id)
{
	struct skeleton_private private = {
		.rows = cpu_to_be32(SKELETON_ROWS),
		.columns = cpu_to_be32(SKELETON_COLUMNS),
	};
	struct rdma_conn_param param = {
		.private_data = &private,
		.private_data_len = sizeof(private),
		.rnr_retry_count = 7,
	};
	struct skeleton_conn *conn = skeleton_new(id, NULL);
	int ret;

	if (!conn)
		return -ENOMEM;
	ret = skeleton_prepare(conn);
	if (!ret)
		ret = skeleton_make_key(conn);
	if (!ret)
		ret = rdma_accept(id, &param);
	if (ret) {
		pr_err_ratelimited("cannot accept a connection on %s: error %d\n",
				   dev_name(&id->device->dev), ret);
		/* Destroys the id, which rejects the request. So rdma_cm must not destroy it. */
		skeleton_close(conn);
	}

	return 0;
}

static int skeleton_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct skeleton_conn *conn = id->context;
	const struct skeleton_private *private = event->param.conn.private_data;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return skeleton_accept(id);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		complete(&conn->done);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (!conn->fetch)
			break;
		if (event->param.conn.private_data_len < sizeof(*private) ||
		    be32_to_cpu(private->rows) != SKELETON_ROWS ||
		    be32_to_cpu(private->columns) != SKELETON_COLUMNS)
			skeleton_lost(conn, -EPROTO);
		else
			complete(&conn->done);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		/*
		 * The peer has disconnected, an error has occurred, or the device is being
		 * removed. The removal waits until all ids of the device are destroyed. A work
		 * item does that, because the end of the module waits for it.
		 */
		if (conn)
			skeleton_lost(conn, event->status < 0 ? event->status : -ENOTCONN);
		else
			queue_work(release_wq, &unlisten);
	}

	return 0;
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

	return READ_ONCE(conn->status);
}

/* Asks for all columns that the client lacks. */
static int skeleton_ask_all(struct skeleton_conn *conn)
{
	int ret = 0;
	u32 i;

	atomic_set(&conn->active, conn->num_slots);
	for (i = 0; i < conn->num_slots && !ret; i++)
		ret = skeleton_ask(&conn->slots[i]);

	return skeleton_wait(conn, ret);
}

static int skeleton_connect(struct skeleton_conn *conn, struct sockaddr *to)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id = conn->id;
	int ret;
	u32 i;

	ret = skeleton_wait(conn, rdma_resolve_addr(id, NULL, to, SKELETON_TIMEOUT_MS));
	if (!ret)
		ret = skeleton_wait(conn, rdma_resolve_route(id, SKELETON_TIMEOUT_MS));
	if (!ret)
		ret = skeleton_prepare(conn);
	if (!ret)
		ret = skeleton_map(conn, &conn->data, conn->fetch->matrix, SKELETON_MATRIX_BYTES,
				   DMA_BIDIRECTIONAL);	/* keeps the columns that it has */
	for (i = 0; i < conn->num_slots && !ret; i++) {
		struct ib_mr *key = ib_alloc_mkey(conn->pd, 1);	/* a layout of one block */

		if (IS_ERR(key))
			ret = PTR_ERR(key);
		else
			conn->slots[i].key = key;
	}
	if (!ret)
		ret = skeleton_wait(conn, rdma_connect(id, &param));
	if (!ret)
		ret = skeleton_ask_all(conn);

	return ret;
}

/* Makes one connection. When this returns, nothing of it is left. */
static int skeleton_try(struct skeleton_fetch *fetch, struct sockaddr *to)
{
	struct skeleton_conn *conn;
	struct rdma_cm_id *id;
	int ret;

	id = rdma_create_id(current->nsproxy->net_ns, skeleton_event, NULL, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	conn = skeleton_new(id, fetch);
	if (!conn) {
		rdma_destroy_id(id);
		return -ENOMEM;
	}
	ret = skeleton_connect(conn, to);
	skeleton_close(conn);
	flush_workqueue(release_wq);

	return ret;
}

/* Fetches the matrix. After an error it connects again, and asks for what is missing. */
static int skeleton_client(struct sockaddr *to)
{
	struct skeleton_fetch *fetch = kzalloc_obj(*fetch);
	int tries, ret = -ENOMEM;
	u32 i;

	if (!fetch)
		return -ENOMEM;
	fetch->matrix = kzalloc(SKELETON_MATRIX_BYTES, GFP_KERNEL);
	for (tries = 0; fetch->matrix && ret && tries < SKELETON_TRIES; tries++)
		ret = skeleton_try(fetch, to);
	for (i = 0; i < SKELETON_ROWS * SKELETON_COLUMNS && !ret; i++)
		if (fetch->matrix[i] !=
		    skeleton_element(i / SKELETON_COLUMNS, i % SKELETON_COLUMNS))
			ret = -EBADMSG;
	if (!ret)
		pr_info("%u columns by %u keys, %d connections\n", SKELETON_COLUMNS,
			SKELETON_DEPTH, tries);
	else
		pr_err("no matrix after %d connections: error %d\n", tries, ret);
	kfree(fetch->matrix);
	kfree(fetch);

	return ret;
}

static void skeleton_end(void)
{
	struct skeleton_conn *conn;

	skeleton_unlisten(&unlisten);
	mutex_lock(&conns_lock);
	list_for_each_entry(conn, &conns, entry)
		skeleton_close(conn);
	mutex_unlock(&conns_lock);
	destroy_workqueue(release_wq);
}

static int skeleton_listen(struct sockaddr *at)
{
	struct rdma_cm_id *id;

	/* skeleton_unlisten() waits if the device is removed meanwhile. */
	guard(mutex)(&listener_lock);
	id = rdma_create_id(current->nsproxy->net_ns, skeleton_event, NULL, RDMA_PS_TCP,
			    IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	listener = id;

	return rdma_bind_addr(id, at) ?: rdma_listen(id, SKELETON_BACKLOG);
}

static int __init skeleton_init(void)
{
	struct sockaddr_storage at;
	int ret;

	ret = inet_pton_with_scope(current->nsproxy->net_ns, AF_UNSPEC, address, "18516", &at);
	if (ret) {
		pr_err("address='%s' is not an IP address\n", address);
		return -EINVAL;
	}
	release_wq = alloc_workqueue(KBUILD_MODNAME, WQ_UNBOUND, 0);
	if (!release_wq)
		return -ENOMEM;
	ret = skeleton_listen((struct sockaddr *)&at);
	if (!ret)
		ret = skeleton_client((struct sockaddr *)&at);
	if (ret)
		skeleton_end();

	return ret;
}

module_init(skeleton_init);
module_exit(skeleton_end);
MODULE_DESCRIPTION("A ULP to start from, which uses memory keys");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("IB_MKEY");
