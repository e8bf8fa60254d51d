// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: a peer of the block device over RDMA (samples/kernel/mkey_rblk_protocol.rs) that
 * breaks the protocol in one way. It fails unless the other side refuses what it must.
 *
 * usage: mkey_rblk_peer ask ADDRESS CASE
 *        mkey_rblk_peer serve ADDRESS SECTORS CASE
 *
 * "ask" is a client. "serve" is a server with that capacity, and answers one connection.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <err.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	PORT = 18517,
	COMMAND = 32,
	REPLY = 8,
	MAX_BYTES = 1 << 20,
	DEPTH = 400,		/* of each queue; the server has 256 receives, the client 128 */
	SLOT = 64,		/* of a message that is received */
	REFUSED = 5,		/* the status of a command that this server does not do */
};

struct command {
	bool write;
	uint32_t tag;
	uint64_t at;
	uint32_t len, rkey;
	uint64_t addr;
};

static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t *memory;			/* the data, then the messages */
static struct ibv_wc early[DEPTH];	/* receives that completed before they were waited for */
static unsigned int num_early, num_sent;

/* waits for an event; any other one but that of a lost connection ends the program */
static struct rdma_cm_event *wait_for(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	for (;;) {
		if (rdma_get_cm_event(events, &event))
			err(1, "no event");
		if (event->event == type)
			return event;
		if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			errx(1, "%s instead of %s", rdma_event_str(event->event),
			     rdma_event_str(type));
		rdma_ack_cm_event(event);
	}
}

static void expect(enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(wait_for(type));
}

/* the other side ends the connection */
static void expect_end(void)
{
	expect(RDMA_CM_EVENT_DISCONNECTED);
}

static void receive(unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory + MAX_BYTES + slot * SLOT,
		.length = SLOT,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(id->qp, &wr, &bad))
		err(1, "ibv_post_recv");
}

static void make_qp(unsigned int receives)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = SLOT,
		},
	};
	unsigned int i;

	pd = ibv_alloc_pd(id->verbs);
	cq = ibv_create_cq(id->verbs, 2 * DEPTH, NULL, NULL, 0);
	if (!pd || !cq)
		err(1, "no objects");
	memory = aligned_alloc(4096, MAX_BYTES + DEPTH * SLOT);
	if (!memory)
		err(1, "no memory");
	memset(memory, 0x5a, MAX_BYTES + DEPTH * SLOT);
	mr = ibv_reg_mr(pd, memory, MAX_BYTES + DEPTH * SLOT,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	if (!mr || rdma_create_qp(id, pd, &attr))
		err(1, "no queue pair");
	for (i = 0; i < receives; i++)
		receive(i);
}

static struct ibv_wc poll_one(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		usleep(1000);
	if (n < 0)
		err(1, "no completion");
	return wc;
}

/* waits until everything that was sent has completed; returns the status of the last one */
static enum ibv_wc_status sent(void)
{
	enum ibv_wc_status last = IBV_WC_SUCCESS;
	struct ibv_wc wc;

	while (num_sent) {
		wc = poll_one();
		if (wc.status == IBV_WC_SUCCESS && wc.opcode & IBV_WC_RECV) {
			early[num_early++] = wc;
			continue;
		}
		/* the opcode of a flushed one is not set */
		if (wc.wr_id < DEPTH)
			continue;
		num_sent--;
		last = wc.status;
	}
	return last;
}

/* waits for a message */
static const uint8_t *received(uint32_t length)
{
	struct ibv_wc wc = num_early ? early[--num_early] : poll_one();

	while (wc.status == IBV_WC_SUCCESS && !(wc.opcode & IBV_WC_RECV)) {
		num_sent--;
		wc = poll_one();
	}
	if (wc.status != IBV_WC_SUCCESS)
		errx(1, "%s instead of a message", ibv_wc_status_str(wc.status));
	if (wc.byte_len != length)
		errx(1, "a message of %u bytes", wc.byte_len);
	return memory + MAX_BYTES + wc.wr_id * SLOT;
}

