/* SPDX-License-Identifier: GPL-2.0 */
/* Pictures in memory: rows of red, green and blue bytes, without padding. */
#ifndef MKEY_DEMO_IMAGE_H
#define MKEY_DEMO_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#define PIXEL_BYTES 3

struct image {
	unsigned int width;
	unsigned int height;
	uint8_t *pixels;
};

struct rect {
	unsigned int x, y, width, height;
};

static inline size_t image_row_bytes(const struct image *image)
{
	return (size_t)image->width * PIXEL_BYTES;
}

static inline size_t image_bytes(const struct image *image)
{
	return image_row_bytes(image) * image->height;
}

static inline uint8_t *image_at(const struct image *image, unsigned int x,
				unsigned int y)
{
	return image->pixels + image_row_bytes(image) * y +
	       (size_t)x * PIXEL_BYTES;
}

/* image_file.c: an error in a file ends the program with one line */
struct image image_load(const char *path);
void image_write_png(const struct image *image, const char *path);

/* image.c */
struct image image_new(unsigned int width, unsigned int height);
struct image image_copy(const struct image *from);
void image_free(struct image *image);
void image_fill(struct image *image, const struct rect *where,
		const uint8_t colour[PIXEL_BYTES]);
/* Makes every pixel a square of @factor x @factor. */
struct image image_enlarge(const struct image *from, unsigned int factor);
/*
 * Replaces every square of @factor x @factor pixels by one pixel, their mean.
 */
struct image image_shrink(const struct image *from, unsigned int factor);
/* Makes a dim background of this size from copies of @pattern. */
struct image image_wallpaper(const struct image *pattern, unsigned int width,
			     unsigned int height);
/* Copies the part @what of @from to (@x, @y) of @to, pixel by pixel. The part must fit. */
void image_paste(struct image *to, unsigned int x, unsigned int y,
		 const struct image *from, const struct rect *what);
/* Draws a frame just outside @what. */
void image_frame(struct image *image, const struct rect *what,
		 unsigned int thickness, const uint8_t colour[PIXEL_BYTES]);
/*
 * Arranges up to four pictures side by side on a plain background with arrows
 * between them. All are shrunk by the same factor, so that none is wider than
 * @max_width.
 */
struct image image_sequence(const struct image *const *pictures,
			    unsigned int count, unsigned int max_width);

#endif /* MKEY_DEMO_IMAGE_H */
