/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The common part of all verbs programs: a device, a connected pair of queues,
 * and a way to wait. Any error ends the program with one line, so that the
 * samples show the calls and not the clean-up.
 */
#ifndef SAMPLES_RC_H
#define SAMPLES_RC_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define RC_SEND_DEPTH 256	/* send work requests that fit in a queue */
#define RC_RECV_DEPTH 64
#define RC_MAX_SGE 16		/* entries of a request's scatter/gather list */

/* Ends the program with @format and what @error, an errno value, means. */
_Noreturn void die(int error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

struct rc_dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	uint8_t gid_index;
	enum ibv_mtu mtu;
};

struct rc_conn {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	const char *what;	/* names the connection in error messages */
};

/* The address of one side, for the other one. Plain bytes: send it as it is. */
struct rc_addr {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t psn;
};

/* Opens the device called @name, or the first one where @name is NULL. */
void rc_open(struct rc_dev *dev, const char *name);
void rc_close(struct rc_dev *dev);

void rc_create(struct rc_conn *conn, struct rc_dev *dev, const char *what);
struct rc_addr rc_address(const struct rc_conn *conn, const struct rc_dev *dev);
void rc_connect(struct rc_conn *conn, const struct rc_dev *dev,
		const struct rc_addr *peer);
void rc_destroy(struct rc_conn *conn);

/* Makes two connections of one device that are each other's peer. */
void rc_create_loop(struct rc_conn pair[2], struct rc_dev *dev);
void rc_destroy_loop(struct rc_conn pair[2]);

struct ibv_mr *rc_reg(struct rc_dev *dev, void *addr, size_t length, int access);
/* Calls ibv_dereg_mr(), which destroys keys, too. */
void rc_dereg(struct ibv_mr *mr);

/*
 * Posts @wr, or the list that starts with it. A list must fit in what is free
 * of RC_SEND_DEPTH. A request's entry is free again when this request, or a
 * later one, has completed.
 */
void rc_post(struct rc_conn *conn, struct ibv_send_wr *wr);
/* Posts a receive without memory, as a WRITE with immediate data consumes. */
void rc_post_empty_recv(struct rc_conn *conn);
/* Posts a receive into @length bytes of @mr; its completion has @id. */
void rc_post_recv(struct rc_conn *conn, uint64_t id, struct ibv_mr *mr,
		  void *addr, size_t length);

/*
 * Waits for the next completion without spinning and returns it. A completion
 * in error, or no completion for half a minute, ends the program.
 */
struct ibv_wc rc_wait(struct rc_conn *conn);

#endif /* SAMPLES_RC_H */
