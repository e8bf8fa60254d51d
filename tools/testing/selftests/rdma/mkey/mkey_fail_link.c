// SPDX-License-Identifier: GPL-2.0
/*
 * Adds a link with one fault after another. Whether or not ib_mkey extends the
 * device, it holds no reference to itself after the link is deleted. Needs a
 * kernel with fault injection; kmemleak finds leaks.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mkey_harness.h"

#define LINK "rxe_mktf"

/* more faults than adding a link has */
#define MAX_FAULTS 8192

FIXTURE(fail_link)
{
	int fd;			/* /proc/thread-self/fail-nth */
	int netlink;
	int references;		/* to the module, without the link */
	bool netdev;
};

static int link_references(void)
{
	char line[16];

	return mkt_command(line, sizeof(line), "cat /sys/module/ib_mkey/refcnt") ?
		       atoi(line) : -1;
}

static void link_faults(const char *ignore_sleeping)
{
	char line[8];

	mkt_command(line, sizeof(line),
		    "for n in failslab fail_page_alloc; do echo %s >/sys/kernel/debug/$n/ignore-gfp-wait; done",
		    ignore_sleeping);
}

FIXTURE_SETUP(fail_link)
{
	self->netlink = -1;
	self->fd = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_LE(0, self->fd);
	self->references = link_references();
	if (geteuid() || self->references < 0)
		SKIP(return, "not root, or no ib_mkey");
	self->netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	ASSERT_LE(0, self->netlink);
	ASSERT_EQ(0, system("ip link add " LINK " type dummy"));
	self->netdev = true;
	ASSERT_EQ(0, system("ip link set " LINK " up"));
	/* let allocations that may sleep fail, too */
	link_faults("N");
}

FIXTURE_TEARDOWN(fail_link)
{
	link_faults("Y");
	if (self->netdev) {
		EXPECT_EQ(0, system("ip link delete " LINK));
	}
	close(self->netlink);
	close(self->fd);
}

static void link_attr(struct nlmsghdr *message, uint16_t type, const char *text)
{
	struct nlattr *attr = (void *)message + NLMSG_ALIGN(message->nlmsg_len);

	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + strlen(text) + 1;
	strcpy((void *)attr + NLA_HDRLEN, text);
	message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) +
			     NLA_ALIGN(attr->nla_len);
}

/*
 * runs "rdma link add" in this thread with fault number @nth; returns 0 or an
 * errno
 */
static int link_add(FIXTURE_DATA(fail_link) *self, unsigned int nth)
{
	union {
		struct nlmsghdr header;
		char room[256];
	} message = {
		.header = {
			.nlmsg_len = NLMSG_HDRLEN,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						       RDMA_NLDEV_CMD_NEWLINK),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[512];
	} answer = {};
	char text[16];
	int ret, n;

	link_attr(&message.header, RDMA_NLDEV_ATTR_DEV_NAME, LINK);
	link_attr(&message.header, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
	link_attr(&message.header, RDMA_NLDEV_ATTR_NDEV_NAME, LINK);
	n = snprintf(text, sizeof(text), "%u", nth);
	if (pwrite(self->fd, text, n, 0) != n)
		return errno;
	ret = send(self->netlink, &message, message.header.nlmsg_len, 0) < 0 ? errno : 0;
	if (pwrite(self->fd, "0", 1, 0) != 1)
		return errno;
	/* there is no answer if there was no memory for one */
	while (!ret && recv(self->netlink, &answer, sizeof(answer), MSG_DONTWAIT) > 0)
		ret = -answer.error.error;
	return ret;
}

static bool link_is_there(void)
{
	return !system("rdma link show " LINK "/1 >/dev/null 2>&1");
}

static bool link_is_extended(void)
{
	return !system("grep -q '^" LINK " ' /sys/kernel/debug/ib_mkey/pools");
}

enum outcome { NO_LINK, NOT_EXTENDED, EXTENDED };

/*
 * adds the link and deletes it; returns the state between, or a negative errno
 */
static int link_try(FIXTURE_DATA(fail_link) *self, unsigned int nth)
{
	enum outcome outcome = NO_LINK;
	int references;

	link_add(self, nth);
	if (link_is_there()) {
		outcome = link_is_extended() ? EXTENDED : NOT_EXTENDED;
		if (system("rdma link delete " LINK))
			return -EBUSY;
	}
	references = link_references();
	if (references != self->references) {
		mkt_diag("fault %u: %d references to ib_mkey, not %d", nth,
			 references, self->references);
		return -ETOOMANYREFS;
	}
	return outcome;
}

/*
 * Most allocations are in rxe and in ib_core, before and after those of ib_mkey. If a
 * link cannot be made, it is removed while ib_mkey has the device. All faults are
 * tried; in a quick run fewer.
 */
TEST_F_TIMEOUT(fail_link, add, 3600)
{
	unsigned int low = 1, high = MAX_FAULTS, i, samples = mkt_scale(400, 48);
	unsigned int count[3] = {};

	ASSERT_EQ(EXTENDED, link_try(self, 0));
	/* find the number of faults: with a higher number the link is made */
	while (low < high) {
		unsigned int middle = (low + high) / 2;
		int outcome = link_try(self, middle);

		ASSERT_LE(0, outcome);
		if (outcome == EXTENDED)
			high = middle;
		else
			low = middle + 1;
	}
	for (i = 0; i < samples; i++) {
		int outcome = link_try(self, 1 + (uint64_t)low * i / samples);

		ASSERT_LE(0, outcome);
		count[outcome]++;
	}
	mkt_diag("%u faults, %u tried: %u without a link, %u not extended", low, samples,
		 count[NO_LINK], count[NOT_EXTENDED]);
	EXPECT_LT(0, count[NO_LINK]);
	EXPECT_EQ(EXTENDED, link_try(self, 0));
}

int main(int argc, char **argv)
{
	if (access("/proc/thread-self/fail-nth", W_OK)) {
		ksft_print_header();
		ksft_exit_skip("this kernel has no fault injection\n");
	}
	return test_harness_run(argc, argv);
}
