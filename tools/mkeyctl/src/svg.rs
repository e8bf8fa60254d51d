// SPDX-License-Identifier: GPL-2.0

//! Draws a picture as scalable vector graphics.

use svg::{
    node::element::{
        Rectangle,
        Text, //
    },
    Document,
    Node, //
};

use crate::picture::{
    Panel,
    Picture, //
};

/// The width of the picture, in its own units.
const WIDTH: u64 = 768;
const MARGIN: u64 = 16;
const LABEL: u64 = 160;
const LINE: u64 = 18;
const ROW: u64 = 14;

/// The elements that were added, and the place of the next ones.
struct Page {
    elements: Vec<Box<dyn Node>>,
    y: u64,
}

/// Draws pictures below one another, each with a heading.
pub fn render(pictures: &[(Option<String>, Picture)]) -> String {
    let mut page = Page {
        elements: Vec::new(),
        y: MARGIN,
    };
    for (at, (heading, picture)) in pictures.iter().enumerate() {
        if at > 0 {
            page.y = page.y.saturating_add(LINE);
        }
        if let Some(heading) = heading {
            page.line(MARGIN, heading);
        }
        page.picture(picture);
    }

    let width = WIDTH
        .saturating_add(LABEL)
        .saturating_add(MARGIN.saturating_mul(2));
    let height = page.y.saturating_add(MARGIN);
    let mut document = Document::new()
        .set("width", width)
        .set("height", height)
        .set("viewBox", (0, 0, width, height))
        .set("font-family", "monospace")
        .set("font-size", 12)
        .add(
            Rectangle::new()
                .set("width", "100%")
                .set("height", "100%")
                .set("fill", "white"),
        );
    for element in page.elements {
        document.append(element);
    }
    format!("{document}\n")
}

impl Page {
    fn picture(&mut self, picture: &Picture) {
        self.line(MARGIN, &picture.summary);
        for (at, words) in picture.entries.iter().enumerate() {
            let top = self.y;

            self.line(MARGIN.saturating_add(LINE), words);
            self.rect(MARGIN as f64, top, 12.0, 12, &colour(at));
        }
        if let Some(more @ 1..) = picture.num_entries.checked_sub(picture.entries.len()) {
            self.line(MARGIN.saturating_add(LINE), &format!("{more} more"));
        }
        if picture.repeated > 0 {
            let words = format!(
                "bytes that are in the key more than once: {}",
                picture.repeated
            );
            self.line(MARGIN, &words);
        }
        for panel in &picture.panels {
            self.y = self.y.saturating_add(LINE);
            self.panel(panel);
        }
    }

    fn panel(&mut self, panel: &Panel) {
        let left = MARGIN.saturating_add(LABEL) as f64;
        let scale = WIDTH as f64 / panel.pitch.get() as f64;
        let height = ROW.saturating_sub(2);
        let mut expected = None;

        self.line(
            MARGIN,
            &format!("{}: {} bytes a row", panel.leaf, panel.pitch),
        );
        for (&row, spans) in &panel.rows {
            if expected.is_some_and(|expected| expected != row) {
                self.line(MARGIN, "...");
            }
            expected = row.checked_add(1);

            let address = row.saturating_mul(panel.pitch.get());
            self.elements.push(Box::new(
                Text::new(format!("{address:#x}"))
                    .set("x", left - 8.0)
                    .set("y", self.y.saturating_add(11))
                    .set("text-anchor", "end"),
            ));
            self.rect(left, self.y, WIDTH as f64, height, "#e8e8e8");
            for span in spans {
                let from = span.from as f64 * scale;
                let to = span.to as f64 * scale;

                self.rect(
                    left + from,
                    self.y,
                    (to - from).max(0.5),
                    height,
                    &colour(span.entry),
                );
            }
            self.y = self.y.saturating_add(ROW);
        }
        if panel.more {
            self.line(MARGIN, "... and more");
        }
    }

    fn line(&mut self, x: u64, words: &str) {
        self.text(x, self.y.saturating_add(11), words);
        self.y = self.y.saturating_add(LINE);
    }

    fn text(&mut self, x: u64, y: u64, words: &str) {
        self.elements
            .push(Box::new(Text::new(words).set("x", x).set("y", y)));
    }

    fn rect(&mut self, x: f64, y: u64, width: f64, height: u64, fill: &str) {
        self.elements.push(Box::new(
            Rectangle::new()
                .set("x", format!("{x:.2}"))
                .set("y", y)
                .set("width", format!("{width:.2}"))
                .set("height", height)
                .set("fill", fill),
        ));
    }
}

/// Returns the colour of an entry. The hue advances by the golden angle, so that neighbours differ.
fn colour(entry: usize) -> String {
    format!("hsl({}, 65%, 45%)", (entry as u64).wrapping_mul(137) % 360)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::describe::Description;

    fn draw(ranges: &[&str]) -> String {
        let ranges: Vec<_> = ranges.iter().map(|&range| range.to_owned()).collect();
        let description = Description::from_ranges(&ranges).unwrap();

        let picture = Picture::new(&description, None, NonZeroUsize::new(8).unwrap());
        render(&[(None, picture)])
    }

    #[test]
    fn pictures_are_below_one_another() {
        let ranges = ["A@16+8".to_owned()];
        let picture = || {
            let description = Description::from_ranges(&ranges).unwrap();
            Picture::new(&description, None, NonZeroUsize::new(8).unwrap())
        };
        let heading = |name: &str| Some(format!("Key {name}"));
        let svg = render(&[(heading("1"), picture()), (heading("2"), picture())]);
        let at = |name: &str| {
            let text = svg.split("<text").find(|text| text.contains(name)).unwrap();
            let y = text.split(" y=\"").nth(1).unwrap();
            y.split('"').next().unwrap().parse::<u64>().unwrap()
        };

        assert!(at("Key 2") > at("Key 1").saturating_add(LINE.saturating_mul(4)));
    }

    #[test]
    fn a_span_is_where_its_bytes_are() {
        let svg = draw(&["A@16+8"]);
        let fill = colour(0);

        // Each of the 64 bytes of a row is 12 units wide.
        assert!(
            svg.contains(&format!(
                "<rect fill=\"{fill}\" height=\"12\" width=\"96.00\" x=\"368.00\" y=\"88\"/>"
            )),
            "{svg}"
        );
        assert_ne!(colour(0), colour(1));
    }

    #[test]
    fn names_are_escaped() {
        let svg = draw(&["<&>@0+1"]);

        assert!(svg.contains("&lt;&amp;&gt;: 64 bytes a row"), "{svg}");
        assert!(!svg.contains("<&>"));
    }

    #[test]
    fn everything_is_within_the_height() {
        let svg = draw(&["A@0+1024", "B@0+1"]);
        let number = |text: &str| text.split('"').next().unwrap().parse::<u64>().unwrap();
        let height = number(svg.split(" height=\"").nth(1).unwrap());
        let lowest = svg.split(" y=\"").skip(1).map(number).max().unwrap();

        assert!(lowest < height, "{lowest} of {height}");
    }
}
