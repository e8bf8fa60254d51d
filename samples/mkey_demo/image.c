// SPDX-License-Identifier: GPL-2.0
/* Makes, changes and arranges pictures. */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

#define MAX_SEQUENCE 4

static const uint8_t ground[PIXEL_BYTES] = { 0xf4, 0xf1, 0xea };
static const uint8_t ink[PIXEL_BYTES] = { 0x44, 0x4a, 0x55 };

struct image image_new(unsigned int width, unsigned int height)
{
	struct image image = { .width = width, .height = height };

	image.pixels = calloc(height, image_row_bytes(&image));
	if (!image.pixels)
		err(1, "a picture of %u x %u", width, height);
	return image;
}

struct image image_copy(const struct image *from)
{
	struct image image = image_new(from->width, from->height);

	memcpy(image.pixels, from->pixels, image_bytes(from));
	return image;
}

void image_free(struct image *image)
{
	free(image->pixels);
	image->pixels = NULL;
}

void image_fill(struct image *image, const struct rect *where,
		const uint8_t colour[PIXEL_BYTES])
{
	for (unsigned int y = where->y; y < where->y + where->height; y++)
		for (unsigned int x = where->x; x < where->x + where->width; x++)
			memcpy(image_at(image, x, y), colour, PIXEL_BYTES);
}

struct image image_enlarge(const struct image *from, unsigned int factor)
{
	struct image image = image_new(from->width * factor,
				       from->height * factor);

	for (unsigned int y = 0; y < image.height; y++)
		for (unsigned int x = 0; x < image.width; x++)
			memcpy(image_at(&image, x, y),
			       image_at(from, x / factor, y / factor),
			       PIXEL_BYTES);
	return image;
}

struct image image_shrink(const struct image *from, unsigned int factor)
{
	struct image image = image_new(from->width / factor,
				       from->height / factor);

	for (unsigned int y = 0; y < image.height; y++) {
		for (unsigned int x = 0; x < image.width; x++) {
			for (unsigned int c = 0; c < PIXEL_BYTES; c++) {
				unsigned int sum = 0;

				for (unsigned int i = 0; i < factor * factor; i++)
					sum += image_at(from,
							x * factor + i % factor,
							y * factor + i / factor)[c];
				image_at(&image, x, y)[c] = sum / (factor * factor);
			}
		}
	}
	return image;
}

struct image image_wallpaper(const struct image *pattern, unsigned int width,
			     unsigned int height)
{
	struct image image = image_new(width, height);

	for (unsigned int y = 0; y < height; y++) {
		for (unsigned int x = 0; x < width; x++) {
			const uint8_t *p = image_at(pattern, x % pattern->width,
						    y % pattern->height);
			unsigned int grey = (p[0] * 2 + p[1] * 5 + p[2]) / 8;
			uint8_t *to = image_at(&image, x, y);

			to[0] = 0x18 + grey * 3 / 16;
			to[1] = 0x26 + grey * 4 / 16;
			to[2] = 0x3c + grey * 6 / 16;
		}
	}
	return image;
}

void image_paste(struct image *to, unsigned int x, unsigned int y,
		 const struct image *from, const struct rect *what)
{
	for (unsigned int j = 0; j < what->height; j++)
		for (unsigned int i = 0; i < what->width; i++)
			for (unsigned int c = 0; c < PIXEL_BYTES; c++)
				image_at(to, x + i, y + j)[c] =
					image_at(from, what->x + i, what->y + j)[c];
}

void image_frame(struct image *image, const struct rect *what,
		 unsigned int thickness, const uint8_t colour[PIXEL_BYTES])
{
	for (unsigned int y = 0; y < image->height; y++) {
		for (unsigned int x = 0; x < image->width; x++) {
			/*
			 * The differences are unsigned: for a pixel left of @what or above
			 * it, they wrap to a large number.
			 */
			int inside = x - what->x < what->width &&
				     y - what->y < what->height;
			int near = x + thickness - what->x <
					what->width + 2 * thickness &&
				   y + thickness - what->y <
					what->height + 2 * thickness;

			if (near && !inside)
				memcpy(image_at(image, x, y), colour, PIXEL_BYTES);
		}
	}
}

/* Draws an arrow to the right, @size wide and half as high. */
static void draw_arrow(struct image *image, unsigned int left, unsigned int middle,
		       unsigned int size)
{
	unsigned int head = size / 2;

	for (unsigned int i = 0; i < size; i++) {
		unsigned int half = i < size - head ? size / 10 : (size - i) / 2;
		struct rect column = {
			.x = left + i,
			.y = middle - half,
			.width = 1,
			.height = 2 * half + 1,
		};

		image_fill(image, &column, ink);
	}
}

struct image image_sequence(const struct image *const *pictures,
			    unsigned int count, unsigned int max_width)
{
	const unsigned int margin = 24, gap = 96, arrow = 56;
	unsigned int width = 2 * margin + (count - 1) * gap, height = 0;
	struct image shrunk[MAX_SEQUENCE], image;
	unsigned int x = margin, factor = 1;

	if (count > MAX_SEQUENCE)
		errx(1, "%u pictures side by side are too many", count);
	for (unsigned int i = 0; i < count; i++)
		while (pictures[i]->width / factor > max_width)
			factor++;
	for (unsigned int i = 0; i < count; i++) {
		shrunk[i] = image_shrink(pictures[i], factor);
		width += shrunk[i].width;
		if (shrunk[i].height > height)
			height = shrunk[i].height;
	}
	/* The result must be high enough for an arrow, even if the pictures are low. */
	height = (height > arrow ? height : arrow) + 2 * margin;

	image = image_new(width, height);
	image_fill(&image, &(struct rect) { 0, 0, width, height }, ground);
	for (unsigned int i = 0; i < count; i++) {
		struct rect all = { 0, 0, shrunk[i].width, shrunk[i].height };

		if (i)
			draw_arrow(&image, x - gap + (gap - arrow) / 2, height / 2,
				   arrow);
		image_paste(&image, x, (height - all.height) / 2, &shrunk[i], &all);
		x += all.width + gap;
		image_free(&shrunk[i]);
	}
	return image;
}
