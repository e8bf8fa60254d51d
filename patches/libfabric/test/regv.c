// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Transfers between regions of several buffers, by libfabric: a process registers scattered
 * buffers by fi_mr_regv() and fi_mr_regattr() and writes to those of another process, reads them
 * back, and does the same with a part. All bytes are compared, also those between the buffers.
 *
 * usage: regv ADDRESS        the target, on the device that has ADDRESS
 *        regv -c ADDRESS     the initiator, which connects to it
 *        regv -n ADDRESS     what libfabric refuses
 *        regv -1 ADDRESS     the same without libibmkey: any region of several buffers
 */
#include <err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#define PORT "18700"
#define ROOM 65536
#define LENGTH 20000		/* of each region */
#define GUARD 0x5a
#define TRIES 300

/* the lengths of buffers, and where they are in the room */
struct piece {
	size_t at, length;
};

static const struct piece initiator[] = { { 40000, 7001 }, { 11, 1 }, { 20001, 12000 }, { 1000, 998 } };
static const struct piece target[] = { { 3, 4097 }, { 50000, 15000 }, { 30001, 903 } };

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_pep *pep;
};

/* memory, and what it should be; a region of the pieces */
struct memory {
	uint8_t *bytes, *want;
	size_t pos[LENGTH];	/* of the region's bytes */
	struct fid_mr *mr;
};

/* what the target tells the initiator */
struct offer {
	uint64_t key, length;
};

static void check(int ret, const char *what)
{
	if (ret < 0)
		errx(1, "%s: %s", what, fi_strerror(-ret));
}

static struct fi_info *find(const char *address, bool here)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	int i, ret = -FI_ENODATA;

	if (!hints)
		errx(1, "no memory");
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->fabric_attr->prov_name = strdup("verbs");
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	for (i = 0; i < TRIES && ret; i++) {
		ret = fi_getinfo(FI_VERSION(2, 0), address, PORT, here ? FI_SOURCE : 0, hints, &info);
		if (ret)
			usleep(100000);
	}
	check(ret, "fi_getinfo");
	fi_freeinfo(hints);
	return info;
}

static void open_domain(struct side *s)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_UNSPEC };

	check(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), "fi_fabric");
	check(fi_eq_open(s->fabric, &eq, &s->eq, NULL), "fi_eq_open");
}

static void open_endpoint(struct side *s)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG, .size = 16 };

	check(fi_domain(s->fabric, s->info, &s->domain, NULL), "fi_domain");
	check(fi_cq_open(s->domain, &cq, &s->cq, NULL), "fi_cq_open");
	check(fi_endpoint(s->domain, s->info, &s->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(s->ep, &s->eq->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(s->ep), "fi_enable");
}

/* waits for an event of the connection; returns how much @data the peer sent with it */
static ssize_t expect(struct side *s, uint32_t wanted, struct fi_info **info, void *data,
		      size_t size)
{
	char buffer[sizeof(struct fi_eq_cm_entry) + 256];
	struct fi_eq_cm_entry *entry = (void *)buffer;
	struct fi_eq_err_entry error = { 0 };
	uint32_t event;
	ssize_t n;

	n = fi_eq_sread(s->eq, &event, entry, sizeof(buffer), 120000, 0);
	if (n == -FI_EAVAIL) {
		fi_eq_readerr(s->eq, &error, 0);
		errx(1, "connection: %s", fi_strerror(error.err));
	}
	check(n, "fi_eq_sread");
	if (event != wanted)
		errx(1, "event %u instead of %u", event, wanted);
	if (info)
		*info = entry->info;
	n -= sizeof(*entry);
	if (data && n >= (ssize_t)size)
		memcpy(data, entry->data, size);
	return n;
}

static void wait_for(struct side *s, const char *what)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_msg_entry entry;
	ssize_t n;

	do
		n = fi_cq_read(s->cq, &entry, 1);
	while (n == -FI_EAGAIN);
	if (n == -FI_EAVAIL) {
		fi_cq_readerr(s->cq, &error, 0);
		errx(1, "%s: %s", what, fi_strerror(error.err));
	}
	check(n, what);
}

enum reg_call { REGV, REGATTR };

/* registers buffers for everything, by one of the two calls that take several */
static int reg(struct side *s, enum reg_call how, const struct iovec *iov, size_t count,
	       struct fid_mr **mr)
{
	const uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND |
				FI_RECV;
	struct fi_mr_attr attr = {
		.mr_iov = iov,
		.iov_count = count,
		.access = access,
		.iface = FI_HMEM_SYSTEM,
	};

