// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: transfers through a key to memory whose first page comes when a line can be read
 * from stdin. Prints "waits" when the kernel waits for the page, and checks all bytes. Ends with 4
 * if the kernel cannot wait so.
 *
 * usage: mkey_late registered    ibv_reg_mr() waits for pages of a userfaultfd
 *        mkey_late on_demand     a WRITE waits for a page of a file, see lib/slow.h
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mkey_test.h"
#include "slow.h"

#define SIZE (16 * 4096)
#define LENGTH 5000
#define SKIPPED 4

struct late {
	struct mkt_setup s;
	struct slow_thread thread;
	struct mkt_slow slow;
	uint8_t *memory;
	struct ibv_mr *mr;	/* of it, side 1 */
};

/*
 * Neither call allocates memory: an access that waits for a page holds the lock of the address
 * space.
 */
static int late_wait(void)
{
	char line;

	return write(1, "waits\n", 6) != 6 || read(0, &line, 1) < 0 ? EIO : 0;
}

static int late_register(void *arg)
{
	struct late *late = arg;

	late->mr = ibv_reg_mr(late->s.dev[1].pd, late->memory, SIZE, MKT_ACCESS_ALL);
	return late->mr ? 0 : errno;
}

static int late_bind(struct late *late)
{
	return mkt_bind_strided(late->s.key[1], MKT_ACCESS_ALL, late->mr,
				(uintptr_t)late->memory, 1000, 1001, LENGTH / 1000);
}

/* the first fault is answered when a line has come, and later ones are not expected */
static int late_registered(struct late *late)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_register whole = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage pages = {};
	struct uffdio_api api = { .api = UFFD_API };
	struct uffd_msg fault;
	int err;

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		return -1;
	late->memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages.range = (struct uffdio_range){ (uintptr_t)late->memory, SIZE };
	whole.range = pages.range;
	if (late->memory == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &whole))
		return errno;
	err = slow_thread_create(&late->thread);
	if (err)
		return err;
	slow_run(&late->thread, late_register, late);
	if (read(fd, &fault, sizeof(fault)) != sizeof(fault) || fault.event != UFFD_EVENT_PAGEFAULT)
		return EIO;
	err = late_wait();
	if (ioctl(fd, UFFDIO_ZEROPAGE, &pages))
		return errno;
	return err ?: slow_join(&late->thread) ?: late_bind(late) ?:
	       mkt_touch(&late->s, late->s.key[1]->rkey, MKT_WRITE, 0, LENGTH);
}

static int late_on_demand(struct late *late)
{
	struct mkt_setup *s = &late->s;
	struct mkt_wr wr = mkt_plain_wr(s, 0, MKT_WRITE, LENGTH, 0, s->key[1]->rkey);
	struct ibv_wc wc;
	int err = mkt_slow_try(&late->slow, s->dev, SIZE);

	if (err)
		return err;
	late->memory = late->slow.map;
	late->mr = ibv_reg_mr(s->dev[1].pd, late->memory, SIZE,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	err = late->mr ? late_bind(late) : errno;
	mkt_slow_hold(&late->slow, true);
	err = err ?: mkt_post_send(&s->pair.end[0], &wr, 0) ?: mkt_slow_wait(&late->slow, 1);
	if (err)
		return err;
	err = late_wait();
	mkt_slow_hold(&late->slow, false);
	return err ?: mkt_poll(&s->pair.end[0], &wc) ?: wc.status;
}

/* the bytes are blocks of the memory, and the bytes between them are zeros */
static int late_check(const struct late *late)
{
	const uint8_t *sent = (const uint8_t *)(uintptr_t)late->s.plain[0].addr;
	unsigned int i;

	for (i = 0; i < SIZE; i++) {
		bool gap = i % 1001 == 1000 || i >= LENGTH / 1000 * 1001;

		if (late->memory[i] != (gap ? 0 : sent[i - i / 1001])) {
			mkt_diag("byte %u: bytes are wrong", i);
			return EBADMSG;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct late late;
	const struct mkt_wants wants = { .flags = MKT_QP_PATIENT, .host = SIZE, .max_entries = 4 };
	int err;

	err = mkt_dev_open(&late.s.dev[0], 0) ?: mkt_dev_open(&late.s.dev[1], 1) ?:
	      mkt_setup(&late.s, &wants, "late");
	if (!err && argc > 1 && !strcmp(argv[1], "on_demand"))
		err = late_on_demand(&late);
	else if (!err)
		err = late_registered(&late);
	/* the process serves the file, and must not wait for it when it ends */
	err = err ?: late_check(&late) ?: ibv_dereg_mr(late.s.key[1]) ?: ibv_dereg_mr(late.mr);
	if (late.slow.map)
		mkt_slow_close(&late.slow);
	if (err)
		mkt_diag("error %d", err);
	return err < 0 ? SKIPPED : !!err;
}
