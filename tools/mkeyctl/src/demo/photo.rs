// SPDX-License-Identifier: GPL-2.0

//! A picture as memory: rows of red, green and blue bytes.

use std::{
    error::Error,
    fs::{
        create_dir_all,
        File, //
    },
    io::{
        self,
        BufReader,
        Write, //
    },
    path::Path,
};

use image::{
    imageops::{
        self,
        FilterType, //
    },
    ImageReader,
    RgbImage, //
};

use super::{
    End,
    Tile, //
};

const PIXEL: usize = 3;
/// A picture has at least this number of pixels in each direction.
const MIN_SIDE: u32 = 16;
/// Small pictures are enlarged and large ones are reduced to about this size.
const GOOD_SIDE: u32 = 480;

/// Returns `side * to / from`, and at least 2.
fn scale(side: u32, to: u32, from: u32) -> u32 {
    side.saturating_mul(to)
        .checked_div(from)
        .unwrap_or(0)
        .max(2)
}

/// The names of the pictures of a transfer.
const NAMES: [&str; 3] = ["source", "before", "after"];

pub(super) struct Photo(RgbImage);

impl Photo {
    pub(super) fn load(file: &Path) -> Result<Self, Box<dyn Error>> {
        Self::read(file).map_err(|error| {
            // Some decoders say why on several lines.
            let why = error.to_string();
            let why = why.lines().next().unwrap_or("unreadable");
            format!("{}: {why}", file.display()).into()
        })
    }

    fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let reader = ImageReader::new(BufReader::new(File::open(file)?)).with_guessed_format()?;

        if reader.format().is_none() {
            return Err("not a PNG, JPEG or PNM picture".into());
        }
        let image = reader.decode()?.into_rgb8();
        let (width, height) = image.dimensions();
        let (shorter, longer) = (width.min(height), width.max(height));
        if shorter < MIN_SIDE || longer >= shorter.saturating_mul(8) {
            return Err(format!(
                "{width} x {height} pixels: each side needs at least {MIN_SIDE}, \
                 and one side less than 8 times the other"
            )
            .into());
        }
        let scaled = |side| scale(side, GOOD_SIDE, longer);
        let filter = if longer > GOOD_SIDE {
            FilterType::Triangle
        } else {
            FilterType::Nearest
        };
        Ok(Self(imageops::resize(
            &image,
            scaled(width),
            scaled(height),
            filter,
        )))
    }

    /// Returns the sender, which has the picture, and the receiver, which has a dim copy of it.
    /// The tile is the upper middle of the picture, and goes to the lower right.
    pub(super) fn ends(&self) -> [End; 2] {
        let (width, height) = (self.0.width() as usize, self.0.height() as usize);
        let end = |memory, x: usize, y| End {
            memory,
            pitch: width.saturating_mul(PIXEL),
            tile: Tile {
                x: x.saturating_mul(PIXEL),
                y,
                width: (width / 3).saturating_mul(PIXEL),
                height: height / 3,
            },
        };
        let dim = |pixels: &[u8]| {
            let sum = pixels
                .iter()
                .fold(0u16, |sum, &c| sum.saturating_add(c.into()));
            [u8::try_from(sum / 9).unwrap_or(u8::MAX); PIXEL]
        };
        let dimmed = self.0.chunks(PIXEL).flat_map(dim).collect();

        [
            end(self.0.as_raw().clone(), width / 3, height / 8),
            end(dimmed, width / 2, height / 2),
        ]
    }

    /// Returns pictures with these bytes.
    pub(super) fn pictures(&self, memory: [&[u8]; 3]) -> Result<Vec<RgbImage>, &'static str> {
        let (width, height) = self.0.dimensions();

        memory
            .into_iter()
            .map(|bytes| RgbImage::from_raw(width, height, bytes.to_owned()))
            .collect::<Option<_>>()
            .ok_or("a picture of another size")
    }
}