	if (how == REGV)
		return fi_mr_regv(s->domain, iov, count, access, 0, 0, 0, mr, NULL);
	return fi_mr_regattr(s->domain, &attr, 0, mr);
}

/* memory in which all bytes are @fill, those of the region are @first, @first + 1, ... */
static struct memory *region(struct side *s, enum reg_call how, const struct piece *piece,
			     unsigned int count, unsigned int fill, int first)
{
	struct memory *m = calloc(1, sizeof(*m));
	struct iovec iov[8];
	size_t n = 0;

	if (!m)
		err(1, "memory");
	m->bytes = aligned_alloc(4096, ROOM);
	m->want = malloc(ROOM);
	if (!m->bytes || !m->want)
		err(1, "memory");
	memset(m->want, fill, ROOM);
	for (unsigned int i = 0; i < count; i++) {
		iov[i] = (struct iovec){ m->bytes + piece[i].at, piece[i].length };
		for (size_t j = 0; j < piece[i].length; j++)
			m->pos[n++] = piece[i].at + j;
	}
	if (n != LENGTH)
		errx(1, "the pieces have %zu bytes", n);
	for (n = 0; n < LENGTH && first >= 0; n++)
		m->want[m->pos[n]] = (first + n * 31 + n / 256) & 0xff;
	memcpy(m->bytes, m->want, ROOM);
	check(reg(s, how, iov, count, &m->mr), how == REGV ? "fi_mr_regv" : "fi_mr_regattr");
	return m;
}

/* the bytes from @at of @to on become those from @from_at on of @from */
static void copy(struct memory *to, size_t at, const struct memory *from, size_t from_at,
		 size_t length)
{
	for (size_t i = 0; i < length; i++)
		to->want[to->pos[at + i]] = from->want[from->pos[from_at + i]];
}

static void compare(const struct memory *m, const char *what)
{
	for (size_t i = 0; i < ROOM; i++)
		if (m->bytes[i] != m->want[i])
			errx(1, "%s: byte %zu is 0x%02x instead of 0x%02x", what, i, m->bytes[i],
			     m->want[i]);
}

static void release(struct memory *m)
{
	check(fi_close(&m->mr->fid), "fi_close of a region");
	free(m->bytes);
	free(m->want);
	free(m);
}

