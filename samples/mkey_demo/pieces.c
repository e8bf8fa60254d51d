// SPDX-License-Identifier: GPL-2.0
/*
 * Act 2. A message consists of a header and three payload pieces, each in its
 * own buffer and MR, as in a program whose layers each add a piece. The message
 * is a PPM file: the pieces are bands of the picture. Node 1 cuts the payload
 * at other places, so that no piece matches one of the other side.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "acts.h"

#define NUM_PIECES 4	/* the header, and three pieces of the payload */
#define GUARD 67	/* bytes on each side of a piece, which must not change; odd */
#define GUARD_BYTE 0xa5

struct message {
	uint8_t *buffer[NUM_PIECES];	/* the pieces with their guard bytes */
	size_t length[NUM_PIECES];
	struct ibv_mr *mr[NUM_PIECES];
	struct region region;
};

struct parcel {
	struct message *message;
	char header[32];
	struct image expected;
};

static const uint8_t tints[NUM_PIECES - 1][PIXEL_BYTES] = {
	{ 0xe8, 0x4a, 0x3c }, { 0x2f, 0xa8, 0x5a }, { 0x2c, 0x6f, 0xd8 },
};

static size_t write_header(char *to, size_t size, const struct image *image)
{
	return snprintf(to, size, "P6\n%u %u\n255\n", image->width, image->height);
}

/* Returns the row after the last row of a band. */
static unsigned int band_end(const struct image *image, unsigned int band)
{
	static const unsigned int percent[NUM_PIECES] = { 0, 40, 65, 100 };

	return image->height * percent[band] / 100;
}

/*
 * Copies the picture and tints each band, so that the result shows which band
 * is where.
 */
static struct image tinted(const struct image *picture)
{
	struct image image = image_copy(picture);

	for (unsigned int band = 0; band < NUM_PIECES - 1; band++)
		for (unsigned int y = band_end(picture, band);
		     y < band_end(picture, band + 1); y++)
			for (size_t i = 0; i < image_row_bytes(&image); i++) {
				uint8_t *c = image_at(&image, 0, y) + i;

				*c = (*c * 5 + tints[band][i % PIXEL_BYTES] * 3) / 8;
			}
	return image;
}

static uint8_t *piece(const struct message *message, unsigned int i)
{
	return message->buffer[i] + GUARD;
}

/* Makes and registers the buffers, then binds a key to all of them. */
static void open_message(struct node *node, struct message *message,
			 unsigned int access)
{
	struct ibmkey_range list[NUM_PIECES];
	struct region *region = &message->region;
	double start;
	int ret;

	region->num_blocks = NUM_PIECES;
	region->blocks = calloc(NUM_PIECES, sizeof(*region->blocks));
	if (!region->blocks)
		err(1, "list of pieces");
	for (unsigned int i = 0; i < NUM_PIECES; i++) {
		size_t size = message->length[i] + 2 * GUARD;

		message->buffer[i] = malloc(size);
		if (!message->buffer[i])
			err(1, "a piece of %zu bytes", size);
		memset(message->buffer[i], GUARD_BYTE, size);
		message->mr[i] = rc_reg(&node->dev, message->buffer[i], size, access);
		list[i] = (struct ibmkey_range) {
			.addr = (uintptr_t)piece(message, i),
			.length = message->length[i],
			.lkey = message->mr[i]->lkey,
		};
		region->blocks[i] = (struct block) {
			.addr = list[i].addr,
			.length = list[i].length,
			.key = access & IBV_ACCESS_REMOTE_WRITE ?
			       message->mr[i]->rkey : message->mr[i]->lkey,
		};
		region->length += list[i].length;
	}

	start = now_ms();
	region->mkey = ibmkey_alloc(node->dev.pd, NUM_PIECES);
	if (!region->mkey)
		err(1, "ibmkey_alloc");
	ret = ibmkey_bind_list(region->mkey, access, NUM_PIECES, list);
	if (ret)
		die(ret, "ibmkey_bind_list: %s", ibmkey_last_error());
	region->bind_ms = now_ms() - start;
}

static void close_message(struct message *message)
{
	rc_dereg(message->region.mkey);
	for (unsigned int i = 0; i < NUM_PIECES; i++) {
		rc_dereg(message->mr[i]);
		free(message->buffer[i]);
	}
	free(message->region.blocks);
}

