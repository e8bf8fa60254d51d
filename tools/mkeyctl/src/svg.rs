// SPDX-License-Identifier: GPL-2.0

//! Draws a picture as scalable vector graphics.

use std::fmt::Write;

use crate::picture::{
    Panel,
    Picture, //
};

/// In the units of the picture.
const WIDTH: u64 = 768;
const MARGIN: u64 = 16;
const LABEL: u64 = 160;
const LINE: u64 = 18;
const ROW: u64 = 14;

/// The number of entries that are listed in words.
const MAX_ENTRIES: usize = 16;

pub fn render(picture: &Picture) -> String {
    let mut body = String::new();
    let mut y = MARGIN;

    // Writing to a string cannot fail.
    let _ = try_render(&mut body, &mut y, picture);

    let (width, height) = (
        WIDTH
            .saturating_add(LABEL)
            .saturating_add(MARGIN.saturating_mul(2)),
        y.saturating_add(MARGIN),
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn try_render(body: &mut String, y: &mut u64, picture: &Picture) -> std::fmt::Result {
    line(body, y, MARGIN, &picture.summary)?;

    for (at, words) in picture.entries.iter().take(MAX_ENTRIES).enumerate() {
        let top = *y;

        line(body, y, MARGIN.saturating_add(LINE), words)?;
        rect(body, MARGIN as f64, top, 12.0, 12, &colour(at))?;
    }
    if let Some(more @ 1..) = picture.entries.len().checked_sub(MAX_ENTRIES) {
        line(
            body,
            y,
            MARGIN.saturating_add(LINE),
            &format!("{more} more"),
        )?;
    }

    for panel in &picture.panels {
        *y = y.saturating_add(LINE);
        render_panel(body, y, panel)?;
    }
    Ok(())
}

fn render_panel(body: &mut String, y: &mut u64, panel: &Panel) -> std::fmt::Result {
    let left = MARGIN.saturating_add(LABEL) as f64;
    let scale = WIDTH as f64 / panel.pitch.get() as f64;
    let title = format!("{}: {} bytes a row", panel.leaf, panel.pitch);
    let mut expected = None;

    line(body, y, MARGIN, &title)?;
    for (&row, spans) in &panel.rows {
        if expected.is_some_and(|expected| expected != row) {
            line(body, y, MARGIN, "...")?;
        }
        expected = row.checked_add(1);

        let address = row.saturating_mul(panel.pitch.get());
        text(body, MARGIN, y.saturating_add(11), &format!("{address:#x}"))?;
        rect(
            body,
            left,
            *y,
            WIDTH as f64,
            ROW.saturating_sub(2),
            "#e8e8e8",
        )?;
        for span in spans {
            let from = span.from as f64 * scale;
            let to = span.to as f64 * scale;

            rect(
                body,
                left + from,
                *y,
                (to - from).max(0.5),
                ROW.saturating_sub(2),
                &colour(span.entry),
            )?;
        }
        *y = y.saturating_add(ROW);
    }
    if panel.more {
        line(body, y, MARGIN, "... and more")?;
    }
    Ok(())
}

/// Returns a colour. Neighbours differ, because the hue advances by the golden angle.
fn colour(entry: usize) -> String {
    format!("hsl({}, 65%, 45%)", (entry as u64).wrapping_mul(137) % 360)
}

fn line(body: &mut String, y: &mut u64, x: u64, words: &str) -> std::fmt::Result {
    text(body, x, y.saturating_add(11), words)?;
    *y = y.saturating_add(LINE);
    Ok(())
}

fn text(body: &mut String, x: u64, y: u64, words: &str) -> std::fmt::Result {
    let words = words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");

    writeln!(body, "<text x=\"{x}\" y=\"{y}\">{words}</text>")
}

fn rect(
    body: &mut String,
    x: f64,
    y: u64,
    width: f64,
    height: u64,
    fill: &str,
) -> std::fmt::Result {
    writeln!(
        body,
        "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{fill}\"/>"
    )
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

        render(&Picture::new(
            &description,
            None,
            NonZeroUsize::new(8).unwrap(),
        ))
    }

    #[test]
    fn a_span_is_where_its_bytes_are() {
        let svg = draw(&["A@16+8"]);
        let fill = colour(0);

        // Each of the 64 bytes of a row is 12 units wide.
        assert!(
            svg.contains(&format!(
                "<rect x=\"368.00\" y=\"88\" width=\"96.00\" height=\"12\" fill=\"{fill}\"/>"
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