static void close_side(struct side *s)
{
	check(fi_close(&s->ep->fid), "fi_close of the endpoint");
	check(fi_close(&s->cq->fid), "fi_close of the queue");
	check(fi_close(&s->domain->fid), "fi_close of the domain");
	if (s->pep)
		fi_close(&s->pep->fid);
	fi_close(&s->eq->fid);
	fi_close(&s->fabric->fid);
	fi_freeinfo(s->info);
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The initiator writes all of it, then 5,000 bytes from 6,999 on to 4,090. */
static void be_target(const char *address)
{
	struct side s = { .info = find(address, true) };
	struct memory *m, *shadow, *inbox;
	struct fi_info *asked;
	struct offer offer;

	open_domain(&s);
	check(fi_passive_ep(s.fabric, s.info, &s.pep, NULL), "fi_passive_ep");
	check(fi_pep_bind(s.pep, &s.eq->fid, 0), "fi_pep_bind");
	check(fi_listen(s.pep), "fi_listen");
	expect(&s, FI_CONNREQ, &asked, NULL, 0);
	fi_freeinfo(s.info);
	s.info = asked;
	open_endpoint(&s);
	if (s.info->domain_attr->mr_iov_limit < COUNT(initiator))
		errx(1, "a region can have %zu buffers only", s.info->domain_attr->mr_iov_limit);
	m = region(&s, REGATTR, target, COUNT(target), GUARD, -1);
	shadow = region(&s, REGV, initiator, COUNT(initiator), 0, 17);
	inbox = region(&s, REGATTR, initiator, COUNT(initiator), GUARD, -1);
	offer = (struct offer){ fi_mr_key(m->mr), LENGTH };
	check(fi_recv(s.ep, (void *)0, LENGTH, fi_mr_desc(inbox->mr), 0, NULL), "fi_recv");
	check(fi_accept(s.ep, &offer, sizeof(offer)), "fi_accept");
	expect(&s, FI_CONNECTED, NULL, NULL, 0);
	wait_for(&s, "the initiator's message");
	copy(m, 0, shadow, 0, LENGTH);
	copy(m, 4090, shadow, 6999, 5000);
	compare(m, "the target's memory");
	copy(inbox, 0, m, 0, LENGTH);
	compare(inbox, "the message");
	printf("target: %d bytes in %zu buffers are right, and those between them\n", LENGTH,
	       COUNT(target));
	expect(&s, FI_SHUTDOWN, NULL, NULL, 0);
	release(m);
	release(shadow);
	release(inbox);
	close_side(&s);
}

static void be_initiator(const char *address)
{
	struct side s = { .info = find(address, false) };
	struct memory *from, *back;
	struct offer offer = { 0 };
	void *desc;

	open_domain(&s);
	open_endpoint(&s);
	from = region(&s, REGV, initiator, COUNT(initiator), 0, 17);
	back = region(&s, REGATTR, target, COUNT(target), GUARD, -1);
	check(fi_connect(s.ep, s.info->dest_addr, NULL, 0), "fi_connect");
	if (expect(&s, FI_CONNECTED, NULL, &offer, sizeof(offer)) < (ssize_t)sizeof(offer) ||
	    offer.length != LENGTH)
		errx(1, "no offer");

	/* The addresses of a region of several buffers are offsets, here and there. */
	desc = fi_mr_desc(from->mr);
	check(fi_write(s.ep, (void *)0, LENGTH, desc, 0, 0, offer.key, NULL), "fi_write");
	wait_for(&s, "fi_write of all");
	check(fi_write(s.ep, (void *)6999, 5000, desc, 0, 4090, offer.key, NULL), "fi_write");
	wait_for(&s, "fi_write of a part");
	check(fi_read(s.ep, (void *)0, LENGTH, fi_mr_desc(back->mr), 0, 0, offer.key, NULL),
	      "fi_read");
	wait_for(&s, "fi_read of all");
	copy(back, 0, from, 0, LENGTH);
	copy(back, 4090, from, 6999, 5000);
	compare(back, "what was read back");
	compare(from, "the source");
	check(fi_send(s.ep, (void *)0, LENGTH, fi_mr_desc(back->mr), 0, NULL), "fi_send");
	wait_for(&s, "fi_send");
	printf("initiator: %d bytes of %zu buffers written, a part of them again, read back and sent\n",
	       LENGTH, COUNT(initiator));
	check(fi_shutdown(s.ep, 0), "fi_shutdown");
	release(from);
	release(back);
	close_side(&s);
}

/* checks that both calls return @wanted for these buffers */
static void expect_error(struct side *s, const struct iovec *iov, size_t count, int wanted)
{
	struct fid_mr *mr;
	int ret;

	for (int how = REGV; how <= REGATTR; how++) {
		ret = reg(s, how, iov, count, &mr);
		if (ret != wanted)
			errx(1, "%s of %zu buffers: %d instead of %d",
			     how == REGV ? "fi_mr_regv" : "fi_mr_regattr", count, ret, wanted);
	}
}

/* one buffer by each call */
static void expect_one(struct side *s, const struct iovec *iov)
{
	struct fid_mr *mr;

	for (int how = REGV; how <= REGATTR; how++) {
		check(reg(s, how, iov, 1, &mr), "one buffer");
		check(fi_close(&mr->fid), "fi_close of a region");
	}
}

/* what works and what is refused, without a peer */
static void be_alone(const char *address, bool has_keys)
{
	struct side s = { .info = find(address, true) };
	static uint8_t bytes[8192];
	struct iovec iov[2] = { { bytes, 100 }, { bytes + 4000, 100 } };
	size_t limit;

	open_domain(&s);
	check(fi_domain(s.fabric, s.info, &s.domain, NULL), "fi_domain");
	limit = s.info->domain_attr->mr_iov_limit;
	if (has_keys ? limit < 2 : limit != 1)
		errx(1, "a region can have %zu buffers", limit);
	expect_one(&s, iov);
	if (has_keys) {
		iov[1] = (struct iovec){ (void *)4096, 4096 };
		expect_error(&s, iov, 2, -FI_EFAULT);
	} else {
		expect_error(&s, iov, 2, -FI_EINVAL);
	}
	printf("alone: a region can have %zu buffers, and the others are refused\n", limit);
	check(fi_close(&s.domain->fid), "fi_close of the domain");
	fi_close(&s.eq->fid);
	fi_close(&s.fabric->fid);
	fi_freeinfo(s.info);
}

int main(int argc, char **argv)
{
	if (argc == 3 && (!strcmp(argv[1], "-1") || !strcmp(argv[1], "-n")))
		be_alone(argv[2], argv[1][1] == 'n');
	else if (argc == 3 && !strcmp(argv[1], "-c"))
		be_initiator(argv[2]);
	else if (argc == 2)
		be_target(argv[1]);
	else
		errx(2, "usage: regv [-c | -n | -1] ADDRESS");
	return 0;
}
