// SPDX-License-Identifier: GPL-2.0
/* Settings of a run, random numbers and small helpers. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mkey_test.h"

void mkt_diag(const char *format, ...)
{
	va_list args;

	/* tests end with _exit(), so flush the buffer */
	fputs("# ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

double mkt_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1000000000.0;
}

void mkt_alive(void)
{
	static atomic_ullong calls, next;
	unsigned long long call = ++calls, when = next, now = mkt_seconds();

	if (now < when || !atomic_compare_exchange_strong(&next, &when, now + 60))
		return;
	/* the first call only starts the minute */
	if (when)
		mkt_diag("still at work: step %llu", call);
}

bool mkt_ended(pid_t pid, unsigned int seconds, int *status)
{
	double end = mkt_seconds() + seconds;

	while (waitpid(pid, status, WNOHANG) != pid) {
		if (mkt_seconds() > end)
			return false;
		usleep(10000);
		mkt_alive();
	}
	return true;
}

unsigned int mkt_quick(void)
{
	const char *value = getenv("MKEY_TEST_QUICK");

	if (!value || !*value || !strcmp(value, "0"))
		return 0;
	return strcmp(value, "2") ? 1 : 2;
}

unsigned int mkt_scale(unsigned int normal, unsigned int quick)
{
	return mkt_quick() ? quick : normal;
}

unsigned int mkt_rounds(unsigned int normal, unsigned int quick)
{
	unsigned int rounds = mkt_scale(normal, quick);

	return mkt_quick() == 2 ? (rounds + 2) / 3 : rounds;
}

/*
 * Every test runs in its own process. Draw the seed once, before the first
 * fork, and pass it on in the environment.
 */
__attribute__((constructor)) static void mkt_draw_seed(void)
{
	char text[24];
	uint64_t seed;

	if (getenv("MKEY_TEST_SEED"))
		return;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uint64_t)time(NULL);
	/* short enough to be typed */
	snprintf(text, sizeof(text), "%" PRIu64, seed % 100000000);
	setenv("MKEY_TEST_SEED", text, 1);
}

void mkt_rng_init(struct mkt_rng *rng, const char *salt)
{
	const char *text = getenv("MKEY_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : 0;

	mkt_diag("MKEY_TEST_SEED=%" PRIu64 " for %s", seed, salt);
	/* FNV-1a over the salt gives each test its own stream */
	rng->state = seed ^ 0xcbf29ce484222325;
	for (; *salt; salt++)
		rng->state = (rng->state ^ (uint8_t)*salt) * 0x100000001b3;
}

/* splitmix64 */
uint64_t mkt_rand(struct mkt_rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint64_t mkt_between(struct mkt_rng *rng, uint64_t low, uint64_t high)
{
	uint64_t span = high - low;

	if (span == UINT64_MAX)
		return mkt_rand(rng);
	return low + mkt_rand(rng) % (span + 1);
}

uint64_t mkt_rand_size(struct mkt_rng *rng, uint64_t max)
{
	unsigned int bits = 0;
	uint64_t low, high;

	while (bits < 63 && (2ull << bits) <= max)
		bits++;
	low = 1ull << mkt_between(rng, 0, bits);
	high = 2 * low - 1 < max ? 2 * low - 1 : max;
	return mkt_between(rng, low, high);
}

void mkt_rand_bytes(struct mkt_rng *rng, void *to, size_t length)
{
	uint8_t *bytes = to;

	while (length) {
		uint64_t word = mkt_rand(rng);
		size_t n = length < sizeof(word) ? length : sizeof(word);

		memcpy(bytes, &word, n);
		bytes += n;
		length -= n;
	}
}

bool mkt_command(char *line, size_t size, const char *format, ...)
{
	char command[512];
	va_list args;
	bool got;
	FILE *pipe;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);

	pipe = popen(command, "r");
	if (!pipe)
		return false;
	got = fgets(line, size, pipe);
	while (fgetc(pipe) != EOF)
		;
	return !pclose(pipe) && got;
}