/* posts an operation whose bytes are inline, or the first ones of the memory */
static void post(enum ibv_wr_opcode op, const void *bytes, uint32_t length, uint32_t rkey,
		 uint64_t addr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(bytes ?: memory),
		.length = length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = DEPTH,
		.opcode = op,
		.send_flags = bytes ? IBV_SEND_INLINE : 0,
		.imm_data = htobe32(4096),	/* no command has that tag */
		.sg_list = &sge,
		.num_sge = 1,
	}, *bad;

	if (op == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = rkey;
	else
		wr.wr.rdma = (typeof(wr.wr.rdma)){ .remote_addr = addr, .rkey = rkey };
	if (ibv_post_send(id->qp, &wr, &bad))
		err(1, "not posted");
	num_sent++;
}

static void put(uint8_t *to, uint64_t value, unsigned int bytes)
{
	while (bytes--) {
		to[bytes] = value;
		value >>= 8;
	}
}

static uint64_t get(const uint8_t *from, unsigned int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *from++;
	return value;
}

/* --- a client ------------------------------------------------------------- */

static void ask(struct command command)
{
	uint8_t message[COMMAND];

	put(message, command.write, 4);
	put(message + 4, command.tag, 4);
	put(message + 8, command.at, 8);
	put(message + 16, command.len, 4);
	put(message + 20, command.rkey, 4);
	put(message + 24, command.addr, 8);
	post(IBV_WR_SEND, message, COMMAND, 0, 0);
}

static struct command whole(bool write, uint32_t rkey)
{
	return (struct command){
		.write = write,
		.len = MAX_BYTES,
		.rkey = rkey,
		.addr = (uintptr_t)memory,
	};
}

/* was rejected before */
static void ask_nothing(void)
{
}

/* each is answered, and the connection stays */
static void ask_range(void)
{
	static const struct { uint64_t at; uint32_t len; } ranges[] = {
		{ 1ull << 60, 512 }, { -512ull, 512 }, { -512ull, 1024 }, { 0, 0 }, { 0, 513 },
		{ 0, MAX_BYTES + 512 }, { 0, UINT32_MAX }, { 1, 512 },
	};
	struct command command = whole(false, mr->rkey);
	const uint8_t *reply;
	unsigned int i;

	for (i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		command.tag = 0xffffff00 + i;
		command.at = ranges[i].at;
		command.len = ranges[i].len;
		ask(command);
		reply = received(REPLY);
		if (get(reply, 4) != command.tag || get(reply + 4, 4) != EINVAL)
			errx(1, "range %u: the status is %u", i, (int)get(reply + 4, 4));
	}
}

static void ask_bytes(uint32_t length)
{
	uint8_t bytes[SLOT];

	memset(bytes, 0xff, sizeof(bytes));
	post(IBV_WR_SEND, bytes, length, 0, 0);
	expect_end();
}

static void ask_empty(void) { ask_bytes(0); }
static void ask_short(void) { ask_bytes(COMMAND - 1); }
static void ask_long(void) { ask_bytes(COMMAND + 1); }
static void ask_garbage(void) { ask_bytes(COMMAND); }

/* the server cannot read or write the memory */
static void ask_read_rkey(void) { ask(whole(false, ~mr->rkey)); expect_end(); }
static void ask_write_rkey(void) { ask(whole(true, ~mr->rkey)); expect_end(); }

/* the memory goes while the server reads it: it has buffers for four of the commands */
static void ask_deregister(void)
{
	unsigned int i;

	for (i = 0; i < 64; i++)
		ask(whole(true, mr->rkey));
	if (ibv_dereg_mr(mr))
		err(1, "not deregistered");
	expect_end();
}

/* it does not receive the replies, and is gone after more commands than the server receives */
static void ask_flood(void)
{
	unsigned int i;

	for (i = 0; i < 300; i++)
		ask(whole(false, mr->rkey));
	while (num_sent > 100) {
		if (poll_one().status != IBV_WC_SUCCESS)
			errx(1, "a command was not taken");
		num_sent--;
	}
	_exit(0);
}

