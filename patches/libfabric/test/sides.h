/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The two sides of a transfer by libfabric, and memory whose bytes are compared. */
#ifndef REGV_SIDES_H
#define REGV_SIDES_H

#include <err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#define PORT "18700"
#define ROOM 65536
#define LENGTH 20000		/* of a region of several buffers */
#define GUARD 0x5a
#define TRIES 300

/* the lengths of buffers, and where they are in the room */
struct piece {
	size_t at, length;
};

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

/* byte @n of a region that is filled with @first, ... */
static inline uint8_t pattern(unsigned int first, size_t n)
{
	return first + n * 31 + n / 256;
}

static inline void check(int ret, const char *what)
{
	if (ret < 0)
		errx(1, "%s: %s", what, fi_strerror(-ret));
}

static inline struct fi_info *find(const char *address, bool here)
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

static inline void open_domain(struct side *s)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_UNSPEC };

	check(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), "fi_fabric");
	check(fi_eq_open(s->fabric, &eq, &s->eq, NULL), "fi_eq_open");
}

static inline void open_endpoint(struct side *s)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG, .size = 256,
				 .wait_obj = FI_WAIT_FD };

	check(fi_domain(s->fabric, s->info, &s->domain, NULL), "fi_domain");
	check(fi_cq_open(s->domain, &cq, &s->cq, NULL), "fi_cq_open");
	check(fi_endpoint(s->domain, s->info, &s->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(s->ep, &s->eq->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(s->ep), "fi_enable");
}

/* waits for an event of the connection; returns how much @data the peer sent with it */
static inline ssize_t expect(struct side *s, uint32_t wanted, struct fi_info **info, void *data,
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

static inline void wait_for(struct side *s, const char *what)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_msg_entry entry;
	ssize_t n;

	do
		n = fi_cq_sread(s->cq, &entry, 1, NULL, -1);
	while (n == -FI_EAGAIN);
	if (n == -FI_EAVAIL) {
		fi_cq_readerr(s->cq, &error, 0);
		errx(1, "%s: %s", what, fi_strerror(error.err));
	}
	check(n, what);
}

enum reg_call { REGV, REGATTR };

/* registers buffers for everything, by one of the two calls that take several */
static inline int reg(struct side *s, enum reg_call how, const struct iovec *iov, size_t count,
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

/* registers the buffers again, after the region was closed */
static inline void register_again(struct side *s, struct memory *m, enum reg_call how,
				  const struct piece *piece, size_t count)
{
	struct iovec iov[8];

	for (size_t i = 0; i < count; i++)
		iov[i] = (struct iovec){ m->bytes + piece[i].at, piece[i].length };
	check(reg(s, how, iov, count, &m->mr), how == REGV ? "fi_mr_regv" : "fi_mr_regattr");
}

/*
 * New memory at @where, or anywhere, in which all bytes are @fill, and those of the region have the
 * pattern of @first, unless that is negative.
 */
static inline struct memory *region_at(struct side *s, void *where, enum reg_call how,
				       const struct piece *piece, size_t count, unsigned int fill,
				       int first)
{
	struct memory *m = calloc(1, sizeof(*m));
	size_t n = 0;

	if (!m)
		err(1, "memory");
	m->bytes = mmap(where, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
			(where ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	m->want = malloc(ROOM);
	if (m->bytes == MAP_FAILED || !m->want)
		err(1, "memory");
	memset(m->want, fill, ROOM);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < piece[i].length; j++, n++) {
			m->pos[n] = piece[i].at + j;
			if (first >= 0)
				m->want[m->pos[n]] = pattern(first, n);
		}
	memcpy(m->bytes, m->want, ROOM);
	register_again(s, m, how, piece, count);
	return m;
}

static inline struct memory *region(struct side *s, enum reg_call how, const struct piece *piece,
				    size_t count, unsigned int fill, int first)
{
	return region_at(s, NULL, how, piece, count, fill, first);
}

static inline void compare(const struct memory *m, const char *what)
{
	for (size_t i = 0; i < ROOM; i++)
		if (m->bytes[i] != m->want[i])
			errx(1, "%s: byte %zu is 0x%02x instead of 0x%02x", what, i, m->bytes[i],
			     m->want[i]);
}

static inline void release(struct memory *m)
{
	check(fi_close(&m->mr->fid), "fi_close of a region");
	munmap(m->bytes, ROOM);
	free(m->want);
	free(m);
}

/* opens the side of the target, when the initiator has asked for a connection */
static inline void listen_on(struct side *s, const char *address)
{
	struct fi_info *asked;

	s->info = find(address, true);
	open_domain(s);
	check(fi_passive_ep(s->fabric, s->info, &s->pep, NULL), "fi_passive_ep");
	check(fi_pep_bind(s->pep, &s->eq->fid, 0), "fi_pep_bind");
	check(fi_listen(s->pep), "fi_listen");
	expect(s, FI_CONNREQ, &asked, NULL, 0);
	fi_freeinfo(s->info);
	s->info = asked;
	open_endpoint(s);
}

static inline void close_side(struct side *s)
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

#endif /* REGV_SIDES_H */
