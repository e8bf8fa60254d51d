// SPDX-License-Identifier: GPL-2.0
/*
 * mkey_demo: device memory and indirect memory keys between two nodes. Each
 * node is a process with its own device. They exchange data over the link
 * between the devices. Node 0 is the parent process and prints the figures.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peer.h>

#include "acts.h"
#include "results.h"

#define MIN_SIDE 16		/* smallest side of the picture that is read */
#define MAX_ASPECT 8
#define GOOD_SIDE 960		/* without an option, pictures are enlarged up to this */
#define MAX_SIDE 1024
#define MAX_MESSAGE (8u << 20)	/* largest message of a port of rxe, in bytes */
#define MAX_REPETITIONS 1000

static const char usage[] =
	"usage: mkey_demo [-a DEVICE[@NETNS]] [-b DEVICE[@NETNS]] [-r N] [-s SIDE]\n"
	"                 [-c HOST | -l] PICTURE OUTDIR\n"
	"Sends parts of PICTURE, a PNG, JPEG or PPM file, from device a (rxe0@ns0) to device b\n"
	"(rxe1@ns1) N times (15), checks every byte, prints what it took and writes\n"
	"pictures of it to OUTDIR. A small PICTURE is enlarged, by a whole number, while\n"
	"its shorter side is not above SIDE (960) pixels; a large one is reduced.\n"
	"  -c HOST  device b is on HOST, where \"mkey_demo -l\" runs with the same arguments\n"
	"  -l       serves device b for a mkey_demo on another machine\n";

void demo_write(const struct demo *demo, const struct image *image,
		const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", demo->out_dir, name) < 0)
		err(1, "%s", name);
	image_write_png(image, path);
	free(path);
}

static struct demo prepare(const char *picture, const char *out_dir,
			   unsigned int repetitions, unsigned int good_side)
{
	struct image image = image_load(picture);
	unsigned int side = image.width < image.height ? image.width : image.height;
	unsigned int longer = image.width + image.height - side;
	struct demo demo = { .out_dir = out_dir, .repetitions = repetitions };
	unsigned int factor = 1;
	struct stat there;

	if (side < MIN_SIDE || longer / side >= MAX_ASPECT)
		errx(1, "%s has %u x %u pixels: each side needs at least %u, and one side less than %u times the other",
		     picture, image.width, image.height, MIN_SIDE, MAX_ASPECT);
	while (image_bytes(&image) / factor / factor > MAX_MESSAGE - 64)
		factor++;
	if (factor > 1)
		demo.picture = image_shrink(&image, factor);
	else
		demo.picture = image_enlarge(&image, side < good_side ?
						     good_side / side : 1);
	image_free(&image);

	if (mkdir(out_dir, 0777) && errno != EEXIST)
		err(1, "%s", out_dir);
	if (stat(out_dir, &there))
		err(1, "%s", out_dir);
	if (!S_ISDIR(there.st_mode))
		errx(1, "%s is not a directory", out_dir);
	if (access(out_dir, W_OK))
		err(1, "%s", out_dir);
	return demo;
}

/* Prints what the demonstration will do, before it begins. */
static void announce(const struct node *nodes, const struct demo *demo)
{
	printf("mkey_demo: %s sends to %s. A key describes bytes of other memory.\n"
	       "  1. One RDMA WRITE copies a tile of a picture of %u x %u pixels to the middle of another\n"
	       "     picture. The tile is not contiguous in either picture.\n"
	       "  2. One RDMA WRITE copies a header and 3 pieces of payload from 4 buffers to 4 buffers.\n"
	       "  3. Both nodes add to a counter in device memory, by fetch-and-add.\n"
	       "The receiver checks every byte. Then a table compares a key with packing and with many\n"
	       "requests.\n\n",
	       nodes[0].where, nodes[1].where, demo->picture.width, demo->picture.height);
}

static struct results run_node0(struct node *node, const struct demo *demo)
{
	struct results results;

	node_open(node);
	puts("1. a tile of the picture, through a strided key at each end ...");
	results.tile = tile_send(node, demo);
	puts("2. a header and three payload pieces, through a key of ranges at each end ...");
	results.pieces = pieces_send(node, demo);
	puts("3. a counter in device memory, to which both nodes add ...");
	results.counter = counter_add(node);
	node_meet(node);
	node_close(node);
	return results;
}

static void run_node1(struct node *node, const struct demo *demo)
{
	node_open(node);
	tile_receive(node, demo);
	pieces_receive(node, demo);
	counter_host(node);
	node_meet(node);
	node_close(node);
}

/* The process of node 1. 0 in node 1 itself, and until node 0 knows it. */
static volatile pid_t peer;