static void ask_invalidate(void)
{
	uint8_t message[COMMAND] = {};

	post(IBV_WR_SEND_WITH_INV, message, COMMAND, 0x1234, 0);
	expect_end();
}

static void ask_write(void)
{
	post(IBV_WR_RDMA_WRITE, NULL, 8, 0x1234, 0);
	if (sent() != IBV_WC_REM_ACCESS_ERR)
		errx(1, "a write by an rkey that is none succeeded");
	expect_end();
}

/* --- a server ------------------------------------------------------------- */

/* waits for a command of the client */
static struct command command(void)
{
	const uint8_t *message = received(COMMAND);

	return (struct command){
		.write = get(message, 4),
		.tag = get(message + 4, 4),
		.at = get(message + 8, 8),
		.len = get(message + 16, 4),
		.rkey = get(message + 20, 4),
		.addr = get(message + 24, 8),
	};
}

static void reply(enum ibv_wr_opcode op, uint32_t rkey, uint32_t tag, uint32_t length)
{
	uint8_t message[SLOT] = {};

	put(message, tag, 4);
	put(message + 4, REFUSED, 4);
	post(op, message, length, rkey, 0);
}

/* a reply to nothing: the client ends the connection at the latest now */
static void reply_to_none(void)
{
	reply(IBV_WR_SEND, 0, 4096, REPLY);
	expect_end();
}

/* the capacity is another one than before, or the first one that the client gets */
static void serve_other(void) { expect_end(); }
static void serve_first(void) {}

static void serve_none(void) { command(); reply_to_none(); }
static void serve_short(void) { reply(IBV_WR_SEND, 0, command().tag, REPLY - 1); expect_end(); }
static void serve_long(void) { reply(IBV_WR_SEND, 0, command().tag, REPLY + 1); expect_end(); }

/* replies that nothing has asked for, more than the client receives */
static void serve_unsolicited(void)
{
	unsigned int i;

	for (i = 0; i < 200; i++)
		reply(IBV_WR_SEND, 0, i % 128, REPLY);
	expect_end();
}

static void serve_twice(void)
{
	struct command first = command();

	reply(IBV_WR_SEND, 0, first.tag, REPLY);
	reply(IBV_WR_SEND, 0, first.tag, REPLY);
	reply_to_none();
}

/* the number of a write is that of no command */
static void serve_immediate(void)
{
	command();
	post(IBV_WR_RDMA_WRITE_WITH_IMM, NULL, 0, 0, 0);
	expect_end();
}

/* invalidates the rkey with a reply, or with what is none */
static void serve_invalidated(void)
{
	struct command first = command();

	reply(IBV_WR_SEND_WITH_INV, first.rkey, first.tag, REPLY);
	reply_to_none();
}

static void serve_invalidated_short(void)
{
	struct command first = command();

	reply(IBV_WR_SEND_WITH_INV, first.rkey, first.tag, REPLY - 1);
	expect_end();
}

/* invalidates the rkey while the client does so, after the reply */
static void serve_crossed(void)
{
	struct command first = command();

	reply(IBV_WR_SEND, 0, first.tag, REPLY);
	reply(IBV_WR_SEND_WITH_INV, first.rkey, 4096, REPLY);
	expect_end();
}

/* the accesses must fail: beyond the memory, and by an rkey that is not valid any more */
static void serve_access(struct command to, uint32_t length)
{
	post(IBV_WR_RDMA_WRITE, NULL, length, to.rkey, to.addr);
	if (sent() != IBV_WC_REM_ACCESS_ERR)
		errx(1, "a write of %u bytes has succeeded", length);
	expect_end();
}

static void serve_beyond(void)
{
	struct command first = command();

	serve_access(first, first.len + 1);
}

static void serve_between(void)
{
	struct command first = command();

	post(IBV_WR_RDMA_WRITE, NULL, first.len, first.rkey, first.addr);
	reply(IBV_WR_SEND_WITH_INV, first.rkey, 4096, REPLY);
	post(IBV_WR_RDMA_WRITE, NULL, 1, first.rkey, first.addr);
	if (sent() == IBV_WC_SUCCESS)
		errx(1, "a write by an invalidated rkey has succeeded");
	expect_end();
}

