// SPDX-License-Identifier: GPL-2.0

//! The plot of the growth.

use std::{
    error::Error,
    path::Path, //
};

use plotters::prelude::*;

use crate::{
    record::Records,
    stats,
    text, //
};

const SIZE: (u32, u32) = (520, 440);
const FONT: &str = "sans-serif";
/// Colours that people with colour blindness can tell apart, too (Okabe and Ito), and widths: a
/// wider line below another one stays visible.
const STYLES: [(RGBColor, u32); 3] = [
    (RGBColor(0, 114, 178), 6),
    (RGBColor(213, 94, 0), 4),
    (RGBColor(0, 158, 115), 2),
];

/// A cost by number, relative to that of the smallest number.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

fn lines(records: &Records) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut smallest = 1.0;

    for series in &records.series {
        if series.group != "growth" || series.way != "key" {
            continue;
        }
        let Some(cost) = stats::latency(series) else {
            continue;
        };
        if lines.last().is_none_or(|line| line.name != series.name) {
            smallest = cost.median;
            lines.push(Line {
                name: &series.name,
                points: Vec::new(),
            });
        }
        if let Some(line) = lines.last_mut() {
            line.points
                .push((series.size as f64, cost.median / smallest));
        }
    }
    lines
}

/// Draws the cost of an access by a key of a growing number of blocks, entries or levels. Draws
/// nothing if it was not measured.
pub fn growth(records: &Records, path: &Path) -> Result<(), Box<dyn Error>> {
    let lines = lines(records);
    if lines.is_empty() {
        return Ok(());
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().fold(1.0, |most: f64, &(number, _)| most.max(number));
    let high = points().fold(1.1, |high: f64, &(_, cost)| high.max(cost));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();

    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("WRITE of 4 KiB to the middle of a key", (FONT, 20))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d((0.8..most * 1.3).log_scale(), 0.0..high + 0.1)?;
    chart
        .configure_mesh()
        .x_desc("number")
        .y_desc("cost, that of the smallest number = 1")
        .x_label_formatter(&|&number| text::thousands(number.round() as u64))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (line, (colour, width)) in lines.iter().zip(STYLES.iter().cycle()) {
        let style = colour.stroke_width(*width);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x.saturating_add(18), y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .label_font((FONT, 14))
        .background_style(WHITE)
        .draw()?;
    root.present()?;
    Ok(())
}
