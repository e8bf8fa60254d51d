// SPDX-License-Identifier: GPL-2.0
/*
 * Act 1. A tile of a picture is a block of bytes in each of its rows. The stride of
 * the blocks is the width of the picture. Node 0 sends its tile by a key. Node 1 has
 * a key for the destination in another, wider picture.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "acts.h"

/* Returns the part of the picture that is sent: a little above the middle. */
static struct rect tile_of(const struct image *picture)
{
	return (struct rect) {
		.x = picture->width / 4,
		.y = picture->height / 16,
		.width = picture->width / 2,
		.height = picture->height / 2,
	};
}

/*
 * Makes the picture that the tile is written to. Its width is odd and differs from that
 * of the source, so that rows are aligned differently.
 */
static struct image new_canvas(const struct demo *demo)
{
	struct image pattern = image_shrink(&demo->picture, 6);
	struct image canvas = image_wallpaper(&pattern,
					      demo->picture.width * 5 / 4 + 1,
					      demo->picture.height);

	image_free(&pattern);
	return canvas;
}

static struct rect place_on(const struct image *canvas, const struct rect *tile)
{
	return (struct rect) {
		.x = (canvas->width - tile->width) / 2,
		.y = (canvas->height - tile->height) / 2,
		.width = tile->width,
		.height = tile->height,
	};
}

/*
 * Binds a key to @part of @image, which @mr covers. @row_key addresses the same
 * bytes without the key: the picture's lkey at the sender, its rkey at the
 * receiver.
 */
static struct region bind_tile(struct node *node, const struct image *image,
			       struct ibv_mr *mr, uint32_t row_key,
			       const struct rect *part, unsigned int access)
{
	struct ibmkey_block row = {
		.addr = (uintptr_t)image_at(image, part->x, part->y),
		.bytes_count = (uint64_t)part->width * PIXEL_BYTES,
		.lkey = mr->lkey,
		.stride = { image_row_bytes(image) },
	};
	uint64_t rows = part->height;
	struct region region = {
		.num_blocks = part->height,
		.length = row.bytes_count * rows,
	};
	double start = now_ms();
	int ret;

	region.mkey = ibmkey_alloc(node->dev.pd, 1);
	if (!region.mkey)
		err(1, "ibmkey_alloc");
	ret = ibmkey_bind_interleaved(region.mkey, access, 1, &rows, 1, &row);
	if (ret)
		die(ret, "ibmkey_bind_interleaved: %s", ibmkey_last_error());
	region.bind_ms = now_ms() - start;

	/* The other ways send the tile row by row. */
	region.blocks = calloc(part->height, sizeof(*region.blocks));
	if (!region.blocks)
		err(1, "list of rows");
	for (unsigned int y = 0; y < part->height; y++)
		region.blocks[y] = (struct block) {
			.addr = (uintptr_t)image_at(image, part->x, part->y + y),
			.length = row.bytes_count,
			.key = row_key,
		};
	return region;
}

static void unbind_tile(struct region *region, struct ibv_mr *mr)
{
	rc_dereg(region->mkey);
	rc_dereg(mr);
	free(region->blocks);
}

struct figures tile_send(struct node *node, const struct demo *demo)
{
	static const uint8_t orange[PIXEL_BYTES] = { 0xff, 0x6a, 0x00 };
	struct rect tile = tile_of(&demo->picture);
	struct image original = image_copy(&demo->picture);
	struct figures figures;
	struct region region;
	struct ibv_mr *mr;

	/* The MR is read-only, because no later step writes to the picture. */
	mr = rc_reg(&node->dev, demo->picture.pixels, image_bytes(&demo->picture), 0);
	region = bind_tile(node, &demo->picture, mr, mr->lkey, &tile, 0);
	figures = ways_send(node, &region, demo->repetitions);
	unbind_tile(&region, mr);

	if (memcmp(demo->picture.pixels, original.pixels, image_bytes(&original)))
		errx(1, "sending the tile has changed the source picture");
	image_frame(&original, &tile, original.width / 160 + 1, orange);
	demo_write(demo, &original, "1-source.png");
	image_free(&original);
	return figures;
}

struct landing {
	const struct image *canvas;	/* the picture that node 0 writes to */
	const struct image *before;
	const struct image *expected;
};

static void reset_canvas(void *context)
{
	struct landing *landing = context;

	memcpy(landing->canvas->pixels, landing->before->pixels,
	       image_bytes(landing->before));
}

static const char *check_canvas(void *context)
{
	struct landing *landing = context;

	/*
	 * Compare the whole picture: the tile must have arrived, and nothing else
	 * may have changed.
	 */
	if (memcmp(landing->canvas->pixels, landing->expected->pixels,
		   image_bytes(landing->expected)))
		return "the picture is not the expected one";
	return NULL;
}

static void write_pictures(const struct demo *demo, const struct landing *landing,
			   const struct rect *tile)
{
	static const uint8_t orange[PIXEL_BYTES] = { 0xff, 0x6a, 0x00 };
	struct image source = image_copy(&demo->picture);
	struct image sequence;

	image_frame(&source, tile, source.width / 160 + 1, orange);
	sequence = image_sequence((const struct image *const[]) {
		&source, landing->before, landing->canvas }, 3, 640);
	demo_write(demo, landing->before, "1-before.png");
	demo_write(demo, landing->canvas, "1-after.png");
	demo_write(demo, &sequence, "1-tile.png");
	image_free(&sequence);
	image_free(&source);
}

void tile_receive(struct node *node, const struct demo *demo)
{
	struct image before = new_canvas(demo);
	struct image canvas = image_copy(&before), expected = image_copy(&before);
	struct rect tile = tile_of(&demo->picture);
	struct rect place = place_on(&canvas, &tile);
	struct landing landing = { &canvas, &before, &expected };
	struct checks checks = { reset_canvas, check_canvas, &landing };
	const unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct region region;
	struct ibv_mr *mr;

	image_paste(&expected, place.x, place.y, &demo->picture, &tile);

	mr = rc_reg(&node->dev, canvas.pixels, image_bytes(&canvas), access);
	region = bind_tile(node, &canvas, mr, mr->rkey, &place, access);
	ways_receive(node, &region, &checks, demo->repetitions);
	unbind_tile(&region, mr);

	write_pictures(demo, &landing, &tile);
	image_free(&before);
	image_free(&canvas);
	image_free(&expected);
}
