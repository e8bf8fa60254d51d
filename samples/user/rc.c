// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Reliable connections for the samples; see rc.h. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rc.h"

#define RC_PORT 1
#define RC_PATIENCE_MS 30000

/* A program whose output is lost, for example on a full disk, has failed. */
static void rc_check_output(void)
{
	if (fflush(stdout))
		warn("standard output");
	else if (ferror(stdout))
		warnx("standard output: a part could not be written");
	else
		return;
	_exit(1);
}

/* The linker calls this before main(). */
__attribute__((constructor)) static void rc_prepare_output(void)
{
	int fd;

	/*
	 * If standard output is closed, its number must not become that of a socket: a printf()
	 * would write to the other node. Writing to a file that is open for reading fails.
	 */
	do {
		fd = open("/dev/null", O_RDONLY);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	close(fd);
	atexit(rc_check_output);
}

void die(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	errno = error;
	verr(1, format, args);
}

/*
 * A RoCE address is a GID, and a port has several. Prefer the IPv4 one, because
 * it exists as soon as the interface is up. An IPv6 link-local address stays
 * tentative for a second or two.
 */
static void rc_choose_gid(struct rc_dev *dev, int table_length)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;
	int found = 0;

	for (int i = 0; i < table_length; i++) {
		int is_ipv4;

		if (ibv_query_gid_ex(dev->ctx, RC_PORT, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		is_ipv4 = !memcmp(entry.gid.raw, ipv4, sizeof(ipv4));
		if (found && !is_ipv4)
			continue;
		dev->gid = entry.gid;
		dev->gid_index = i;
		found = 1;
		if (is_ipv4)
			break;
	}
	if (!found)
		errx(1, "%s has no RoCE v2 GID; mkeyctl doctor says why",
		     ibv_get_device_name(dev->ctx->device));
}

void rc_open(struct rc_dev *dev, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	int i, ret;

	if (!list)
		err(1, "ibv_get_device_list");
	for (i = 0; list[i]; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			break;
	if (!list[i])
		errx(1, "libibverbs does not list %s; mkeyctl doctor says why",
		     name ? name : "any device");

	dev->ctx = ibv_open_device(list[i]);
	if (!dev->ctx)
		/* libibverbs gives ENOENT also if the user may not open it. */
		errx(1, "cannot open %s; mkeyctl doctor says why", ibv_get_device_name(list[i]));
	ibv_free_device_list(list);

	ret = ibv_query_port(dev->ctx, RC_PORT, &port);
	if (ret)
		die(ret, "ibv_query_port");
	if (port.state != IBV_PORT_ACTIVE)
		errx(1, "port %d of %s is %s, not active", RC_PORT,
		     ibv_get_device_name(dev->ctx->device),
		     ibv_port_state_str(port.state));
	dev->mtu = port.active_mtu;
	rc_choose_gid(dev, port.gid_tbl_len);

	dev->pd = ibv_alloc_pd(dev->ctx);
	if (!dev->pd)
		err(1, "ibv_alloc_pd");
}

void rc_close(struct rc_dev *dev)
{
	int ret = ibv_dealloc_pd(dev->pd);

	/* EBUSY means that an object of the protection domain still exists. */
	if (ret)
		die(ret, "ibv_dealloc_pd");
	if (ibv_close_device(dev->ctx))
		err(1, "ibv_close_device");
}

void rc_create(struct rc_conn *conn, struct rc_dev *dev, const char *what)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.pd = dev->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW,
		.cap = {
			.max_send_wr = RC_SEND_DEPTH,
			.max_recv_wr = RC_RECV_DEPTH,
			.max_send_sge = RC_MAX_SGE,
			.max_recv_sge = RC_MAX_SGE,
			.max_inline_data = RC_MAX_INLINE,
		},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = RC_PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	int ret;

	conn->what = what;
	conn->channel = ibv_create_comp_channel(dev->ctx);
	if (!conn->channel)
		err(1, "%s: ibv_create_comp_channel", what);
	conn->cq = ibv_create_cq(dev->ctx, RC_SEND_DEPTH + RC_RECV_DEPTH, NULL,
				 conn->channel, 0);
	if (!conn->cq)
		err(1, "%s: ibv_create_cq", what);
	init.send_cq = conn->cq;
	init.recv_cq = conn->cq;
	conn->qp = ibv_create_qp_ex(dev->ctx, &init);
	if (!conn->qp)
		err(1, "%s: ibv_create_qp", what);

	ret = ibv_modify_qp(conn->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS);
	if (ret)
		die(ret, "%s: cannot initialise the queue pair", what);
}

struct rc_addr rc_address(const struct rc_conn *conn, const struct rc_dev *dev)
{
	/*
	 * Each queue pair begins with another packet number, so that the device recognises
	 * packets of an earlier queue pair with the same number.
	 */
	return (struct rc_addr) {
		.gid = dev->gid,
		.qpn = conn->qp->qp_num,
		.psn = (conn->qp->qp_num * 7919) & 0xffffff,
	};
}

void rc_connect(struct rc_conn *conn, const struct rc_dev *dev,
		const struct rc_addr *peer)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = dev->mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = RC_PORT,
			.grh = {
				.dgid = peer->gid,
				.sgid_index = dev->gid_index,
				.hop_limit = 64,
			},
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		/*
		 * 4 us << 17 is half a second, which is long enough even for
		 * emulated machines
		 */
		.timeout = 17,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = rc_address(conn, dev).psn,
		.max_rd_atomic = 16,
	};
	int ret;

	ret = ibv_modify_qp(conn->qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	/* A netdev without an IP address has a GID, too. */
	if (ret == ENETUNREACH)
		errx(1, "%s: no route to the peer: has each netdev an IP address? mkeyctl doctor shows it",
		     conn->what);
	if (ret)
		die(ret, "%s: cannot make the queue pair receive", conn->what);
	ret = ibv_modify_qp(conn->qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC);
	if (ret)
		die(ret, "%s: cannot make the queue pair send", conn->what);
}

void rc_destroy(struct rc_conn *conn)
{
	int ret = ibv_destroy_qp(conn->qp);

	if (!ret)
		ret = ibv_destroy_cq(conn->cq);
	if (!ret)
		ret = ibv_destroy_comp_channel(conn->channel);
	if (ret)
		die(ret, "%s: cannot give the queues back", conn->what);
}

void rc_create_loop(struct rc_conn pair[2], struct rc_dev *dev)
{
	struct rc_addr addr;

	rc_create(&pair[0], dev, "the local side");
	rc_create(&pair[1], dev, "the remote side");
	addr = rc_address(&pair[1], dev);
	rc_connect(&pair[0], dev, &addr);
	addr = rc_address(&pair[0], dev);
	rc_connect(&pair[1], dev, &addr);
}

void rc_destroy_loop(struct rc_conn pair[2])
{
	rc_destroy(&pair[0]);
	rc_destroy(&pair[1]);
}

struct ibv_mr *rc_reg(struct rc_dev *dev, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(dev->pd, addr, length, access);

	if (!mr)
		err(1, "ibv_reg_mr of %zu bytes", length);
	return mr;
}

void rc_dereg(struct ibv_mr *mr)
{
	int ret = ibv_dereg_mr(mr);

	if (ret == EBUSY)
		errx(1, "ibv_dereg_mr: a bound key describes the MR: mkeyctl who %s 0x%x shows it",
		     ibv_get_device_name(mr->context->device), mr->lkey);
	if (ret)
		die(ret, "ibv_dereg_mr of %zu bytes", mr->length);
}

void rc_post(struct rc_conn *conn, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret = ibv_post_send(conn->qp, wr, &bad);

	if (ret)
		die(ret, "%s: ibv_post_send", conn->what);
}

static void rc_receive(struct rc_conn *conn, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int ret = ibv_post_recv(conn->qp, wr, &bad);

	if (ret)
		die(ret, "%s: ibv_post_recv", conn->what);
}

void rc_post_empty_recv(struct rc_conn *conn)
{
	struct ibv_recv_wr wr = { 0 };

	rc_receive(conn, &wr);
}

void rc_post_recv(struct rc_conn *conn, uint64_t id, struct ibv_mr *mr,
		  void *addr, size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)addr,
		.length = length,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	rc_receive(conn, &wr);
}

