// SPDX-License-Identifier: GPL-2.0
/* Reads and writes files of pictures, by the program mkey_picture. */
#include <err.h>
#include <stdio.h>
#include <unistd.h>

#include "helper.h"
#include "image.h"

#define MAX_PIXELS (16u << 20)

struct image image_load(const char *path)
{
	const char *const argv[] = { "mkey_picture", "read", "--", path, NULL };
	unsigned int width = 0, height = 0;
	struct image image = { 0 };
	struct helper helper;
	size_t size = 0;

	if (access(path, R_OK))
		err(1, "%s", path);
	helper = helper_start(argv, STDOUT_FILENO);
	if (fscanf(helper.stream, "P6 %u %u 255", &width, &height) == 2 &&
	    fgetc(helper.stream) != EOF &&
	    width && height && (uint64_t)width * height <= MAX_PIXELS) {
		image = image_new(width, height);
		size = fread(image.pixels, 1, image_bytes(&image), helper.stream);
	}
	helper_finish(&helper);
	if (!image.pixels || size != image_bytes(&image))
		errx(1, "%s: mkey_picture printed no whole picture", path);
	return image;
}

void image_write_png(const struct image *image, const char *path)
{
	const char *const argv[] = { "mkey_picture", "png", "--", path, NULL };
	struct helper helper = helper_start(argv, STDIN_FILENO);

	fprintf(helper.stream, "P6\n%u %u\n255\n", image->width, image->height);
	/* Ignore an error: mkey_picture reports a picture that is too short. */
	fwrite(image->pixels, 1, image_bytes(image), helper.stream);
	helper_finish(&helper);
}