/* Ends node 0 if node 1 has ended: node 0 could wait for completions that never come. */
static void on_child(int number)
{
	static const char message[] = "mkey_demo: node 1 was killed\n";
	siginfo_t info = { 0 };

	(void)number;
	if (!peer || waitid(P_PID, peer, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
		return;
	if (info.si_code == CLD_EXITED && !info.si_status)
		return;
	/* A child that exited by itself has printed the reason. */
	if (info.si_code != CLD_EXITED &&
	    write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		_exit(3);
	_exit(1);
}

static unsigned int number_from(int option, const char *text, unsigned int max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || !n || n > max)
		errx(2, "-%c %s: not a number from 1 to %u", option, text, max);
	return n;
}

/* DEVICE or DEVICE@NETNS */
static const char *place_from(int option, const char *text)
{
	const char *at = strchrnul(text, '@');

	if (at == text || !strcmp(at, "@"))
		errx(2, "-%c %s: the name of the %s is empty: use DEVICE or DEVICE@NETNS", option,
		     text, at == text ? "device" : "network namespace");
	return text;
}

static struct node nodes[2] = { { .where = "rxe0@ns0" }, { .where = "rxe1@ns1" } };

/* Runs both nodes, each in a process. If @host is set, runs node 0 only: node 1 is there. */
static struct results run_nodes(const struct demo *demo, const char *host)
{
	pid_t parent = getpid(), child;
	struct results results;
	int socks[2], status;

	if (host) {
		nodes[0].sock = peer_connect(host);
		return run_node0(&nodes[0], demo);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		err(1, "socketpair");
	sigaction(SIGCHLD, &(struct sigaction) {
		.sa_handler = on_child,
		.sa_flags = SA_RESTART | SA_NOCLDSTOP,
	}, NULL);
	/*
	 * Fork before any device is open: verbs resources do not survive a
	 * fork.
	 */
	child = fork();
	if (child < 0)
		err(1, "fork");
	/* Node 0 is the parent. */
	nodes[!child].sock = socks[!child];
	close(socks[!!child]);
	program_invocation_short_name = child ? "mkey_demo, node 0" :
						"mkey_demo, node 1";
	if (!child) {
		/* Node 0 may have ended between the fork and this call. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			exit(1);
		run_node1(&nodes[1], demo);
		exit(0);
	}
	peer = child;
	on_child(SIGCHLD);	/* node 1 may have ended before @peer was set */
	results = run_node0(&nodes[0], demo);
	peer = 0;
	if (waitpid(child, &status, 0) != child)
		err(1, "waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		exit(1);
	return results;
}

int main(int argc, char **argv)
{
	unsigned int repetitions = 15, good_side = GOOD_SIDE;
	const char *host = NULL;
	struct results results;
	bool serve = false;
	struct demo demo;
	int option;

	while ((option = getopt(argc, argv, "a:b:r:s:c:lh")) != -1) {
		switch (option) {
		case 'a':
		case 'b':
			nodes[option - 'a'].where = place_from(option, optarg);
			break;
		case 'r':
			repetitions = number_from(option, optarg, MAX_REPETITIONS);
			break;
		case 's':
			good_side = number_from(option, optarg, MAX_SIDE);
			break;
		case 'c':
			host = optarg;
			break;
		case 'l':
			serve = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (argc - optind != 2 || (serve && host)) {
		fputs(usage, stderr);
		return 2;
	}
	/* Print the last line after any error message. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	demo = prepare(argv[optind], argv[optind + 1], repetitions,
		       good_side);
	if (serve) {
		nodes[1].sock = peer_accept(peer_listen());
		run_node1(&nodes[1], &demo);
		return 0;
	}

	announce(nodes, &demo);
	/* Node 1 must not inherit this text. rc.c prints the error. */
	if (fflush(stdout) || ferror(stdout))
		exit(1);
	results = run_nodes(&demo, host);
	results_print(&results, repetitions);
	printf("\nPictures of acts 1 and 2, from the memory that was written to:\n"
	       "%s/1-tile.png (1-source.png, 1-before.png, 1-after.png in full size)\n"
	       "%s/2-pieces.png\n",
	       demo.out_dir, demo.out_dir);
	printf("\nOne RDMA WRITE each has moved a tile and a message of 4 pieces from %s to %s.\n"
	       "%u fetch-and-adds of both nodes have brought a counter in device memory to %llu.\n"
	       "Every byte was checked.\n",
	       nodes[0].where, nodes[1].where, results.counter.operations,
	       (unsigned long long)results.counter.device_memory);
	return 0;
}