struct figures pieces_send(struct node *node, const struct demo *demo)
{
	struct image image = tinted(&demo->picture);
	struct message message = { 0 };
	struct figures figures;
	char header[32];

	message.length[0] = write_header(header, sizeof(header), &image);
	for (unsigned int i = 1; i < NUM_PIECES; i++)
		message.length[i] = image_row_bytes(&image) *
			(band_end(&image, i) - band_end(&image, i - 1));
	open_message(node, &message, 0);
	memcpy(piece(&message, 0), header, message.length[0]);
	for (unsigned int i = 1; i < NUM_PIECES; i++)
		memcpy(piece(&message, i),
		       image_at(&image, 0, band_end(&image, i - 1)),
		       message.length[i]);

	figures = ways_send(node, &message.region, demo->repetitions);
	close_message(&message);
	image_free(&image);
	return figures;
}

static void reset_message(void *context)
{
	struct parcel *parcel = context;

	for (unsigned int i = 0; i < NUM_PIECES; i++)
		memset(piece(parcel->message, i), 0, parcel->message->length[i]);
}

static const char *check_message(void *context)
{
	struct parcel *parcel = context;
	const struct message *message = parcel->message;
	const uint8_t *expected = parcel->expected.pixels;

	if (memcmp(piece(message, 0), parcel->header, message->length[0]))
		return "the header is not the expected one";
	for (unsigned int i = 1; i < NUM_PIECES; i++) {
		if (memcmp(piece(message, i), expected, message->length[i]))
			return "a payload piece is not the expected one";
		expected += message->length[i];
	}
	for (unsigned int i = 0; i < NUM_PIECES; i++) {
		const uint8_t *end = piece(message, i) + message->length[i];

		for (unsigned int j = 0; j < GUARD; j++)
			if (message->buffer[i][j] != GUARD_BYTE ||
			    end[j] != GUARD_BYTE)
				return "bytes around a piece have changed";
	}
	return NULL;
}

/* Draws the three bands apart, as node 0 has them. */
static struct image bands_apart(const struct image *image)
{
	const unsigned int gap = image->height / 20 + 1;
	struct image apart = image_new(image->width, image->height + 2 * gap);

	image_fill(&apart, &(struct rect) { 0, 0, apart.width, apart.height },
		   (const uint8_t[]) { 0xf4, 0xf1, 0xea });
	for (unsigned int i = 0; i < NUM_PIECES - 1; i++) {
		struct rect band = {
			.y = band_end(image, i),
			.width = image->width,
			.height = band_end(image, i + 1) - band_end(image, i),
		};

		image_paste(&apart, 0, band.y + i * gap, image, &band);
	}
	return apart;
}

static void write_picture(const struct demo *demo, const struct parcel *parcel)
{
	const struct message *message = parcel->message;
	struct image before = bands_apart(&parcel->expected);
	struct image after = image_new(parcel->expected.width,
				       parcel->expected.height);
	struct image sequence;
	uint8_t *to = after.pixels;

	for (unsigned int i = 1; i < NUM_PIECES; i++) {
		memcpy(to, piece(message, i), message->length[i]);
		to += message->length[i];
	}
	sequence = image_sequence((const struct image *const[]) {
		&before, &after }, 2, 640);
	demo_write(demo, &sequence, "2-pieces.png");
	image_free(&sequence);
	image_free(&after);
	image_free(&before);
}

void pieces_receive(struct node *node, const struct demo *demo)
{
	struct message message = { 0 };
	struct parcel parcel = {
		.message = &message,
		.expected = tinted(&demo->picture),
	};
	struct checks checks = { reset_message, check_message, &parcel };
	size_t payload = image_bytes(&parcel.expected);

	message.length[0] = write_header(parcel.header, sizeof(parcel.header),
					 &parcel.expected);
	message.length[1] = payload / 5 + 1;
	message.length[2] = payload / 2 + 2;
	message.length[3] = payload - message.length[1] - message.length[2];
	open_message(node, &message,
		     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ways_receive(node, &message.region, &checks, demo->repetitions);

	write_picture(demo, &parcel);
	close_message(&message);
	image_free(&parcel.expected);
}