pub(super) fn save(dir: &Path, pictures: &[RgbImage]) -> Result<(), Box<dyn Error>> {
    create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    for (name, picture) in NAMES.iter().zip(pictures) {
        let file = dir.join(format!("{name}.png"));
        picture
            .save(&file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// Draws the pictures beside each other. A character is two pixels, one above the other.
pub(super) fn show(out: &mut impl Write, pictures: &[RgbImage], columns: u32) -> io::Result<()> {
    // Three pictures, with a space behind each.
    let width = (columns / 3).saturating_sub(1).max(1);
    let small: Vec<_> = pictures
        .iter()
        .map(|picture| {
            let height = scale(picture.height(), width, picture.width());
            imageops::resize(picture, width, height, FilterType::Triangle)
        })
        .collect();
    let height = small.first().map_or(0, RgbImage::height);

    for y in (0..height.saturating_sub(1)).step_by(2) {
        for picture in &small {
            for x in 0..width {
                let [r, g, b] = picture.get_pixel(x, y).0;
                let [s, h, c] = picture.get_pixel(x, y.saturating_add(1)).0;
                write!(out, "\x1b[38;2;{r};{g};{b};48;2;{s};{h};{c}m\u{2580}")?;
            }
            write!(out, "\x1b[0m ")?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use image::{
        ImageFormat,
        Rgb, //
    };

    use super::*;

    fn picture() -> RgbImage {
        RgbImage::from_fn(24, 16, |x, y| Rgb([250, (x % 7) as u8, (y % 5) as u8]))
    }

    /// Calls `with` with a file that has `bytes`.
    fn in_file<T>(name: &str, bytes: &[u8], with: impl Fn(&Path) -> T) -> T {
        let file = std::env::temp_dir().join(format!("mkeyctl-{}-{name}", std::process::id()));

        std::fs::write(&file, bytes).unwrap();
        let result = with(&file);
        std::fs::remove_file(&file).unwrap();
        result
    }

    #[test]
    fn each_format_is_read_whatever_the_name() {
        for format in [ImageFormat::Png, ImageFormat::Pnm, ImageFormat::Jpeg] {
            let mut bytes = io::Cursor::new(Vec::new());
            picture().write_to(&mut bytes, format).unwrap();

            let photo = in_file("picture", bytes.get_ref(), Photo::load).unwrap();
            assert_eq!(photo.0.dimensions(), (480, 320), "{format:?}");
        }
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let refused = |bytes: &[u8], why: &str| {
            let error = in_file("refused", bytes, Photo::load).err().unwrap();
            assert!(error.to_string().contains(why), "{error}");
        };

        refused(b"no picture", "not a PNG, JPEG or PNM picture");
        refused(b"P6\n10 10\n255\nshort", "refused: ");
        refused(
            &[b"P6\n8 16\n255\n".as_slice(), &[0; 384]].concat(),
            "8 x 16 pixels",
        );
        assert!(Photo::load(Path::new("/nonexistent")).is_err());
    }

    /// The tile is in both pictures, and the transfer changes the tile only.
    #[test]
    fn a_tile_is_sent() {
        let [from, to] = Photo(picture()).ends();
        let after = to.after(&from);

        assert_eq!(from.len(), 8 * 3 * 5);
        assert_eq!(to.len(), from.len());
        let tile: Vec<_> = to.offsets().collect();
        for (at, (now, before)) in after.iter().zip(&to.memory).enumerate() {
            assert!(now == before || tile.contains(&at), "{at}");
        }
        assert_ne!(after, to.memory);
    }

    #[test]
    fn a_row_of_characters_is_two_rows_of_pixels() {
        let mut text = Vec::new();

        show(&mut text, &[picture(), picture(), picture()], 75).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches('\u{2580}').count(), 3 * 24 * 8);
        assert_eq!(text.lines().count(), 8 + 1);
    }
}
