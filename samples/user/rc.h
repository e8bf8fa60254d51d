/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The code that all samples need: it opens a device, connects queue pairs, and waits for
 * completions. An error ends the program with one line, so that the samples have no code
 * for errors. This includes an error of standard output, which rc.c finds when the program
 * ends.
 */
#ifndef SAMPLES_RC_H
#define SAMPLES_RC_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define RC_SEND_DEPTH 256	/* number of requests that a send queue holds */
#define RC_RECV_DEPTH 64
#define RC_MAX_SGE 16		/* largest number of SGEs of a request */
#define RC_MAX_INLINE 256	/* largest number of bytes that a request contains itself */

/* Ends the program with a line: the message @format and the text of the errno value @error. */
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

/* The address of one side, which the other side needs to connect. It can be sent as bytes. */
struct rc_addr {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t psn;
};

/* Opens the device @name, or the first device if @name is NULL. */
void rc_open(struct rc_dev *dev, const char *name);
void rc_close(struct rc_dev *dev);

/* Makes a queue pair that can also bind keys by requests; see ibv_qp_to_qp_ex(). */
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
 * Posts @wr, or the list that begins with it. The send queue must have room for the list:
 * it holds RC_SEND_DEPTH requests. When the program has taken the completion of a request,
 * there is room again for this request and for all earlier ones.
 */
void rc_post(struct rc_conn *conn, struct ibv_send_wr *wr);
/* Posts a receive without memory. A WRITE with immediate data consumes such a receive. */
void rc_post_empty_recv(struct rc_conn *conn);
/* Posts a receive into the @length bytes at @addr, which are in @mr. Its completion has @id. */
void rc_post_recv(struct rc_conn *conn, uint64_t id, struct ibv_mr *mr,
		  void *addr, size_t length);

/*
 * Posts a request of kind @opcode with one SGE, and waits for it. @remote_addr and @rkey are of the
 * peer's memory; a SEND uses neither.
 */
void rc_transfer(struct rc_conn *conn, enum ibv_wr_opcode opcode, struct ibv_sge sge,
		 uint64_t remote_addr, uint32_t rkey);

/*
 * Waits for the next completion without polling in a loop, and returns it. The program
 * ends if the completion has an error, or if there is none for half a minute.
 */
struct ibv_wc rc_wait(struct rc_conn *conn);

#endif /* SAMPLES_RC_H */