static void serve_stale(void)
{
	struct command first = command();

	reply(IBV_WR_SEND, 0, first.tag, REPLY);
	/* The reader asks once more when the first command has ended. */
	command();
	serve_access(first, 1);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "ask.nameless", ask_nothing },
	{ "ask.range", ask_range },
	{ "ask.empty", ask_empty },
	{ "ask.short", ask_short },
	{ "ask.long", ask_long },
	{ "ask.garbage", ask_garbage },
	{ "ask.read-rkey", ask_read_rkey },
	{ "ask.write-rkey", ask_write_rkey },
	{ "ask.deregister", ask_deregister },
	{ "ask.flood", ask_flood },
	{ "ask.invalidate", ask_invalidate },
	{ "ask.write", ask_write },
	{ "serve.other", serve_other },
	{ "serve.first", serve_first },
	{ "serve.none", serve_none },
	{ "serve.short", serve_short },
	{ "serve.long", serve_long },
	{ "serve.unsolicited", serve_unsolicited },
	{ "serve.twice", serve_twice },
	{ "serve.immediate", serve_immediate },
	{ "serve.invalidated", serve_invalidated },
	{ "serve.invalidated-short", serve_invalidated_short },
	{ "serve.crossed", serve_crossed },
	{ "serve.beyond", serve_beyond },
	{ "serve.between", serve_between },
	{ "serve.stale", serve_stale },
};

/* A client without @private data has no name, and is rejected. */
static void connect_to(struct sockaddr *to, struct rdma_conn_param *param, bool private)
{
	uint8_t garbage[56];

	memset(garbage, 0xff, sizeof(garbage));
	if (private) {
		param->private_data = garbage;
		param->private_data_len = sizeof(garbage);
	}
	if (rdma_resolve_addr(id, NULL, to, 2000))
		err(1, "rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 2000))
		err(1, "rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(16);
	if (rdma_connect(id, param))
		err(1, "rdma_connect");
	expect(private ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_REJECTED);
}

static void accept_from(struct sockaddr *at, struct rdma_conn_param *param, uint64_t sectors)
{
	struct rdma_cm_event *event;
	uint8_t hello[8];

	put(hello, sectors, sizeof(hello));
	param->private_data = hello;
	param->private_data_len = sizeof(hello);
	if (rdma_bind_addr(id, at) || rdma_listen(id, 4))
		err(1, "rdma_listen");
	event = wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
	/* the requests of others wait in the listener */
	id = event->id;
	rdma_ack_cm_event(event);
	make_qp(DEPTH);
	if (rdma_accept(id, param))
		err(1, "rdma_accept");
	expect(RDMA_CM_EVENT_ESTABLISHED);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct rdma_conn_param param = {
		.responder_resources = 16,
		.initiator_depth = 16,
		.retry_count = 6,
		.rnr_retry_count = 7,
	};
	bool serves = argc == 5 && !strcmp(argv[1], "serve");
	char name[64];
	unsigned int i;

	if (!serves && (argc != 4 || strcmp(argv[1], "ask")))
		errx(2, "usage: mkey_rblk_peer ask ADDRESS CASE | serve ADDRESS SECTORS CASE");
	if (!inet_pton(AF_INET, argv[2], &address.sin_addr))
		errx(2, "%s is no address", argv[2]);
	snprintf(name, sizeof(name), "%s.%s", argv[1], argv[argc - 1]);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].name, name))
			break;
	if (i == sizeof(cases) / sizeof(*cases))
		errx(2, "there is no case %s", name);
	events = rdma_create_event_channel();
	if (!events || rdma_create_id(events, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	/* What never happens ends the program. */
	alarm(300);
	if (serves)
		accept_from((struct sockaddr *)&address, &param, strtoull(argv[3], NULL, 0));
	else
		connect_to((struct sockaddr *)&address, &param, cases[i].run != ask_nothing);
	cases[i].run();
	return 0;
}
