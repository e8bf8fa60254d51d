// SPDX-License-Identifier: GPL-2.0
/* Reads PPM files and writes PNG files. */
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "image.h"

#define MAX_PIXELS (16u << 20)

/*
 * Reads a number of a PPM header or body; '#' starts a comment that ends its
 * line.
 */
static unsigned int ppm_number(FILE *file, const char *path)
{
	unsigned int value = 0;
	int c = getc(file);

	while (c == '#' || isspace(c)) {
		if (c == '#')
			while (c != '\n' && c != EOF)
				c = getc(file);
		c = getc(file);
	}
	if (!isdigit(c))
		errx(1, "%s: %s", path, c == EOF ? "ends too early" :
						   "no number where one belongs");
	for (; isdigit(c); c = getc(file)) {
		value = value * 10 + (c - '0');
		if (value > MAX_PIXELS)
			errx(1, "%s: a number is too large", path);
	}
	/* One byte of white space ends a number; in P6 the pixels follow it. */
	if (c != EOF && !isspace(c))
		errx(1, "%s: no white space after a number", path);
	return value;
}

static uint8_t ppm_scale(unsigned int value, unsigned int max, const char *path)
{
	if (value > max)
		errx(1, "%s: a colour is above the maximum of %u", path, max);
	return (value * 255 + max / 2) / max;
}

struct image image_load_ppm(const char *path)
{
	unsigned int width, height, max;
	struct image image;
	FILE *file = fopen(path, "rb");
	char magic[2];
	size_t size;

	if (!file)
		err(1, "%s", path);
	if (fread(magic, 1, 2, file) != 2 || magic[0] != 'P' ||
	    (magic[1] != '3' && magic[1] != '6'))
		errx(1, "%s: not a PPM picture (P3 or P6)", path);
	width = ppm_number(file, path);
	height = ppm_number(file, path);
	max = ppm_number(file, path);
	if (!width || !height || (uint64_t)width * height > MAX_PIXELS)
		errx(1, "%s: %u x %u is not a valid size: 1 to %u pixels", path,
		     width, height, MAX_PIXELS);
	if (!max || max > 255)
		errx(1, "%s: colours up to %u; only 1 to 255 is supported", path, max);

	image = image_new(width, height);
	size = image_bytes(&image);
	if (magic[1] == '3') {
		for (size_t i = 0; i < size; i++)
			image.pixels[i] = ppm_scale(ppm_number(file, path), max,
						    path);
	} else {
		if (fread(image.pixels, 1, size, file) != size)
			errx(1, "%s: ends too early", path);
		for (size_t i = 0; i < size; i++)
			image.pixels[i] = ppm_scale(image.pixels[i], max, path);
	}
	fclose(file);
	return image;
}

static void put_be32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = value >> (24 - 8 * i);
}

static void png_chunk(FILE *file, const char *type, const uint8_t *data,
		      uint32_t length)
{
	uint8_t head[8], tail[4];
	uLong crc;

	put_be32(head, length);
	memcpy(head + 4, type, 4);
	crc = crc32(crc32(0, NULL, 0), head + 4, 4);
	/* fclose() reports short writes. */
	fwrite(head, 1, sizeof(head), file);
	if (length) {
		crc = crc32(crc, data, length);
		fwrite(data, 1, length, file);
	}
	put_be32(tail, crc);
	fwrite(tail, 1, sizeof(tail), file);
}

void image_write_png(const struct image *image, const char *path)
{
	static const uint8_t signature[8] = {
		0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'
	};
	/*
	 * 8 bits per channel, RGB; compression, filter and interlace have only one
	 * valid value
	 */
	uint8_t header[13] = { [8] = 8, [9] = 2 };
	size_t row = image_row_bytes(image), raw_size = (row + 1) * image->height;
	uLongf packed_size = compressBound(raw_size);
	uint8_t *raw = malloc(raw_size), *packed = malloc(packed_size);
	FILE *file;

	if (!raw || !packed)
		err(1, "%s", path);
	for (unsigned int y = 0; y < image->height; y++) {
		raw[y * (row + 1)] = 0;		/* each row names its filter: none */
		memcpy(raw + y * (row + 1) + 1, image_at(image, 0, y), row);
	}
	/* Level 1 is fast enough for an emulated machine. */
	if (compress2(packed, &packed_size, raw, raw_size, 1) != Z_OK)
		errx(1, "%s: cannot compress", path);

	file = fopen(path, "wb");
	if (!file)
		err(1, "%s", path);
	put_be32(header, image->width);
	put_be32(header + 4, image->height);
	fwrite(signature, 1, sizeof(signature), file);
	png_chunk(file, "IHDR", header, sizeof(header));
	png_chunk(file, "IDAT", packed, packed_size);
	png_chunk(file, "IEND", NULL, 0);
	if (ferror(file) | fclose(file))
		errx(1, "%s: cannot write: %s", path, strerror(errno));
	free(packed);
	free(raw);
}
