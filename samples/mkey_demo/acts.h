/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The acts of the demonstration. Each has a part for node 0 and a part for node
 * 1, which run concurrently in two processes.
 */
#ifndef MKEY_DEMO_ACTS_H
#define MKEY_DEMO_ACTS_H

#include "image.h"
#include "ways.h"

struct demo {
	struct image picture;
	const char *out_dir;
	unsigned int repetitions;
};

struct counter_figures {
	unsigned int operations;
	uint64_t device_memory;		/* last value of the counter in device memory */
	double device_memory_ms;
	double host_memory_ms;
};

/* Act 1, tile.c: a tile of a picture, strided on both sides */
struct figures tile_send(struct node *node, const struct demo *demo);
void tile_receive(struct node *node, const struct demo *demo);

/* Act 2, pieces.c: a header and three payload pieces in separate buffers */
struct figures pieces_send(struct node *node, const struct demo *demo);
void pieces_receive(struct node *node, const struct demo *demo);

/* Act 3, counter.c: a counter in device memory that both nodes add to */
struct counter_figures counter_add(struct node *node);
void counter_host(struct node *node);

/* Writes @image to @name in the output directory. */
void demo_write(const struct demo *demo, const struct image *image,
		const char *name);

#endif /* MKEY_DEMO_ACTS_H */