/* Takes a completion. Returns 0 if there is none. */
static int rc_take(struct rc_conn *conn, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(conn->cq, 1, wc);

	if (n < 0)
		errx(1, "%s: ibv_poll_cq failed", conn->what);
	if (n && wc->status != IBV_WC_SUCCESS)
		errx(1, "%s: work request ended with: %s", conn->what,
		     ibv_wc_status_str(wc->status));
	return n;
}

struct ibv_wc rc_wait(struct rc_conn *conn)
{
	struct pollfd ready = { .fd = conn->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int ret;

	while (!rc_take(conn, &wc)) {
		ret = ibv_req_notify_cq(conn->cq, 0);
		if (ret)
			die(ret, "%s: ibv_req_notify_cq", conn->what);
		/*
		 * Take completions that arrived before the notification was
		 * requested.
		 */
		if (rc_take(conn, &wc))
			break;
		do {
			ret = poll(&ready, 1, RC_PATIENCE_MS);
		} while (ret < 0 && errno == EINTR);
		if (ret < 0)
			err(1, "%s: poll", conn->what);
		if (!ret)
			errx(1, "%s: nothing has completed for %d s", conn->what,
			     RC_PATIENCE_MS / 1000);
		if (ibv_get_cq_event(conn->channel, &cq, &context))
			err(1, "%s: ibv_get_cq_event", conn->what);
		ibv_ack_cq_events(cq, 1);
	}
	return wc;
}

void rc_transfer(struct rc_conn *conn, enum ibv_wr_opcode opcode, struct ibv_sge sge,
		 uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = remote_addr, .rkey = rkey },
	};

	rc_post(conn, &wr);
	rc_wait(conn);
}
