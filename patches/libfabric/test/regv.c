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
#include "sides.h"

static const struct piece initiator[] = { { 40000, 7001 }, { 11, 1 }, { 20001, 12000 }, { 1000, 998 } };
static const struct piece target[] = { { 3, 4097 }, { 50000, 15000 }, { 30001, 903 } };

/* what the target tells the initiator */
struct offer {
	uint64_t key, length;
};

/* the bytes from @at of @to on become those from @from_at on of @from */
static void copy(struct memory *to, size_t at, const struct memory *from, size_t from_at,
		 size_t length)
{
	for (size_t i = 0; i < length; i++)
		to->want[to->pos[at + i]] = from->want[from->pos[from_at + i]];
}

/* The initiator writes all of it, then 5,000 bytes from 6,999 on to 4,090. */
static void be_target(const char *address)
{
	struct memory *m, *shadow, *inbox;
	struct side s = { 0 };
	struct offer offer;

	listen_on(&s, address);
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
